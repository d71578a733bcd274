# SPDX-License-Identifier: Apache-2.0

"""Tests the elastic example while its ranks are killed, stopped and asked to leave at random."""

from __future__ import annotations

import subprocess
import sys
import unittest

import ronda_test

# Enough passes for some new ranks to join: a new rank needs seconds to import PyTorch.
PASSES = "25"


class ElasticChaosTest(unittest.TestCase):
    def test_the_example_learns_whoever_dies(self) -> None:
        # elastic_chaos_test must not write its own test cases into this test's report.
        own = ("XML_OUTPUT_FILE", "TEST_")
        env = {n: v for n, v in ronda_test.environment().items() if not n.startswith(own)}
        done = subprocess.run(
            ["tests/chaos/elastic_chaos_test", sys.executable, "examples/pytorch_elastic.py"],
            env={"CHAOS_PASSES": PASSES, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
