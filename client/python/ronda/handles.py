# SPDX-License-Identifier: Apache-2.0

"""Operations in flight."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NoReturn

from ronda import _buffers
from ronda._in_flight import IN_FLIGHT, Span
from ronda._library import native
from ronda.errors import RondaError


class SoleOwner:
    """An object that gives an operation back. A copy of the object would give the operation back a
    second time.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Called by copy and pickle.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "the handle of an operation cannot be copied or pickled: wait with synchronize(), and"
            " copy the result"
        )


class OwnedHandle(SoleOwner):
    """The binding's handle, which is given back with the last reference to this object. The
    operation keeps its memory until it has ended.
    """

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id

    def __del__(self, release: Callable[[int], None] = native.release) -> None:
        release(self.id)  # bound, because `native` is gone when the interpreter ends


class Handle:
    """An operation in flight, and later its result.

    If the last reference to it goes, the operation still runs, but its result and its error are
    lost.

    Thread-compatible.
    """

    __slots__ = ("_owned", "_take", "_result", "_is_done")

    def __init__(self, id: int, take: Callable[[OwnedHandle], Any]) -> None:
        """
        Args:
            id: the binding's handle.
            take: makes the result of the completed operation. A result in Ronda's memory keeps the
                handle alive.
        """
        self._owned = OwnedHandle(id)
        self._take = take
        self._result: Any = None
        self._is_done = False

    def poll(self) -> bool:
        """Whether the operation has completed, with success or failure. Never waits."""
        return native.poll(self._owned.id)

    def wait(self) -> Any:
        """Waits for the operation, and returns its result. Later calls return the same result.

        Raises:
            RondaError: the operation's error, at each call.
        """
        if not self._is_done:
            native.synchronize(self._owned.id)
            IN_FLIGHT.forget(self)
            self._result = self._take(self._owned)
            self._is_done = True
        return self._result

    def settle(self) -> None:
        """Waits until the operation has ended, and leaves its error to wait()."""
        with contextlib.suppress(RondaError):
            native.synchronize(self._owned.id)

    def found_inf(self) -> bool:
        """Whether the result of a reduction with detect_overflow, on any rank, has an element
        that is infinite or not a number. The answer is the same on every rank. Waits.
        """
        self.wait()
        return native.found_inf(self._owned.id)


def start(
    submit: Callable[..., int],
    arguments: tuple[Any, ...],
    spans: list[Span],
    take: Callable[[OwnedHandle], Any],
) -> Handle:
    """Submits an operation, after earlier operations that use its memory.

    Args:
        submit: the binding's function.
        arguments: for `submit`.
        spans: the memory that the operation uses.
        take: see Handle.
    """
    IN_FLIGHT.wait_for_users_of(spans)
    handle = Handle(submit(*arguments), take)
    IN_FLIGHT.add(handle, spans)
    return handle


def rows_of(
    handle: OwnedHandle, dtype: int, row_shape: tuple[int, ...], out: Any
) -> tuple[Any, list[int]]:
    """The result of an operation whose rows only Ronda counts.

    Returns:
        `out`, or its first rows if the result is shorter; without `out` a NumPy array in Ronda's
        memory. Also the rows of each member, if the operation reports them.
    """
    address, rows, by_member = native.output(handle.id)
    if out is None:
        return _buffers.array_at(address, (rows, *row_shape), dtype, handle), by_member
    return (out if len(out) == rows else out[:rows]), by_member


def poll(handle: Handle) -> bool:
    """Whether the operation has completed, with success or failure. Never waits."""
    return handle.poll()


def synchronize(handle: Handle) -> Any:
    """Waits for the operation, and returns its result.

    Raises:
        RondaError: the operation's error.
    """
    return handle.wait()
