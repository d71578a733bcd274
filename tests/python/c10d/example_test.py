# SPDX-License-Identifier: Apache-2.0

"""Tests examples/ddp_mnist.py, started as a user would start it."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import unittest

from ronda_test import RONDARUN, environment, finish


class ExampleTest(unittest.TestCase):
    def test_ddp_mnist(self):
        script = pathlib.Path("examples/ddp_mnist.py").absolute()
        finished = finish(
            subprocess.Popen(
                [str(RONDARUN), "-np", "2", sys.executable, str(script), "--epochs", "2"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**environment(), "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            ),
            timeout=120,
        )
        self.assertEqual(finished.code, 0, finished.err)
        found = re.search(r"accuracy (0\.\d+) on 2 ranks", finished.out)
        self.assertIsNotNone(found, finished.out)
        self.assertGreater(float(found.group(1)), 0.9)
