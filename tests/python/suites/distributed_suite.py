# SPDX-License-Identifier: Apache-2.0

"""Runs torch's own tests of torch.distributed (DistributedTest) with Ronda in place of gloo.

On import, the tests' decorators check whether they know the backend. So the tests are imported with
gloo's name, and Ronda must pass every test that gloo must pass. The processes that the tests start
use Ronda's own name.
"""

from __future__ import annotations

import functools
import inspect
import multiprocessing
import os
import re
import unittest
from typing import Any

import stand_ins
from cases import Case, run_test


def cases(backend: str, ranks: int, *, of_gpus: bool) -> list[Case]:
    """Returns the tests. `of_gpus` selects the GPU tests, which run on CPUs (cpus_for_gpus.py)."""
    tests = _load(ranks)
    suite = "distributed_gpu" if of_gpus else "distributed"
    return [
        Case(suite, name, ranks, functools.partial(_run, backend, name, ranks, of_gpus))
        for name in unittest.defaultTestLoader.getTestCaseNames(tests)
        if not of_gpus or _is_of_gpus(getattr(tests, name))
    ]


@functools.lru_cache
def _load(ranks: int) -> type[unittest.TestCase]:
    stand_ins.install("expecttest")
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(ranks), INIT_METHOD="file://")
    from torch.testing._internal.distributed import distributed_test

    class TestDistributed(
        distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase
    ):
        def setUp(self) -> None:
            super().setUp()
            distributed_test.INIT_METHOD = os.environ["INIT_METHOD"]  # a new file for each test
            # torch itself would spawn the ranks. This suite forks them, so that they need not
            # import PyTorch again.
            self._start_processes(multiprocessing.get_context("fork").Process)

    return TestDistributed


def _is_of_gpus(test: Any) -> bool:
    """Returns whether a test's source, including its decorators, mentions GPUs."""
    return re.search("gpu|cuda|nccl", inspect.getsource(inspect.unwrap(test)), re.I) is not None


def _run(backend: str, name: str, ranks: int, of_gpus: bool) -> None:
    """Runs one test: this process starts the test's ranks, and checks how they end."""
    from torch.testing._internal.distributed import distributed_test

    os.environ["BACKEND"] = backend
    distributed_test.BACKEND = _TakenForGloo(backend)
    if backend == "ronda":
        import ronda.torch.c10d  # noqa: F401  makes the backend known

        _expect_profiles_of(backend, distributed_test)
    if of_gpus:
        import cpus_for_gpus

        cpus_for_gpus.install(ranks)
    run_test(unittest.TestSuite([_load(ranks)(name)]))


class _TakenForGloo(str):
    """A backend name that compares equal to "gloo", so that the tests treat it like gloo."""

    def __eq__(self, other: object) -> bool:
        return other == "gloo" or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def _expect_profiles_of(backend: str, tests: Any) -> None:
    """Makes the tests look for the backend's events in profiles, as they do for gloo's."""
    for group in ("PROFILING", "CUDA_PROFILING", "SEND_RECV_PROFILING"):
        getattr(tests, f"{group}_SUPPORTED_BACKENDS").append(backend)
    original = tests.get_profiling_event

    def events(*args: Any, **kwargs: Any) -> list[Any]:
        found: list[Any] = original(*args, **kwargs)
        for event in found:
            event.is_async = True  # torch does not let Python set this mark, but the tests need it
        return found

    tests.get_profiling_event = events
