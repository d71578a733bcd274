# SPDX-License-Identifier: Apache-2.0

"""Runs Horovod's own tests of horovod.torch on Ronda, each in a separate job.

After a process has requested the cases, importing `horovod` gives `ronda` in that process. The
ranks of a job are forked, so that no test waits for an import of PyTorch. The ranks find each other
through the variables that rondarun and horovodrun would set.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import sys
import threading
import types
import unittest
import uuid
from collections.abc import Iterator
from typing import Any

import stand_ins
from cases import Case, run_test

_MODULES = ("test_torch", "test_adasum_pytorch")
_GRACE_S = 10.0  # in which the other ranks can report on the end of a failed rank


def cases(folder: pathlib.Path, ranks: int) -> list[Case]:
    """Returns the tests in a checkout of Horovod's repository.

    Raises:
        ModuleNotFoundError: the folder has no such tests.
    """
    stand_ins.install("pytest", "mock", "packaging")
    _map_horovod()
    sys.path.insert(0, str(folder / "test" / "parallel"))
    modules = [importlib.import_module(name) for name in _MODULES]
    tests = [
        test for m in modules for test in _tests(unittest.defaultTestLoader.loadTestsFromModule(m))
    ]
    return [
        Case("horovod", test.id(), ranks, functools.partial(_run_job, test, ranks))
        for test in tests
    ]


def _tests(suite: unittest.TestSuite | unittest.TestCase) -> Iterator[unittest.TestCase]:
    if isinstance(suite, unittest.TestCase):
        yield suite
        return
    for part in suite:
        yield from _tests(part)


def _map_horovod() -> None:
    import ronda.torch  # noqa: F401  loads what is mapped

    for name, module in list(sys.modules.items()):
        if name == "ronda" or name.startswith("ronda.torch"):
            sys.modules["horovod" + name.removeprefix("ronda")] = module
    threads = types.ModuleType("horovod.runner.util.threads")
    threads.in_thread = _in_thread  # type: ignore[attr-defined]
    for name in ("horovod.runner", "horovod.runner.util"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules[threads.__name__] = threads


def _in_thread(target: Any, args: tuple[Any, ...] = (), daemon: bool = True) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, daemon=daemon)
    thread.start()
    return thread


def _run_job(test: unittest.TestCase, ranks: int) -> None:
    """Runs a test on the ranks of a new job. Exits with 1 if the test fails on any rank."""
    job = f"suites-{uuid.uuid4().hex}"
    context = multiprocessing.get_context("fork")
    left = [
        context.Process(target=_run_rank, args=(test, rank, ranks, job)) for rank in range(ranks)
    ]
    for process in left:
        process.start()
    has_failed = False
    while left:
        grace = _GRACE_S if has_failed else None
        ended = multiprocessing.connection.wait([process.sentinel for process in left], grace)
        for process in left:
            if process.sentinel in ended:
                process.join()
                has_failed = has_failed or process.exitcode != 0
            elif not ended:
                process.kill()
        left = [process for process in left if process.exitcode is None]
    sys.exit(1 if has_failed else 0)


def _run_rank(test: unittest.TestCase, rank: int, ranks: int, job: str) -> None:
    place = {"RANK": rank, "SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_SIZE": ranks}
    for name, value in place.items():
        os.environ[f"RONDA_{name}"] = os.environ[f"HOROVOD_{name}"] = str(value)
    os.environ["RONDA_JOB_ID"] = job
    os.environ.setdefault("RONDA_STALL_DEADLINE", "30s")  # for ranks that fail separately
    run_test(unittest.TestSuite([test]))
