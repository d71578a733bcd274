# SPDX-License-Identifier: Apache-2.0

"""The job to which this process belongs as a rank. Several parts of the program, for instance
Horovod's API and c10d, can share this job as its users.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from collections.abc import Callable

from ronda import _env, _last_error
from ronda._in_flight import IN_FLIGHT
from ronda._library import native
from ronda.errors import RondaError

_lock = threading.Lock()
_users: set[str] = set()
_number = 0
_last_place: tuple[int, int] | None = None
_has_failed = False


def init(user: str = "ronda", **options: object) -> None:
    """Joins the job that the options or the environment describe, and blocks until every rank has
    joined.

    Args:
        user: the part of the program that needs the job. If another user has already joined a job,
            this user shares that job, and `options` are ignored.
        **options: fields of ronda_options (see ronda.h).

    Raises:
        RondaError: the ranks' settings contradict each other, or some ranks did not join in time.
    """
    with _lock:
        if not native.is_initialized():
            _users.clear()
            _join(lambda: native.init(options))
        _users.add(user)


def _join(join: Callable[[], None]) -> None:
    """Calls `join`, a function of the binding that joins a job. REQUIRES: _lock."""
    global _number, _last_place
    _env.withdraw()
    join()
    _number += 1
    _last_place = native.rank(), native.size()
    _env.export()


def shutdown(user: str = "ronda") -> None:
    """Ends the job for `user`. When no other user needs the job, ends it for this process, and
    blocks until every rank has ended it.

    Raises:
        RondaError: the job has failed. shutdown() has still ended it for this process.
    """
    with _lock:
        _users.discard(user)
        if _users or not native.is_initialized():
            return
        try:
            native.shutdown()
        finally:
            _env.end()
            IN_FLIGHT.forget_ended()


def reform(reason: str | None) -> None:
    """Leaves this epoch of an elastic job, and joins the next epoch, for all users.

    Args:
        reason: the failure that ends the epoch. None means a planned change.

    Raises:
        MembershipError: the launcher has removed this process from the job.
        RondaError: the ranks have failed to join the next epoch.
    """
    with _lock:
        _join(lambda: native.elastic_reform(reason))
    IN_FLIGHT.forget_ended()


def abort(reason: str) -> None:
    """Fails the job at once, for all of its ranks; see ronda_abort(). Does nothing if this process
    is in no job.
    """
    if native.is_initialized():
        native.abort(reason)


def rejoin(user: str, reason: str, **options: object) -> None:
    """Joins a different job for all users. First leaves the current job, if any, without waiting
    for the other ranks.

    Args:
        user: the part of the program that needs the job.
        reason: the error text for the ranks that stay in the former job, which fails.
        **options: the options of init(), with this process's rank in the other job.

    Raises:
        RondaError: this process could not join the other job, and is now in no job.
    """
    with _lock:
        _leave(reason)
        _join(lambda: native.init(options))
        _users.add(user)
    IN_FLIGHT.forget_ended()


def leave(reason: str) -> None:
    """Ends the job for this process and all users, without waiting for the other ranks.

    Args:
        reason: the error text for the ranks that stay in the job, which fails.
    """
    with _lock:
        _users.clear()
        _leave(reason)
        _env.end()
    IN_FLIGHT.forget_ended()


def _leave(reason: str) -> None:
    """REQUIRES: _lock."""
    if native.is_initialized():
        native.abort(reason)
        with contextlib.suppress(RondaError):  # the error of abort(), or an earlier one
            native.shutdown()


def is_initialized(user: str = "ronda") -> bool:
    """Returns whether `user` has joined the job and has not left it yet."""
    return user in _users and bool(native.is_initialized())


def number() -> int:
    """Returns how many jobs this process has joined so far. This number shows whether an object
    belongs to an earlier job.
    """
    return _number


def last_place() -> tuple[int, int] | None:
    """Returns the rank and the size of the last job that this process has joined, which may have
    ended. Returns None if there was none.
    """
    return _last_place


def leave_at_exit() -> None:
    """Marks this rank as failed. At exit, the rank then does not wait for the other ranks, which
    notice its end at once.
    """
    global _has_failed
    _has_failed = True


def is_ended_by_exception() -> bool:
    """Returns whether the interpreter is exiting because of an uncaught exception."""
    # The interpreter sets sys.last_type when it prints an uncaught exception. An interactive
    # interpreter, which has sys.ps1, continues after an exception.
    return hasattr(sys, "last_type") and not hasattr(sys, "ps1")


def _end_at_exit() -> None:
    """Ends the job at exit if the program has not called shutdown(). The other ranks would treat a
    rank that ends without shutdown() as failed.

    If this rank has failed, does not call shutdown(), which would wait for ranks that wait for this
    rank.
    """
    _last_error.leave()
    with _lock:
        _users.clear()
        if native.is_initialized() and not _has_failed and not is_ended_by_exception():
            try:
                native.shutdown()
            except RuntimeError:
                pass  # the program has already got the job's failure


atexit.register(_end_at_exit)
