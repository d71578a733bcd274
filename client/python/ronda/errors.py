# SPDX-License-Identifier: Apache-2.0

"""Errors that Ronda raises, with one class for each error status of the C ABI.

Each class also derives from the error that Python or Horovod raises in the same case. For example,
InvalidArgumentError is a ValueError, and DeadlineError is a TimeoutError. All errors are
RuntimeErrors, as Horovod's HorovodInternalError is.
"""

from __future__ import annotations


class RondaError(RuntimeError):
    """An error of Ronda. The error text says what to do, and names the rank, the host and the
    tensor that the error concerns, if any.
    """


class InvalidArgumentError(RondaError, ValueError):
    """An argument is wrong. Ronda has submitted no operation."""


class NotInitializedError(RondaError, ValueError):
    """init() has not been called, or shutdown() has already been called."""


class AlreadyInitializedError(RondaError):
    """The process has already joined a job."""


class DuplicateNameError(RondaError, ValueError):
    """A tensor with the same name is already in flight."""


class MismatchError(RondaError):
    """Ranks disagree about a tensor, or an operation needs a rank that has called join(). The job
    continues.
    """


class DeadlineError(RondaError, TimeoutError):
    """A rank did not submit a tensor in time."""


class PeerFailedError(RondaError):
    """A rank died, or has left the job."""


class OutOfMemoryError(RondaError, MemoryError):
    """Memory or shared memory is exhausted."""


class InternalError(RondaError):
    """A bug in Ronda, or a system call that should not fail."""


class MembershipError(RondaError):
    """This process is no longer a member of its elastic job, or no rank has the job's state."""


# The classes in the order of the status codes; the first is for RONDA_ERROR_INVALID_ARGUMENT (1).
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
