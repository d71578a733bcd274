"""Exchanges of arrays in host memory, and coordination. Arguments and errors are those of
reductions.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ronda import _buffers, process_sets
from ronda._buffers import Buffer
from ronda._library import native
from ronda._results import NO_RESULT, like, returns, rows_out, take_rows
from ronda.handles import Handle, OwnedHandle, rows_of
from ronda.process_sets import ProcessSet, global_process_set


def broadcast(array: Any, root: int = 0, **options: Any) -> Any:
    """broadcast_async(), and waits: root's array."""
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
    """Gives every rank the array of `root`.

    Args:
        array: of the same shape and type on every rank; its content is read on root only.
        out: may be `array`.
    """
    source = _buffers.buffer_of(array, "broadcast: the array")
    result, memory = like("broadcast", source, out)
    if native.rank() == root and memory.address != source.address:
        _copy(source, memory)
    id = native.broadcast_async(
        name,
        source.dtype,
        source.shape,
        memory.address,
        memory.keep,
        root,
        process_sets.id_of(process_set),
        deadline_s,
    )
    return Handle(id, returns(result))


def _copy(source: Buffer, target: Buffer) -> None:
    ctypes.memmove(target.address, source.address, source.byte_count)


def allgather(array: Any, **options: Any) -> Any:
    """allgather_async(), and waits: the rows of all ranks."""
    return allgather_async(array, **options).wait()


def allgather_async(
    array: Any,
    *,
    out: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    deadline_s: float = 0.0,
) -> Handle:
    """Concatenates the rows of all ranks, in the order of the ranks, for every rank.

    Args:
        array: of which the first dimension may differ between ranks.
        out: must not overlap `array`.
    """
    source = _buffers.buffer_of(array, "allgather: the array")
    address, byte_count, keep = rows_out("allgather", source, out)
    id = native.allgather_async(
        name,
        source.dtype,
        source.shape,
        source.address,
        address,
        byte_count,
        (source.keep, keep),
        process_sets.id_of(process_set),
        deadline_s,
    )
    return Handle(id, take_rows(source, out))


def gather(array: Any, root: int = 0, **options: Any) -> Any:
    """gather_async(), and waits: the rows of all ranks on `root`, None elsewhere."""
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
    """allgather_async() for `root` alone; the result of the others is None.

    Args:
        out: on root; must not overlap `array`.
    """
    source = _buffers.buffer_of(array, "gather: the array")
    is_root = native.rank() == root
    address, byte_count, keep = rows_out("gather", source, out if is_root else None)
    id = native.gather_async(
        name,
        source.dtype,
        source.shape,
        source.address,
        address,
        byte_count,
        (source.keep, keep),
        root,
        process_sets.id_of(process_set),
        deadline_s,
    )
    return Handle(id, take_rows(source, out) if is_root else NO_RESULT)


def scatter(array: Any, root: int = 0, **options: Any) -> Any:
    """scatter_async(), and waits: this rank's rows."""
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
    """Deals the rows of root's array out to the ranks.

    Args:
        array: root's; the other ranks pass one of the same type and dimensions, of which content
            and first dimension are not looked at.
        splits: on root, rows for each member; None: as in reducescatter_async().
        out: must not overlap `array`.
    """
    source = _buffers.buffer_of(array, "scatter: the array")
    address, byte_count, keep = rows_out("scatter", source, out)
    id = native.scatter_async(
        name,
        source.dtype,
        source.shape,
        source.address,
        address,
        byte_count,
        (source.keep, keep),
        root,
        _numbers(splits),
        process_sets.id_of(process_set),
        deadline_s,
    )
    return Handle(id, take_rows(source, out))


def alltoall(array: Any, **options: Any) -> Any:
    """alltoall_async(), and waits."""
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
    """Sends rows to every rank, and receives theirs in the order of the ranks.

    Args:
        array: of which the first dimension may differ between ranks.
        splits: rows for each member; None: the same for all, which must divide the first dimension.
        out: must not overlap `array`.

    Returns:
        A handle of the received rows; with splits, of these and the list of how many came from each
        member.
    """
    source = _buffers.buffer_of(array, "alltoall: the array")
    address, byte_count, keep = rows_out("alltoall", source, out)
    id = native.alltoall_async(
        name,
        source.dtype,
        source.shape,
        source.address,
        address,
        byte_count,
        (source.keep, keep),
        _numbers(splits),
        process_sets.id_of(process_set),
        deadline_s,
    )
    if splits is None:
        return Handle(id, take_rows(source, out))
    return Handle(id, lambda handle: rows_of(handle, source.dtype, source.shape[1:], out))


def _numbers(splits: Any) -> list[int] | None:
    return None if splits is None else [int(rows) for rows in splits]


# -- From one rank to another --


def send(array: Any, to: int, **options: Any) -> None:
    """send_async(), and waits until the array may be changed again."""
    send_async(array, to, **options).wait()


def send_async(
    array: Any,
    to: int,
    *,
    tag: int = 0,
    process_set: ProcessSet = global_process_set,
    deadline_s: float = 0.0,
) -> Handle:
    """Sends an array to a rank. The n-th send to it with a tag meets its n-th receive from here
    with that tag.
    """
    source = _buffers.buffer_of(array, "send: the array")
    id = native.send_async(
        source.dtype,
        source.shape,
        source.address,
        source.keep,
        to,
        tag,
        process_sets.id_of(process_set),
        deadline_s,
    )
    return Handle(id, NO_RESULT)


def recv(out: Any, source: int, **options: Any) -> Any:
    """recv_async(), and waits: `out`."""
    return recv_async(out, source, **options).wait()


def recv_async(
    out: Any,
    source: int,
    *,
    tag: int = 0,
    process_set: ProcessSet = global_process_set,
    deadline_s: float = 0.0,
) -> Handle:
    """Receives an array of the same shape and type as `out` from rank `source`, in `out`."""
    memory = _buffers.writable_buffer_of(out, "recv: out")
    id = native.recv_async(
        memory.dtype,
        memory.shape,
        memory.address,
        memory.keep,
        source,
        tag,
        process_sets.id_of(process_set),
        deadline_s,
    )
    return Handle(id, returns(out))


# -- Coordination --


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of the set has called it."""
    barrier_async(process_set).wait()


def barrier_async(process_set: ProcessSet = global_process_set) -> Handle:
    """The same without waiting."""
    return Handle(native.barrier_async(process_sets.id_of(process_set)), NO_RESULT)


def join(process_set: ProcessSet = global_process_set, *, count_absent: bool = False) -> int:
    """Says that this rank has no more data, and waits until every rank has said so.

    Until then the operations of the others go on without this rank, as far as they can: it adds
    nothing to sums.

    Args:
        count_absent: averages divide by all ranks of the set, and not only by those that take part.

    Returns:
        The last rank that has joined.
    """
    handle = OwnedHandle(native.join_async(process_sets.id_of(process_set), int(count_absent)))
    native.synchronize(handle.id)
    return native.last_rank(handle.id)
