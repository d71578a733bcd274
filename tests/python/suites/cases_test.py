# SPDX-License-Identifier: Apache-2.0

"""Tests the child processes that run tests of third-party suites."""

import pathlib
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable

import cases
from ronda_test import eventually


def _run(*bodies: Callable[[], None], jobs: int = 1, deadline: float = 60) -> list[cases.Result]:
    wanted = [cases.Case("suite", str(i), 2, body) for i, body in enumerate(bodies)]
    results = cases.run(wanted, jobs, deadline, lambda result: None)
    return sorted(results, key=lambda result: result.case.test)


def _unittest(body: Callable[[unittest.TestCase], None]) -> Callable[[], None]:
    case = type("Case", (unittest.TestCase,), {"test": body})
    return lambda: cases.run_test(unittest.TestSuite([case("test")]))


def _meeting(mine: pathlib.Path, other: pathlib.Path) -> Callable[[], None]:
    """The body of a case, which passes if another case runs at the same time."""

    def meet() -> None:
        mine.touch()
        sys.exit(0 if eventually(other.exists, timeout=50) else 1)

    return meet


def _is_gone(pid: int) -> bool:
    """Returns whether a process has ended. A zombie counts as ended."""
    try:
        return " Z " in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


class CasesTest(unittest.TestCase):
    def test_a_case_passes_is_skipped_or_fails(self) -> None:
        results = _run(
            _unittest(lambda case: None),
            _unittest(lambda case: case.skipTest("no GPU")),
            _unittest(lambda case: case.fail("wrong sum")),
            lambda: sys.exit(3),
            jobs=2,
        )
        self.assertEqual([r.outcome for r in results], ["pass", "skip", "fail", "fail"])
        self.assertIn("no GPU", results[1].output)
        self.assertIn("wrong sum", results[2].output)

    def test_a_case_that_runs_no_test_fails(self) -> None:
        self.assertEqual(_run(lambda: cases.run_test(unittest.TestSuite()))[0].outcome, "fail")

    def test_a_late_case_is_killed_with_what_it_started(self) -> None:
        def sleep() -> None:
            child = subprocess.Popen(["sleep", "1000"])
            print("child", child.pid, flush=True)
            child.wait()

        result = _run(sleep, deadline=2)[0]
        self.assertEqual(result.outcome, "fail")
        self.assertIn("suites: killed after 2 s", result.output)
        pid = int(result.output.split()[1])
        self.assertTrue(eventually(lambda: _is_gone(pid)), f"{pid} still runs")

    def test_as_many_cases_run_at_a_time_as_there_are_jobs(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            a, b = pathlib.Path(name, "a"), pathlib.Path(name, "b")
            results = _run(_meeting(a, b), _meeting(b, a), jobs=2)
        self.assertEqual([r.outcome for r in results], ["pass", "pass"])


if __name__ == "__main__":
    unittest.main()
