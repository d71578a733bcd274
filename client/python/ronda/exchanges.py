# SPDX-License-Identifier: Apache-2.0

"""Exchanges of arrays between ranks, barriers and joins. reductions.py describes the common
arguments and errors.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ronda import _buffers, process_sets
from ronda._buffers import Buffer
from ronda._in_flight import IN_FLIGHT, Span
from ronda._library import native
from ronda._refusals import Told, ToldToPeer
from ronda._results import NO_RESULT, like, returns, start_for_rows, take_rows
from ronda.errors import InvalidArgumentError
from ronda.handles import Handle, OwnedHandle, rows_of, start
from ronda.process_sets import ProcessSet, global_process_set

__all__ = [
    "allgather",
    "allgather_async",
    "alltoall",
    "alltoall_async",
    "barrier",
    "barrier_async",
    "broadcast",
    "broadcast_async",
    "gather",
    "gather_async",
    "join",
    "recv",
    "recv_async",
    "scatter",
    "scatter_async",
    "send",
    "send_async",
]


def broadcast(array: Any, root: int = 0, **options: Any) -> Any:
    """Like broadcast_async(), but waits, and returns root's array."""
    return broadcast_async(array, root, **options).wait()


def broadcast_async(
    array: Any,
    root: int = 0,
    *,
    out: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    deadline_s: float = 0.0,
) -> Handle:
    """Copies root's array to every rank.

    Args:
        array: has the same shape and type on every rank. Only root's content is read.
        out: may be `array`.
    """
    id = process_sets.id_of(process_set)
    with Told(id, name):
        source = _buffers.buffer_of(array, "broadcast: the array")
        result, memory = like("broadcast", source, out)
        is_copied = native.rank() == root and memory.address != source.address
        span = memory.span(native.rank() != root or is_copied)
        stream = _buffers.stream_of("broadcast", source, memory)
        if is_copied:
            if stream is not None:
                raise InvalidArgumentError(
                    "broadcast: on a CUDA device the root's array is its result: pass out=array"
                )
            IN_FLIGHT.wait_for_users_of([source.span(False), span])
            _copy(source, memory)
        arguments = (
            name,
            source.dtype,
            source.shape,
            memory.address,
            memory.keep,
            root,
            id,
            deadline_s,
            stream,
        )
        return start(native.broadcast_async, arguments, [span], returns(result))


def _copy(source: Buffer, target: Buffer) -> None:
    ctypes.memmove(target.address, source.address, source.byte_count)


def allgather(array: Any, **options: Any) -> Any:
    """Like allgather_async(), but waits, and returns the rows of all ranks."""
    return allgather_async(array, **options).wait()


def allgather_async(
    array: Any,
    *,
    out: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    deadline_s: float = 0.0,
) -> Handle:
    """Concatenates the rows of all ranks in rank order. Every rank gets the result.

    Args:
        array: its first dimension may differ between ranks.
        out: must not overlap `array`.
    """
    id = process_sets.id_of(process_set)
    with Told(id, name):
        return start_for_rows("allgather", array, out, name, (id, deadline_s))


def gather(array: Any, root: int = 0, **options: Any) -> Any:
    """Like gather_async(), but waits. Returns the rows of all ranks on `root`, and None on other
    ranks.
    """
    return gather_async(array, root, **options).wait()


def gather_async(
    array: Any,
    root: int = 0,
    *,
    out: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    deadline_s: float = 0.0,
) -> Handle:
    """Like allgather_async(), but only `root` gets the result. The result on other ranks is None.

    Args:
        out: used only on `root`. `out` must not overlap `array`.
    """
    id = process_sets.id_of(process_set)
    with Told(id, name):
        is_root = native.rank() == root
        take = take_rows if is_root else lambda *_: NO_RESULT
        options = (root, id, deadline_s)
        result = out if is_root else None
        return start_for_rows("gather", array, result, name, options, take, has_result=is_root)


def scatter(array: Any, root: int = 0, **options: Any) -> Any:
    """Like scatter_async(), but waits, and returns this rank's rows."""
    return scatter_async(array, root, **options).wait()


def scatter_async(
    array: Any,
    root: int = 0,
    *,
    splits: Sequence[int] | None = None,
    out: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    deadline_s: float = 0.0,
) -> Handle:
    """Distributes the rows of root's array among the ranks.

    Args:
        array: the array of `root`. The other ranks pass an array with the same type and dimensions.
            Ronda ignores the content and the first dimension of that array.
        splits: on `root`, the number of rows for each member. None divides the rows as
            reducescatter_async() does.
        out: must not overlap `array`.
    """
    id = process_sets.id_of(process_set)
    with Told(id, name):
        options = (root, _numbers("scatter", splits), id, deadline_s)
        return start_for_rows("scatter", array, out, name, options)


