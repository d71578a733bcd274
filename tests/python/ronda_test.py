# SPDX-License-Identifier: Apache-2.0

"""Runs the test cases of modules, as one rank of a job or without a job. Also provides helpers for
tests.

    ronda_test.py MODULE.py...

Rank 0 writes its results to $XML_OUTPUT_FILE, in GoogleTest's format, for tests/run_tests.sh to
count. A rank exits at its first failure. The other ranks then get an error that names it, and do
not wait for operations that it no longer submits.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any
from xml.sax import saxutils

PACKAGE = pathlib.Path(os.environ["PYTHONPATH"].split(os.pathsep)[0]) / "ronda"
RONDARUN = PACKAGE / "lib" / "rondarun"

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


# -- For tests that start their own jobs --


@dataclasses.dataclass
class Finished:
    """The exit code and the output of a program that has ended."""

    code: int  # negative: the number of the signal that ended it
    out: str
    err: str
    seconds: float


def program(source: str) -> str:
    """Writes an indented program to a file, and returns the file's path. The file is removed after
    the test.
    """
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
    path = folder / "program.py"
    path.write_text(textwrap.dedent(source))
    return str(path)


def start(
    source: str, ranks: int = 0, options: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Starts a Python program from its source. If `ranks` is 0, the program runs without rondarun.
    Otherwise rondarun starts the program on `ranks` ranks, with the `options`.

    Standard output and standard error are pipes. The environment contains `env`, but no rank of a
    job.
    """
    launch = [str(RONDARUN), "-np", str(ranks), *options] if ranks else []
    return subprocess.Popen(
        [*launch, sys.executable, program(source)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), **(env or {})},
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], timeout: float = 240) -> Finished:
    """Waits for a program. After `timeout` seconds, kills its process group and fails."""
    begin = time.monotonic()
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"the program has not ended in {timeout} s:\n{out}\n{err}") from None
    return Finished(process.returncode, out, err, time.monotonic() - begin)


def run(
    source: str,
    ranks: int = 0,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    timeout: float = 240,
) -> Finished:
    """`start` and `finish`."""
    return finish(start(source, ranks, options, env), timeout)


def environment() -> dict[str, str]:
    """Returns this process's environment without the variables that give it a rank.

    Also removes the functions that Bazel's shell exports, because rondarun under mpirun does not
    pass on functions.
    """
    place = (
        "BASH_FUNC_",
        "RONDA_RANK",
        "RONDA_SIZE",
        "RONDA_LOCAL_",
        "RONDA_CROSS_",
        "RONDA_JOB_",
        "RONDA_MASTER_",
        "HOROVOD_",
    )
    others = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    others += ("MASTER_ADDR", "MASTER_PORT")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(place) and name not in others
    }


UNDER_ASAN = "libasan" in os.environ.get("LD_PRELOAD", "")
# With GCC 12's AddressSanitizer, a child may wait forever for a lock of the sanitizer's allocator,
# because another thread of the parent held the lock at the fork.
forks = unittest.skipIf(UNDER_ASAN, "AddressSanitizer does not survive fork() beside threads")


