# SPDX-License-Identifier: Apache-2.0

"""Errors that Ronda raises: one class for each error status of the C ABI.

Each class also derives from an error that a Python program, or a program written for Horovod,
expects. Wrong arguments are ValueErrors, and a deadline is a TimeoutError. All errors are
RuntimeErrors, as Horovod's HorovodInternalError is.
"""

from __future__ import annotations


class RondaError(RuntimeError):
    """An error of Ronda. Its text names the rank, the host and the tensor, and what to do."""


class InvalidArgumentError(RondaError, ValueError):
    """An argument is wrong; nothing was submitted."""


class NotInitializedError(RondaError, ValueError):
    """init() has not been called, or shutdown() has."""


class AlreadyInitializedError(RondaError):
    """The process has already joined a job."""


class DuplicateNameError(RondaError, ValueError):
    """A tensor of this name is in flight."""


class MismatchError(RondaError):
    """Ranks disagree about a tensor, or a rank that it needs has joined. The job goes on."""


class DeadlineError(RondaError, TimeoutError):
    """A rank did not submit a tensor in time."""


class PeerFailedError(RondaError):
    """A rank died, or has left the job."""


class OutOfMemoryError(RondaError, MemoryError):
    """Memory or shared memory is exhausted."""


class InternalError(RondaError):
    """A bug in Ronda, or a system call that should not fail."""


class MembershipError(RondaError):
    """This process has no place in its elastic job any more, or no rank has its state."""


# By status, from RONDA_ERROR_INVALID_ARGUMENT (1) on.
BY_STATUS: tuple[type[RondaError], ...] = (
    InvalidArgumentError,
    NotInitializedError,
    AlreadyInitializedError,
    DuplicateNameError,
    MismatchError,
    DeadlineError,
    PeerFailedError,
    OutOfMemoryError,
    InternalError,
    MembershipError,
)