def alltoall(array: Any, **options: Any) -> Any:
    """Like alltoall_async(), but waits, and returns the result."""
    return alltoall_async(array, **options).wait()


def alltoall_async(
    array: Any,
    *,
    splits: Sequence[int] | None = None,
    out: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    deadline_s: float = 0.0,
) -> Handle:
    """Sends rows to every rank, and receives rows from every rank, in rank order.

    Args:
        array: its first dimension may differ between ranks.
        splits: the number of rows for each member. With None every member gets the same number of
            rows, so the first dimension must be divisible by the number of members.
        out: must not overlap `array`.

    Returns:
        A handle. The handle's result is the received rows. With `splits`, the result is these rows
        and a list with the number of rows from each member.
    """
    id = process_sets.id_of(process_set)
    with Told(id, name):
        take = take_rows if splits is None else _take_rows_and_counts
        options = (_numbers("alltoall", splits), id, deadline_s)
        return start_for_rows("alltoall", array, out, name, options, take)


def _take_rows_and_counts(array: Buffer, out: Any) -> Callable[[OwnedHandle], Any]:
    return lambda handle: rows_of(handle, array.dtype, array.shape[1:], out)


def _numbers(function: str, splits: Any) -> list[int] | None:
    if splits is None:
        return None
    try:
        return [operator.index(rows) for rows in splits]
    except TypeError:
        raise InvalidArgumentError(
            f"{function}: splits is {splits!r:.80}: it must be a sequence of integers"
        ) from None


# -- From one rank to another --


def send(array: Any, to: int, **options: Any) -> None:
    """Like send_async(), but waits until the array may be changed again."""
    send_async(array, to, **options).wait()


def send_async(
    array: Any,
    to: int,
    *,
    tag: int = 0,
    process_set: ProcessSet = global_process_set,
    deadline_s: float = 0.0,
) -> Handle:
    """Sends an array to rank `to`. The n-th send to rank `to` with a tag matches that rank's n-th
    receive from this rank with the same tag.
    """
    id = process_sets.id_of(process_set)
    with ToldToPeer(id, native.rank(), to, tag):
        source = _buffers.buffer_of(array, "send: the array")
        arguments = (
            source.dtype,
            source.shape,
            source.address,
            source.keep,
            to,
            tag,
            id,
            deadline_s,
            _buffers.stream_of("send", source),
        )
        _check_unused("send: the array", source.span(False))
        return start(native.send_async, arguments, [source.span(False)], NO_RESULT)


def recv(out: Any, source: int, **options: Any) -> Any:
    """Like recv_async(), but waits, and returns `out`."""
    return recv_async(out, source, **options).wait()


def recv_async(
    out: Any,
    source: int,
    *,
    tag: int = 0,
    process_set: ProcessSet = global_process_set,
    deadline_s: float = 0.0,
) -> Handle:
    """Receives an array from rank `source`, and writes it to `out`, which has the array's shape and
    type.
    """
    id = process_sets.id_of(process_set)
    with ToldToPeer(id, source, native.rank(), tag):
        memory = _buffers.writable_buffer_of(out, "recv: out")
        arguments = (
            memory.dtype,
            memory.shape,
            memory.address,
            memory.keep,
            source,
            tag,
            id,
            deadline_s,
            _buffers.stream_of("recv", memory),
        )
        _check_unused("recv: out", memory.span(True))
        return start(native.recv_async, arguments, [memory.span(True)], returns(out))


def _check_unused(role: str, span: Span) -> None:
    """Rejects memory that an operation in flight uses. If the message waited for that operation
    instead, two ranks could wait for each other.
    """
    if IN_FLIGHT.has_users_of(span):
        raise InvalidArgumentError(
            f"{role} is used by an operation in flight: wait for that first, or pass a copy"
        )


# -- Coordination --


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of the set has called barrier()."""
    barrier_async(process_set).wait()


def barrier_async(process_set: ProcessSet = global_process_set) -> Handle:
    """Like barrier(), but returns a handle at once."""
    return Handle(native.barrier_async(process_sets.id_of(process_set)), NO_RESULT)


def join(process_set: ProcessSet = global_process_set, *, count_absent: bool = False) -> int:
    """Announces that this rank has no more data, and waits until every rank has called join().

    Until then, the other ranks' operations continue without this rank where possible. A rank that
    has joined adds nothing to sums.

    Args:
        count_absent: if true, averages divide by the size of the set, and not by the number of
            ranks that take part.

    Returns:
        The rank that joined last.
    """
    handle = OwnedHandle(native.join_async(process_sets.id_of(process_set), int(count_absent)))
    native.synchronize(handle.id)
    return native.last_rank(handle.id)