def resident_bytes() -> int:
    """Returns this process's resident memory; 0 under AddressSanitizer, which keeps freed
    memory.
    """
    if UNDER_ASAN:
        return 0
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def eventually(condition: Callable[[], bool], timeout: float = 10) -> bool:
    """Returns whether the condition becomes true within `timeout` seconds. Checks every 10 ms."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


# -- The runner --


@dataclasses.dataclass
class _Case:
    name: str
    failure: str | None = None
    skipped: str | None = None
    seconds: float = 0.0


class _Result(unittest.TextTestResult):
    """Records each test case for the report."""

    cases: list[_Case]

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._began = time.monotonic()
        self.cases.append(_Case(test.id()))

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self.cases[-1].seconds = time.monotonic() - self._began

    def _case(self, test: unittest.TestCase) -> _Case:
        # If a class or module fixture fails, unittest reports a test that it has not started.
        if not self.cases or self.cases[-1].name != test.id():
            self.cases.append(_Case(test.id()))
        return self.cases[-1]

    def addError(self, test: unittest.TestCase, err: _ExcInfo) -> None:
        super().addError(test, err)
        self._case(test).failure = self.errors[-1][1]

    def addFailure(self, test: unittest.TestCase, err: _ExcInfo) -> None:
        super().addFailure(test, err)
        self._case(test).failure = self.failures[-1][1]

    def addSubTest(
        self, test: unittest.TestCase, subtest: unittest.TestCase, err: _ExcInfo | None
    ) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.cases[-1].failure = self._exc_info_to_string(err, test)  # type: ignore[attr-defined]

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._case(test).skipped = reason

    def addExpectedFailure(self, test: unittest.TestCase, err: _ExcInfo) -> None:
        super().addExpectedFailure(test, err)

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        super().addUnexpectedSuccess(test)
        self._case(test).failure = "unexpected success"


def _report(cases: Sequence[_Case]) -> str:
    """Returns the cases in GoogleTest's format. Each <testcase> is one line, because
    tests/run_tests.sh counts lines.
    """
    failures = sum(case.failure is not None for case in cases)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites tests="{len(cases)}" failures="{failures}" name="AllTests">',
        f'<testsuite name="python" tests="{len(cases)}" failures="{failures}">',
    ]
    for case in cases:
        result = "skipped" if case.skipped is not None else "completed"
        name = saxutils.quoteattr(case.name)
        head = f'<testcase name={name} result="{result}" time="{case.seconds:.3f}"'
        message = case.failure if case.failure is not None else case.skipped
        kind = "failure" if case.failure is not None else "skipped"
        text = (
            "/>" if message is None else f"><{kind}>{saxutils.escape(message)}</{kind}></testcase>"
        )
        lines.append(head + text)
    return "\n".join([*lines, "</testsuite>", "</testsuites>", ""])


def _write_report(cases: Sequence[_Case]) -> None:
    path = os.environ.get("XML_OUTPUT_FILE")
    if path and os.environ.get("RONDA_RANK", "0") == "0":
        pathlib.Path(path).write_text(_report(cases))


def _load(paths: Sequence[str]) -> unittest.TestSuite:
    suite = unittest.TestSuite()
    for path in map(pathlib.Path, paths):
        if str(path.parent.absolute()) not in sys.path:
            sys.path.insert(0, str(path.parent.absolute()))
        suite.addTest(
            unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(path.stem))
        )
    return suite


def _use_device(device: str) -> None:
    """Makes this device the default for tests that name no device for their tensors."""
    if device == "cpu":
        return
    torch = importlib.import_module("torch")
    torch.set_default_device(device)

    class Generator(torch.Generator):
        def __new__(cls, of_device: object = device) -> Any:
            return super().__new__(cls, of_device)

    torch.Generator = Generator


def main(paths: Sequence[str]) -> int:
    """Runs the tests and returns the exit code."""
    is_rank = "RONDA_RANK" in os.environ
    _use_device(os.environ.get("TEST_TORCH_DEVICE", "cpu"))
    cases: list[_Case] = []
    result_class = type("_ResultOfRun", (_Result,), {"cases": cases})
    ends_at_once = is_rank and "TEST_KEEP_GOING" not in os.environ
    runner = unittest.TextTestRunner(verbosity=2, failfast=ends_at_once, resultclass=result_class)
    result = runner.run(_load(paths))
    _write_report(cases)
    if not cases:
        print("no test cases", file=sys.stderr)
    return 0 if cases and result.wasSuccessful() else 1


if __name__ == "__main__":
    # Makes test modules that import ronda_test get this module, and not a second copy of it.
    sys.modules["ronda_test"] = sys.modules["__main__"]
    sys.exit(main(sys.argv[1:]))
