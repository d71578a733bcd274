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
    """An object that releases a handle of the binding when it is destroyed. The object cannot be
    copied, because the copy would release the handle a second time.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuses copies and pickling.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "the handle of an operation cannot be copied or pickled: wait with synchronize(), and"
            " copy the result"
        )


class OwnedHandle(SoleOwner):
    """Owns a handle of the binding, and releases it with the last reference to this object. The
    operation's memory stays alive until the operation has ended.
    """

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id

    def __del__(self, release: Callable[[int], None] = native.release) -> None:
        release(self.id)  # bound, because `native` is gone when the interpreter ends


class Handle:
    """An operation in flight, and later its result.

    If the program drops the last reference to the handle, the operation still runs, but its result
    and its error are lost.

    Thread-compatible.
    """

    __slots__ = ("_owned", "_take", "_result", "_is_done")

    def __init__(self, id: int, take: Callable[[OwnedHandle], Any]) -> None:
        """
        Args:
            id: the binding's handle.
            take: a function that returns the result of the completed operation. A result in Ronda's
                memory keeps the OwnedHandle alive.
        """
        self._owned = OwnedHandle(id)
        self._take = take
        self._result: Any = None
        self._is_done = False

    def poll(self) -> bool:
        """Whether the operation has completed, with success or failure. Never waits."""
        return native.poll(self._owned.id)

    def wait(self) -> Any:
        """Waits for the operation, and returns its result. Later calls to wait() return the same
        result.

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
        """Waits until the operation has ended. Does not raise its error; wait() does."""
        with contextlib.suppress(RondaError):
            native.synchronize(self._owned.id)

    def found_inf(self) -> bool:
        """Waits, and returns whether the result of this reduction has an infinity or a NaN on any
        rank. All ranks get the same answer. Always False without detect_overflow.
        """
        self.wait()
        return native.found_inf(self._owned.id)


def start(
    submit: Callable[..., int],
    arguments: tuple[Any, ...],
    spans: list[Span],
    take: Callable[[OwnedHandle], Any],
) -> Handle:
    """Waits for earlier operations that use the same memory, and submits an operation.

    Args:
        submit: the binding's function.
        arguments: the arguments of `submit`.
        spans: the memory that the operation uses.
        take: returns the result; see Handle.
    """
    IN_FLIGHT.wait_for_users_of(spans)
    handle = Handle(submit(*arguments), take)
    IN_FLIGHT.add(handle, spans)
    return handle


def rows_of(
    handle: OwnedHandle, dtype: int, row_shape: tuple[int, ...], out: Any
) -> tuple[Any, list[int]]:
    """Returns the result of an operation for which Ronda determines the number of rows.

    Returns:
        `out`, or its first rows if the result is shorter. Without `out`, a NumPy array in Ronda's
        memory. Also a list with the number of rows from each member, if the operation reports these
        numbers.
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
