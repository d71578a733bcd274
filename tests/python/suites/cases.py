# SPDX-License-Identifier: Apache-2.0

"""Runs tests of third-party suites, each in its own child process with a deadline."""

from __future__ import annotations

import dataclasses
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import unittest
from collections.abc import Callable, Sequence

_SKIPPED = "suites: skipped: "


@dataclasses.dataclass(frozen=True)
class Case:
    """A test that runs on a given number of ranks."""

    suite: str
    test: str
    ranks: int
    body: Callable[[], None]  # runs in a child; returns, or ends it with an exit code


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of a case, its duration and its output."""

    case: Case
    outcome: str  # "pass", "skip" or "fail"
    seconds: float
    output: str  # of all its processes


def run_test(test: unittest.TestSuite) -> None:
    """Runs a suite with one test, and then ends the process. Can be the body of a case."""
    result = unittest.TextTestRunner(verbosity=2).run(test)
    if result.skipped:
        print(_SKIPPED + result.skipped[0][1], flush=True)
    sys.exit(0 if result.wasSuccessful() and result.testsRun == 1 else 1)


def run(
    cases: Sequence[Case], jobs: int, deadline: float, report: Callable[[Result], None]
) -> list[Result]:
    """Runs `jobs` cases at a time, each for at most `deadline` seconds. Reports each result."""
    waiting, running, results = list(reversed(cases)), [], []
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(_Child(waiting.pop(), deadline))
        left = min(child.end for child in running) - time.monotonic()
        multiprocessing.connection.wait([child.sentinel for child in running], max(0.0, left))
        for child in [child for child in running if child.has_ended()]:
            running.remove(child)
            results.append(child.result())
            report(results[-1])
    return results


class _Child:
    """A process group that runs a case, with its own folder for temporary files."""

    def __init__(self, case: Case, deadline: float) -> None:
        self._case = case
        self._begin = time.monotonic()
        self.end = self._begin + deadline
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="suites-"))
        # A forked child need not import PyTorch, because the parent has already imported it.
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=self._run)
        self._process.start()
        # The sentinel is one end of a pipe. All processes of the case hold the other end, so it is
        # closed when the last of them ends.
        self.sentinel = self._process.sentinel

    def _run(self) -> None:
        os.setsid()
        output = os.open(self._folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ["TMPDIR"] = tempfile.tempdir = str(self._folder)
        os.chdir(self._folder)
        self._case.body()

    def has_ended(self) -> bool:
        return not self._process.is_alive() or time.monotonic() > self.end

    def result(self) -> Result:
        """Ends the remaining processes of the case."""
        is_late = self._process.is_alive()
        try:
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.join()
        seconds = time.monotonic() - self._begin
        output = (self._folder / "output").read_text(errors="replace")
        if is_late:
            output += f"\nsuites: killed after {seconds:.0f} s\n"
        shutil.rmtree(self._folder, ignore_errors=True)
        code = self._process.exitcode
        outcome = "fail" if code != 0 else "skip" if _SKIPPED in output else "pass"
        return Result(self._case, outcome, seconds, output)
