# SPDX-License-Identifier: Apache-2.0

"""Runs torch's own tests of torch.distributed over Ronda; see docs/suites.md."""

import pathlib
import subprocess
import sys
import unittest

import torch

RUNNER = pathlib.Path(__file__).with_name("run_suites.py")
VERSION = tuple(map(int, torch.__version__.split(".")[:2]))


class SuitesTest(unittest.TestCase):
    @unittest.skipIf(VERSION < (2, 15), "the table of failures is kept for today's torch")
    def test_torch_s_own_tests_end_as_the_table_has_it(self) -> None:
        for suite in ("distributed", "distributed_gpu"):
            command = [sys.executable, str(RUNNER), "--suite", suite, "--jobs", "2"]
            # Prints continuously, so that a hanging test is visible.
            with self.subTest(suite):
                self.assertEqual(subprocess.run(command).returncode, 0)


if __name__ == "__main__":
    unittest.main()
