# SPDX-License-Identifier: Apache-2.0

"""The part of Horovod's elastic API that all frameworks share: states of Python objects, and run().

With an elastic launcher, `rondarun --min-np`, ranks may die, join and leave. The remaining ranks
return to the newest commit that any rank has. New ranks receive this commit, and then the training
function runs again. Without an elastic launcher a job has a fixed number of ranks. The state of
such a job is synchronized at the start, and can be committed and restored. After an error that the
job survives, all ranks return to the last commit and try again.
"""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ronda import _carried_errors, errors, exchanges
from ronda._horovod import init, rank, reform, shutdown
from ronda._library import native
from ronda.objects import broadcast_object

_REFORM, _LEAVE = 1, 2  # values of ronda_elastic_change


def is_elastic() -> bool:
    """Whether an elastic launcher has started this process."""
    return "RONDA_MEMBERSHIP_FD" in os.environ


class HostsUpdatedInterrupt(RuntimeError):
    """Raised to restart the training function with its current state, because the members of an
    elastic job are changing, or because the program requests a restart.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the hosts have changed")
        self.skip_sync = skip_sync


class State:
    """Base class of states."""

    def __init__(
        self,
        bcast_object: Callable[..., Any] = broadcast_object,
        get_rank: Callable[[], int] = rank,
    ) -> None:
        """
        Args:
            bcast_object: copies rank 0's object to all ranks.
            get_rank: returns this rank.
        """
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._reset_callbacks: list[Callable[[], object]] = []
        self._source = 0

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Registers functions to call after the ranks have rejoined the job."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called after the ranks have rejoined the job."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Saves the current state in memory, for a later restore()."""
        native.elastic_begin_update()
        self.save()
        native.elastic_end_update()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """In an elastic job, checks whether the members are changing. All ranks get the same
        answer, and must call this function the same number of times.

        Raises:
            HostsUpdatedInterrupt: the members are changing.
            SystemExit: this rank was asked to leave, and has left.
        """
        change = native.elastic_poll() if is_elastic() else 0
        if change == _REFORM:
            raise HostsUpdatedInterrupt
        if change == _LEAVE:
            shutdown()
            raise SystemExit(0)

    def sync_with_newest(self) -> None:
        """Copies the newest commit that any rank has to all ranks."""
        _, self._source, _, is_behind, _ = native.elastic_sync(-1)
        if is_behind:
            native.elastic_begin_update()
        self.sync()
        if is_behind:
            native.elastic_end_update()

    def _root(self) -> tuple[int, ...]:
        # A program's own bcast_object may have no root argument, and always broadcast from rank 0.
        return (self._source,) if self._source else ()

    def _broadcast(self, value: Any) -> Any:
        return self._bcast_object(value, *self._root())

    def save(self) -> None:
        """Saves the current state."""
        raise NotImplementedError

    def restore(self) -> None:
        """Returns to the last saved state."""
        raise NotImplementedError

    def sync(self) -> None:
        """Copies rank 0's state to all ranks."""
        raise NotImplementedError

    def reset(self) -> None:
        """Called after the ranks have rejoined the job, before sync()."""


