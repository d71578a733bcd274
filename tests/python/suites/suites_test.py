"""torch's own tests of torch.distributed over Ronda: docs/suites.md."""

import pathlib
import subprocess
import sys
import unittest

RUNNER = pathlib.Path(__file__).with_name("run_suites.py")


class SuitesTest(unittest.TestCase):
    def _run(self, suite: str) -> None:
        command = [sys.executable, str(RUNNER), "--suite", suite, "--ranks", "3", "--jobs", "2"]
        # Beside the test's own standard output, so that a test that stands still can be seen.
        self.assertEqual(subprocess.run(command).returncode, 0)

    def test_torch_s_own_tests_end_as_the_table_has_it(self) -> None:
        self._run("distributed")

    def test_torch_s_own_tests_of_gpus_end_as_the_table_has_it_on_cpus(self) -> None:
        self._run("distributed_gpu")


if __name__ == "__main__":
    unittest.main()
