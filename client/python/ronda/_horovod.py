# SPDX-License-Identifier: Apache-2.0

"""The part of Horovod's API that all frameworks share: init, ranks, the timeline, and the features
of the installation.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from ronda import errors, job, process_sets
from ronda._library import native
from ronda.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from ronda.types import ReduceOp

__all__ = [
    "Adasum",
    "Average",
    "HorovodInternalError",
    "Max",
    "Min",
    "Product",
    "ProcessSet",
    "Sum",
    "add_process_set",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]

_USER = "horovod"

Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Adasum = ReduceOp.ADASUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT

# Horovod's class for a failed operation. Every error of Ronda is an instance of
# HorovodInternalError.
HorovodInternalError = errors.RondaError

_shutdown_hooks: list[Callable[[], None]] = []


def init(
    comm: Sequence[int] | None = None, process_sets: Sequence[ProcessSet] | str | None = None
) -> None:
    """Joins the job that the environment describes, and blocks until every rank has joined. If this
    process has already joined a job, init() shares that job, and adds the process sets.

    Args:
        comm: None, or the ranks of the job in order. For a subset of the ranks, use process sets:
            Ronda has no communicators.
        process_sets: sets that exist from the start. "dynamic" is accepted: sets can always be
            added later.

    Raises:
        ValueError: `comm` does not list all ranks of the job in order.
        HorovodInternalError: the ranks have incompatible settings, or some did not join in time.
    """
    sets = [] if process_sets is None or isinstance(process_sets, str) else list(process_sets)
    _init_job(sets)
    if comm is not None and list(comm) not in ([], list(range(size()))):
        raise ValueError(
            f"comm is {comm}: ranks are those of the launcher; for a part of them, use a ProcessSet"
        )


def _init_job(sets: list[ProcessSet]) -> None:
    process_sets.init_job(_USER, sets)


def shutdown() -> None:
    """Leaves the job, and blocks until every rank has left the job."""
    for forget in _shutdown_hooks:
        forget()
    job.shutdown(_USER)


def reform(reason: str | None) -> None:
    """Leaves this epoch of an elastic job, and joins the next epoch; see job.reform()."""
    for forget in _shutdown_hooks:
        forget()
    job.reform(reason)


def at_shutdown(forget: Callable[[], None]) -> None:
    """Registers a function that shutdown() and reform() call before they leave the job."""
    _shutdown_hooks.append(forget)


def is_initialized() -> bool:
    """Whether this process has called init(), and not yet shutdown()."""
    return job.is_initialized(_USER)


def _checked(value: int) -> int:
    if value < 0:
        has_ended = job.number() > 0
        raise errors.NotInitializedError(
            "Ronda has been shut down: call init() to join a job again"
            if has_ended
            else "Ronda has not been initialized: call init() first"
        )
    return value


def size() -> int:
    """The number of ranks. Before init(), size(), rank(), the local and cross functions, and
    is_homogeneous() raise a ValueError.
    """
    return _checked(native.size())


def local_size() -> int:
    """The number of ranks on this host."""
    return _checked(native.local_size())


def cross_size() -> int:
    """The number of hosts that have a rank with this rank's local rank."""
    return _checked(native.cross_size())


def rank() -> int:
    """The rank of this process in the job."""
    return _checked(native.rank())


def local_rank() -> int:
    """This process's number on its host."""
    return _checked(native.local_rank())


def cross_rank() -> int:
    """The index of this host among the hosts that have a rank with this rank's local rank."""
    return _checked(native.cross_rank())


def is_homogeneous() -> bool:
    """Whether every host has the same number of ranks, as far as this rank knows."""
    return local_size() * cross_size() == size()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Begins a timeline with one file per rank: `trace.json` becomes `trace.rank0.json` and so on.

    Args:
        file_path: an existing file is replaced.
        mark_cycles: not used, because Ronda has no cycles of fixed length.

    Raises:
        ValueError: the file cannot be created, a timeline is already being written, or the process
            has no job.
    """
    del mark_cycles
    native.start_timeline(file_path)


def stop_timeline() -> None:
    """Stops the timeline, if one is being written.

    Raises:
        ValueError: the process has no job.
    """
    rank()
    native.stop_timeline()


def _has_plugin(variable: str, file: str) -> bool:
    """Whether the plugin exists: at the path in the environment variable if it is set, and
    otherwise in the package.
    """
    named = os.environ.get(variable)
    place = Path(named) if named else Path(__file__).parent / "lib" / file
    return place.exists()


def mpi_built() -> bool:
    """Whether Ronda's plugin for MPI is installed."""
    return _has_plugin("RONDA_MPI_PLUGIN", "libronda_mpi.so")


def mpi_enabled() -> bool:
    """Whether RONDA_MPI=1 is set, which makes the job use MPI even if all its ranks are on one
    host.
    """
    return os.environ.get("RONDA_MPI") == "1"


def mpi_threads_supported() -> bool:
    """Returns True, because Ronda requires an MPI that supports threads.

    Raises:
        ValueError: MPI is not enabled.
    """
    if not mpi_enabled():
        raise ValueError("MPI is not enabled in this job: set RONDA_MPI=1, or use mpirun")
    return True


def gloo_built() -> bool:
    """Returns True. Ronda has no Gloo, but its shared memory and TCP also work without MPI."""
    return True


def gloo_enabled() -> bool:
    """Whether the job can run without MPI."""
    return not mpi_enabled()


def cuda_built() -> bool:
    """Whether Ronda's plugin for NVIDIA's GPUs is installed."""
    return _has_plugin("RONDA_CUDA_PLUGIN", "libronda_cuda.so")


def ddl_built() -> bool:
    """Returns False, because IBM's DDL is not one of Ronda's backends."""
    return False


def ccl_built() -> bool:
    """Returns False, because oneCCL is not one of Ronda's backends."""
    return False


def rocm_built() -> bool:
    """Returns False, because Ronda does not support AMD's GPUs."""
    return False


def reduce_op(op: ReduceOp | None, average: bool | None) -> ReduceOp:
    """Returns the operation that the arguments `op` and `average` select; Average if both are None.

    Raises:
        ValueError: both arguments are given, or `op` is not an operation.
    """
    if average is not None:
        if op is not None:
            raise ValueError("op and average are both given: leave average out")
        warnings.warn("average is deprecated: use op", DeprecationWarning, stacklevel=4)
        return Average if average else Sum
    return Average if op is None else ReduceOp(op)