class ObjectState(State):
    """A state whose attributes are Python objects.

    save() and restore() copy the attributes, with all objects that they contain. So changes in
    place, such as state.losses.append(loss), last only if they are committed.
    """

    def __init__(
        self,
        bcast_object: Callable[..., Any] = broadcast_object,
        get_rank: Callable[[], int] = rank,
        **kwargs: Any,
    ) -> None:
        """
        Args:
            bcast_object: copies rank 0's object to all ranks.
            get_rank: returns this rank.
            **kwargs: names and initial values of the attributes.

        Raises:
            InvalidArgumentError: an attribute cannot be copied.
        """
        super().__init__(bcast_object, get_rank)
        self._saved_state = self._copies_of(kwargs)
        self._set_attributes(kwargs)

    def save(self) -> None:
        """Copies the attributes' current values.

        Raises:
            InvalidArgumentError: an attribute cannot be copied.
        """
        self._saved_state = self._copies_of(self._attributes())

    def restore(self) -> None:
        """Sets the attributes to copies of their last saved values."""
        self._set_attributes(self._copies_of(self._saved_state))

    def sync(self) -> None:
        """Copies the current attributes of rank 0, or of the rank with the newest commit, to all
        ranks, and saves the state.
        """
        if self._saved_state:
            self._set_attributes(self._broadcast(self._attributes()))
        self.save()

    def _attributes(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._saved_state}

    def _set_attributes(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def _shared(self) -> Iterable[Any]:
        """Returns objects that this state saves in another way. Copies of attributes refer to these
        objects themselves: the copy of a learning rate schedule refers to the program's optimizer.
        """
        return ()

    def _copies_of(self, values: dict[str, Any]) -> dict[str, Any]:
        known = {id(each): each for each in self._shared()}
        copies = {}
        for name, value in values.items():
            try:
                copies[name] = self._copy(value, known)
            except Exception as error:
                raise errors.InvalidArgumentError(
                    f"{type(self).__name__}: the attribute {name} cannot be copied ({error}): keep"
                    " it outside of the state, or commit a part of it that can be copied"
                ) from error
        return copies

    def _copy(self, value: Any, known: dict[int, Any]) -> Any:
        """Returns a deep copy; `known` is the memo of copy.deepcopy()."""
        return copy.deepcopy(value, known)


_Result = TypeVar("_Result")

# A job of fixed size cannot continue after these errors, because a rank may be missing.
_FATAL = (errors.PeerFailedError, errors.InvalidArgumentError, errors.OutOfMemoryError)

# The remaining ranks of an elastic job can continue after these errors. Ronda itself raises only
# subclasses of RondaError; a plain RondaError was raised by the program, under the name
# HorovodInternalError.
_RECOVERABLE = (errors.PeerFailedError, errors.DeadlineError)


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """Decorates a training function whose first argument is a State.

    The state is synchronized before the function runs. If the function raises HorovodInternalError,
    the state returns to its last commit, the ranks rejoin the job, and the function runs again. All
    of this also happens if a reset callback raises HorovodInternalError. In an elastic job the
    function also runs again when a rank has died, or when the members change. A rank that SIGTERM
    asks to leave raises SystemExit(0) at its next commit. If a job that is not elastic loses a
    rank, the decorated function raises the error, and the user must restart the job from a
    checkpoint.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> _Result:
        meet = _reform if is_elastic() else _rejoin
        is_first = needs_sync = True
        while True:
            reason = None
            try:
                if not is_first:
                    state.on_reset()
                if is_elastic():  # new ranks always need the state
                    state.sync_with_newest()
                elif needs_sync:
                    state.sync()
                needs_sync = False
                result = func(state, *args, **kwargs)
                if is_elastic():  # no rank goes on alone while others still have to repeat steps
                    exchanges.barrier()
                return result
            except HostsUpdatedInterrupt as interrupt:
                needs_sync = needs_sync or not interrupt.skip_sync
            except Exception as error:
                failure = _carried_errors.original_of(error)
                if failure is None or not _is_recoverable(failure):
                    raise
                state.restore()
                needs_sync = True
                reason = str(failure)
            meet(reason)
            is_first = False

    return wrapper


def _is_recoverable(error: errors.RondaError) -> bool:
    if not is_elastic():
        return not isinstance(error, _FATAL)
    return isinstance(error, _RECOVERABLE) or type(error) is errors.RondaError


def _reform(reason: str | None) -> None:
    while True:
        try:
            reform(reason)
            return
        except _RECOVERABLE as error:
            reason = str(error)


def _rejoin(reason: str | None) -> None:
    del reason
    try:
        shutdown()
    except errors.RondaError:
        pass  # the failure that made the program call this function
    init()
