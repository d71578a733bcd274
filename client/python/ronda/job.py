"""The job that this process is a rank of. Its users, Horovod's API and c10d's for instance, share
one.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from collections.abc import Callable

from ronda import _env
from ronda._in_flight import IN_FLIGHT
from ronda._library import native
from ronda.errors import RondaError

_lock = threading.Lock()
_users: set[str] = set()
_number = 0
_has_failed = False


def init(user: str = "ronda", **options: object) -> None:
    """Joins the job that the options or the environment describe; blocks until every rank has.

    Args:
        user: who needs the job. A second user shares the first one's job, and its options are not
            looked at.
        **options: fields of ronda_options (see ronda.h).

    Raises:
        RondaError: the ranks do not fit together, or some did not come in time.
    """
    with _lock:
        if not native.is_initialized():
            _users.clear()
            _join(lambda: native.init(options))
        _users.add(user)


def _join(join: Callable[[], None]) -> None:
    """Joins a job by a call of the binding. REQUIRES: _lock."""
    global _number
    _env.withdraw()
    join()
    _number += 1
    _env.export()


def shutdown(user: str = "ronda") -> None:
    """Ends the job for `user`; for the process when nobody else uses it. Then it blocks until every
    rank has done so.

    Raises:
        RondaError: the job had failed. It has ended all the same.
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
    """Leaves this epoch of an elastic job, and joins the next one, for all users.

    Args:
        reason: the failure that ends the epoch; None: the change is planned.

    Raises:
        MembershipError: the launcher has no place for this process any more.
        RondaError: the ranks have not met.
    """
    with _lock:
        _join(lambda: native.elastic_reform(reason))
    IN_FLIGHT.forget_ended()


def abort(reason: str) -> None:
    """Fails the job at once, for all of its ranks; see ronda_abort(). Without a job it does
    nothing.
    """
    if native.is_initialized():
        native.abort(reason)


def rejoin(user: str, reason: str, **options: object) -> None:
    """Joins another job for all users. A job that this process is in is left without a wait.

    Args:
        user: who needs the job.
        reason: the error text for the ranks that stay in the former job, which fails.
        **options: as those of init(), with a place in the other job.

    Raises:
        RondaError: the ranks have not met. This process then has no job.
    """
    with _lock:
        _leave(reason)
        _join(lambda: native.init(options))
        _users.add(user)
    IN_FLIGHT.forget_ended()


def leave(reason: str) -> None:
    """Ends the job for this process and all users, without a wait for the other ranks.

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
        with contextlib.suppress(RondaError):  # that of abort(), or of before
            native.shutdown()


def is_initialized(user: str = "ronda") -> bool:
    """Whether `user` has joined the job and not left it."""
    return user in _users and bool(native.is_initialized())


def number() -> int:
    """Which job of this process the last one is, from 1; 0 before the first. It tells what belongs
    to an earlier one.
    """
    return _number


def leave_at_exit() -> None:
    """This rank has failed: it ends without a wait for the others, and they learn at once that it
    has.
    """
    global _has_failed
    _has_failed = True


def _is_ended_by_exception() -> bool:
    # The interpreter sets it when it prints an exception that nothing has caught; at a prompt it
    # then goes on.
    return hasattr(sys, "last_type") and not hasattr(sys, "ps1")


def _end_at_exit() -> None:
    """Ends the job of a program that has not done so itself: without shutdown() this rank would
    count as failed.

    One that has failed does so: in shutdown() it would wait for ranks that wait for it.
    """
    with _lock:
        _users.clear()
        if native.is_initialized() and not _has_failed and not _is_ended_by_exception():
            try:
                native.shutdown()
            except RuntimeError:
                pass  # the job's failure was raised where the program met it


atexit.register(_end_at_exit)
