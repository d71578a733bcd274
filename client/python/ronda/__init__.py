# SPDX-License-Identifier: Apache-2.0

"""Collective communication for synchronous data-parallel training.

    import numpy as np
    import ronda

    ronda.init()  # joins the job that rondarun started; alone, a job of one rank
    mean = ronda.allreduce(np.arange(3.0) + ronda.rank())
    ronda.shutdown()

Operations accept NumPy arrays and every object with the buffer protocol, DLPack or the CUDA array
interface (reductions.py documents the arguments). For PyTorch tensors, use ronda.torch. Importing
this package does not import any other library.
"""

from __future__ import annotations

from collections.abc import Sequence

from ronda import exchanges, reductions
from ronda import job as _job
from ronda import process_sets as _process_sets
from ronda._library import native as _binding
from ronda.errors import (
    AlreadyInitializedError,
    DeadlineError,
    DuplicateNameError,
    InternalError,
    InvalidArgumentError,
    MembershipError,
    MismatchError,
    NotInitializedError,
    OutOfMemoryError,
    PeerFailedError,
    RondaError,
)
from ronda.exchanges import *  # noqa: F403
from ronda.handles import Handle, poll, synchronize
from ronda.objects import allgather_object, broadcast_object
from ronda.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from ronda.reductions import *  # noqa: F403
from ronda.run import run
from ronda.types import DType, ReduceOp, Wire

__version__ = _binding.version()


def init(process_sets: Sequence[ProcessSet | Sequence[int]] = (), **options: object) -> None:
    """Joins the job that the options or the environment describe, and blocks until every rank has
    joined. If this process has already joined a job, init() shares that job: it adds the process
    sets, and ignores the options.

    Args:
        process_sets: the sets to create at the start, which must be the same on every rank (see
            add_process_set()).
        **options: fields of ronda_options in ronda.h, such as rank, size, master_address,
            cycle_time_ms.

    Raises:
        RondaError: the ranks have incompatible settings, or some did not join in time.
    """
    _process_sets.init_job("ronda", process_sets, **options)


def shutdown() -> None:
    """Completes the operations in flight, waits until every rank has called shutdown(), and ends
    the job for this process.

    Raises:
        RondaError: the job has failed. shutdown() has still ended it for this process.
    """
    _job.shutdown("ronda")


def is_initialized() -> bool:
    """Whether this process has called init(), and not yet shutdown()."""
    return _job.is_initialized("ronda")


def rank() -> int:
    """The rank of this process in the job, from 0.

    Raises:
        NotInitializedError: init() has not been called, or shutdown() has been called. size(), the
            local and cross functions, and should_stop() also raise this error.
    """
    return _of_job("rank")


def size() -> int:
    """The number of ranks."""
    return _of_job("size")


def local_rank() -> int:
    """This process's number among the ranks on its host, from 0."""
    return _of_job("local_rank")


def local_size() -> int:
    """The number of ranks on this host."""
    return _of_job("local_size")


def cross_rank() -> int:
    """This process's number, from 0, among the ranks with the same local rank on all hosts."""
    return _of_job("cross_rank")


def cross_size() -> int:
    """The number of hosts that have a rank with this rank's local rank."""
    return _of_job("cross_size")


def should_stop() -> bool:
    """Returns whether SIGTERM has asked any rank to end. All ranks get the same answer, and must
    call this function the same number of times.
    """
    return _binding.should_stop()


def _of_job(number: str) -> int:
    value: int = getattr(_binding, number)()
    if value < 0:
        has_ended = _job.number() > 0
        raise NotInitializedError(
            f"{number}(): Ronda has been shut down: call ronda.init() to join a job again"
            if has_ended
            else f"{number}(): call ronda.init() first"
        )
    return value


__all__ = [
    *exchanges.__all__,
    *reductions.__all__,
    "AlreadyInitializedError",
    "DType",
    "DeadlineError",
    "DuplicateNameError",
    "Handle",
    "InternalError",
    "InvalidArgumentError",
    "MembershipError",
    "MismatchError",
    "NotInitializedError",
    "OutOfMemoryError",
    "PeerFailedError",
    "ProcessSet",
    "ReduceOp",
    "RondaError",
    "Wire",
    "__version__",
    "add_process_set",
    "allgather_object",
    "broadcast_object",
    "cross_rank",
    "cross_size",
    "global_process_set",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "remove_process_set",
    "run",
    "should_stop",
    "shutdown",
    "size",
    "synchronize",
]
