# SPDX-License-Identifier: Apache-2.0

"""The functions of `_native` by ctypes, for interpreters that cannot load it: free-threaded ones.

_native.pyi documents them. They are 4 to 10 times slower, and release the GIL in every call of the
C ABI.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_uint32, c_void_p
from typing import Any, TypeVar

from ronda._ctypes import (
    OPERATIONS,
    Object,
    Options,
    Place,
    RankList,
    ReformOptions,
    Source,
    Statistics,
    encode,
    library,
)
from ronda._fallback_calls import SLICE_S, check, error, in_slices, interruptibly, this_thread
from ronda._fallback_calls import set_error_types as set_error_types

_Callback = Callable[[int, "str | None"], None]

# -- Waiting --


def _await(handle: int, timeout_s: float = -1.0) -> tuple[bool, int]:
    """Whether the operation has ended, and its status."""
    done = c_int()
    if library.ronda_poll(handle, byref(done)) != 0 or done.value:
        return True, library.ronda_synchronize(handle)
    return in_slices(
        lambda seconds, done: int(library.ronda_synchronize_for(handle, seconds, done)), timeout_s
    )


# -- The job --


def _ranks(ranks: Sequence[int]) -> ctypes.Array[c_int]:
    return (c_int * len(ranks))(*ranks)


def version() -> str:
    text: bytes = library.ronda_version()
    return text.decode()


def init(options: Mapping[str, object] | None = None) -> None:
    arguments = Options(struct_size=ctypes.sizeof(Options))
    known = {field[0] for field in Options._fields_} - {"struct_size", "process_set_count"}
    for name, value in (options or {}).items():
        if name not in known:
            raise error(
                1, f"init: there is no option '{name}': ronda_options in ronda.h lists them"
            )
        if value is None:
            continue
        if name == "process_sets":
            lists: Any = value
            arrays = [_ranks(tuple(ranks)) for ranks in lists]
            arguments.process_sets = (RankList * len(arrays))(
                *(RankList(ctypes.cast(array, POINTER(c_int)), len(array)) for array in arrays)
            )
            arguments.process_set_count = len(arrays)
        else:
            setattr(arguments, name, encode(value) if isinstance(value, str) else value)
    interruptibly(lambda: int(library.ronda_init(byref(arguments))))


def _waits(name: str) -> Callable[..., None]:
    """A function of the C ABI that may wait for other ranks or for a disk."""
    function = getattr(library, "ronda_" + name)
    return lambda *arguments: interruptibly(lambda: int(function(*arguments)))


shutdown = _waits("shutdown")
job_status = _waits("job_status")


def is_initialized() -> bool:
    return bool(library.ronda_is_initialized())


def _number(name: str) -> Callable[..., int]:
    function = getattr(library, "ronda_" + name)
    return lambda *arguments: int(function(*arguments))


rank = _number("rank")
size = _number("size")
local_rank = _number("local_rank")
local_size = _number("local_size")
cross_rank = _number("cross_rank")
cross_size = _number("cross_size")
current = _number("current")


_T = TypeVar("_T")


def _ask(name: str, kind: Callable[[int], _T]) -> Callable[..., _T]:
    """A function of the C ABI whose last parameter points at its int result."""
    function = getattr(library, "ronda_" + name)

    def ask(*arguments: int) -> _T:
        answer = c_int()
        check(function(*arguments, byref(answer)))
        return kind(answer.value)

    return ask


def _tells(name: str) -> Callable[..., None]:
    """A function of the C ABI that takes numbers and texts."""
    function = getattr(library, "ronda_" + name)
    return lambda *values: check(
        function(*(encode(value) if isinstance(value, str) else value for value in values))
    )


make_current = _tells("make_current")
abort = _tells("abort")
start_timeline = _tells("start_timeline")
should_stop = _ask("should_stop", bool)
elastic_poll = _ask("elastic_poll", int)


def elastic_reform(reason: str | None = None, /) -> None:
    options = ReformOptions(struct_size=ctypes.sizeof(ReformOptions), reason=encode(reason))
    interruptibly(lambda: int(library.ronda_elastic_reform(byref(options))))


elastic_begin_update: Callable[[], None] = library.ronda_elastic_begin_update
elastic_end_update: Callable[[], None] = library.ronda_elastic_end_update


def elastic_sync(snapshot_step: int, /) -> tuple[int, int, int, int, int]:
    found = Source(struct_size=ctypes.sizeof(Source))
    interruptibly(lambda: int(library.ronda_elastic_sync(snapshot_step, byref(found))))
    return found.step, found.rank, found.is_snapshot, found.is_behind, found.any_behind


def place() -> dict[str, Any]:
    read = Place(struct_size=ctypes.sizeof(Place))
    check(library.ronda_get_place(byref(read)))
    numbers = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    told = {name: getattr(read, name) for name in numbers if getattr(read, name) >= 0}
    told["launcher"] = read.launcher
    if read.store_port:
        told["store_address"] = read.store_address.decode()
        told["store_port"] = read.store_port
    return told


def statistics() -> dict[str, int]:
    counts = Statistics(struct_size=ctypes.sizeof(Statistics))
    check(library.ronda_get_statistics(byref(counts)))
    return {field[0]: getattr(counts, field[0]) for field in Statistics._fields_[1:]}


stop_timeline = _waits("stop_timeline")

# -- Process sets --


def add_process_set(ranks: Sequence[int], /) -> int:
    array, id = _ranks(ranks), c_uint32()
    interruptibly(lambda: int(library.ronda_add_process_set(array, len(array), byref(id))))
    return id.value


def create_process_set(ranks: Sequence[int], tag: str | None = None, /) -> int:
    array, text, id = _ranks(ranks), encode(tag), c_uint32()
    interruptibly(lambda: int(library.ronda_create_process_set(array, len(array), text, byref(id))))
    return id.value


remove_process_set = _waits("remove_process_set")
process_set_size = _number("process_set_size")
process_set_rank = _number("process_set_rank")


def process_set_ranks(id: int, /) -> list[int]:
    ranks = (c_int * max(process_set_size(id), 1))()
    check(library.ronda_process_set_ranks(id, ranks))
    return list(ranks)


def process_set_ids() -> list[int]:
    room, count = 64, c_int()
    while True:
        ids = (c_uint32 * room)()
        check(library.ronda_process_set_ids(ids, room, byref(count)))
        if count.value <= room:
            return list(ids[: count.value])
        room *= 2


_kept: dict[int, object] = {}  # by handle
# The entries, and the owner of each member's buffer in this step.
_kept_by_group: dict[int, tuple[list[Any], list[object]]] = {}


def _submit(function: Any, *arguments: object) -> int:
    handle = c_int64()
    check(function(*arguments, byref(handle)))
    return handle.value


def _async(name: str) -> Callable[..., int]:
    operation, function = OPERATIONS[name], getattr(library, "ronda_" + name)

    def submit(*values: object) -> int:
        handle = _submit(function, byref(operation.read(values)))
        _kept[handle] = operation.keep(values)
        return handle

    return submit


allreduce_async = _async("allreduce_async")
reduce_async = _async("reduce_async")
reducescatter_async = _async("reducescatter_async")
broadcast_async = _async("broadcast_async")
allgather_async = _async("allgather_async")
gather_async = _async("gather_async")
scatter_async = _async("scatter_async")
alltoall_async = _async("alltoall_async")
send_async = _async("send_async")
recv_async = _async("recv_async")


def _submit_object(
    name: str | None, data: bytes | None, root: int, process_set: int, function: Any
) -> int:
    arguments = Object(ctypes.sizeof(Object), encode(name), data, len(data or b""), root)
    arguments.call.process_set = process_set
    handle = _submit(function, byref(arguments))
    _kept[handle] = data
    return handle


def broadcast_object_async(
    name: str | None, data: bytes | None, root: int, process_set: int = 0, /
) -> int:
    return _submit_object(name, data, root, process_set, library.ronda_broadcast_object_async)


def allgather_object_async(name: str | None, data: bytes, process_set: int = 0, /) -> int:
    return _submit_object(name, data, 0, process_set, library.ronda_allgather_object_async)


def sparse_allreduce_async(*values: object) -> tuple[int, int]:
    operation = OPERATIONS["sparse_allreduce_async"]
    arguments, indices, gathered = operation.read(values), c_int64(), c_int64()
    check(library.ronda_sparse_allreduce_async(byref(arguments), byref(indices), byref(gathered)))
    _kept[indices.value] = _kept[gathered.value] = operation.keep(values)
    return indices.value, gathered.value


def _read_group(name: str, entries: Sequence[tuple[object, ...]]) -> Any:
    operation = OPERATIONS[name]
    return (operation.struct * len(entries))(*(operation.read(entry) for entry in entries))


def _grouped(name: str) -> Callable[..., list[int]]:
    operation, function = OPERATIONS[name], getattr(library, "ronda_grouped_" + name)

    def submit(arguments: Sequence[tuple[object, ...]], group: str, /) -> list[int]:
        structs, handles = _read_group(name, arguments), (c_int64 * len(arguments))()
        check(function(structs, len(structs), encode(group), handles))
        _kept.update({handle: operation.keep(entry) for handle, entry in zip(handles, arguments)})
        return list(handles)

    return submit


grouped_allreduce_async = _grouped("allreduce_async")
grouped_allgather_async = _grouped("allgather_async")
grouped_reducescatter_async = _grouped("reducescatter_async")


def barrier_async(process_set: int = 0, deadline_s: float = 0.0, /) -> int:
    return _submit(library.ronda_monitored_barrier_async, process_set, deadline_s)


def monitored_barrier(process_set: int = 0, timeout_s: float = 0.0, /) -> None:
    interruptibly(lambda: int(library.ronda_monitored_barrier(process_set, timeout_s)))


def join_async(process_set: int = 0, absent: int = 0, /) -> int:
    return _submit(library.ronda_join_async, process_set, absent)


def remove_process_set_async(id: int, /) -> int:
    return _submit(library.ronda_remove_process_set_async, id)


refuse = _tells("refuse")
refuse_message = _tells("refuse_message")


def allreduce(*values: object) -> None:
    operation = OPERATIONS["allreduce_async"]
    arguments, handle = operation.read(values), c_int64()
    check(library.ronda_allreduce_for(byref(arguments), SLICE_S, byref(handle)))
    if handle.value == 0:
        return
    _kept[handle.value] = operation.keep(values)
    try:
        check(_await(handle.value)[1])
    finally:
        release(handle.value)


def cuda_zero(data: int, bytes: int, stream: int, /) -> None:
    check(library.ronda_cuda_zero(data, bytes, stream))


# -- Handles --


def _handles(handles: Sequence[int]) -> ctypes.Array[c_int64]:
    return (c_int64 * len(handles))(*handles)


poll = _ask("poll", bool)
found_inf = _ask("found_inf", bool)
last_rank = _ask("last_rank", int)
source = _ask("source", int)
averaged_over = _ask("averaged_over", int)


def poll_all(handles: Sequence[int], /) -> bool:
    array, done = _handles(handles), c_int()
    check(library.ronda_poll_all(array, len(array), byref(done)))
    return bool(done.value)


def synchronize(handle: int, timeout_s: float = -1.0, /) -> bool:
    ended, status = _await(handle, timeout_s)
    check(status)
    return ended


def synchronize_all(handles: Sequence[int], /) -> None:
    array = _handles(handles)
    for handle in array:
        _await(handle)  # the call below finds the first error
    check(library.ronda_synchronize_all(array, len(array)))


def synchronize_on_stream(handle: int, stream: int, timeout_s: float = -1.0, /) -> bool:
    function = library.ronda_synchronize_on_stream_for
    waits, status = in_slices(
        lambda seconds, done: int(function(handle, stream, seconds, done)), timeout_s
    )
    check(status)
    return waits


_pending: dict[int, _Callback] = {}  # callbacks that have been registered and not called yet
_callback_ids = itertools.count(1)


def _run_callback(context: int, status: int, message: bytes) -> None:
    callback = _pending.pop(context)
    # Once the job has ended, the thread that registers a callback runs it.
    before = getattr(this_thread, "in_callback", False)
    this_thread.in_callback = True
    try:
        callback(status, message.decode(errors="replace") if status != 0 else None)
    finally:
        this_thread.in_callback = before


# ctypes passes its exceptions to sys.unraisablehook.
_call_back = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)(_run_callback)


def _hand_over(callback: _Callback, submit: Callable[[object, int], Any]) -> None:
    """Makes `submit` register `callback`."""
    if not callable(callback):
        raise TypeError(f"callback is {callback!r}, which cannot be called")
    context = next(_callback_ids)
    _pending[context] = callback
    status = submit(_call_back, context)
    if status != 0:
        del _pending[context]
        check(status)


def synchronize_on_stream_async(handle: int, stream: int, callback: _Callback, /) -> None:
    _hand_over(
        callback,
        lambda function, context: library.ronda_synchronize_on_stream_async(
            handle, stream, function, context
        ),
    )


def on_completion(handle: int, callback: _Callback, /) -> None:
    _hand_over(
        callback, lambda function, context: library.ronda_on_completion(handle, function, context)
    )


def _read_output(handle: int) -> tuple[int, int, list[int]]:
    data, rows, members = c_void_p(), c_int64(), c_int()
    by_member = POINTER(c_int64)()
    check(library.ronda_output(handle, byref(data), byref(rows), byref(by_member), byref(members)))
    return data.value or 0, rows.value, by_member[: members.value] if members.value else []


def output(handle: int, /) -> tuple[int, int, list[int]]:
    return _read_output(handle)


def output_bytes(handle: int, row_bytes: int = 1, /) -> bytes:
    data, rows, _ = _read_output(handle)
    return ctypes.string_at(data, rows * row_bytes)


def keep(handle: int, /) -> object:
    return _kept.get(handle)


_is_forked = False


def _note_fork() -> None:
    global _is_forked
    _is_forked = True


os.register_at_fork(after_in_child=_note_fork)


def release(handle: int, /) -> None:
    kept = _kept.get(handle)
    try:
        if _is_forked and not is_initialized():
            return  # the parent's handle: it does not exist in this process
        if poll(handle):
            check(library.ronda_release(handle))
        else:

            def end(status: int, message: str | None, kept: object = kept) -> None:
                library.ronda_release(handle)

            on_completion(handle, end)
    finally:
        _kept.pop(handle, None)


def release_on_stream(handle: int, stream: int, /) -> None:
    launched = c_int()
    status = library.ronda_synchronize_on_stream_for(handle, stream, 0.0, byref(launched))
    if status == 0 and not launched.value:
        release(handle)  # nothing on the stream uses a result that does not exist
        return
    kept = _kept.get(handle)
    if kept is not None:
        on_completion(handle, lambda status, message, kept=kept: None)  # type: ignore[misc]
    check(library.ronda_release_on_stream(handle, stream))
    _kept.pop(handle, None)


# -- Prepared groups --


def prepare_group(arguments: Sequence[tuple[object, ...]], name: str, /) -> int:
    structs, group = _read_group("allreduce_async", arguments), c_void_p()
    check(library.ronda_prepare_group(structs, len(structs), encode(name), byref(group)))
    address = group.value or 0
    _kept_by_group[address] = (list(arguments), [None] * len(arguments))
    return address


def _group(function: str, group: int) -> int:
    if group not in _kept_by_group:
        raise error(
            1,
            f"{function}: there is no group {group:#x}: it was never given out, or it was released",
        )
    return group


def group_ready(group: int, index: int, /) -> None:
    check(library.ronda_group_ready(_group("group_ready", group), index))


def group_ready_on_stream(
    group: int, index: int, data: int, stream: int, owner: object = None, /
) -> None:
    check(
        library.ronda_group_ready_on_stream(
            _group("group_ready_on_stream", group), index, data, stream
        )
    )
    _kept_by_group[group][1][index] = owner


def _drop_owners(group: int) -> None:
    owners = _kept_by_group[group][1]
    owners[:] = [None] * len(owners)


def group_wait(group: int, /) -> None:
    function, group = library.ronda_group_wait_for, _group("group_wait", group)
    check(in_slices(lambda seconds, done: int(function(group, seconds, done)))[1])
    _drop_owners(group)


def group_wait_on_stream(group: int, stream: int, /) -> None:
    function, group = library.ronda_group_wait_on_stream_for, _group("group_wait_on_stream", group)
    check(in_slices(lambda seconds, done: int(function(group, stream, seconds, done)))[1])
    _drop_owners(group)


def group_detach(group: int, /) -> list[int]:
    entries, owners = _kept_by_group[_group("group_detach", group)]
    handles = (c_int64 * len(owners))()
    check(library.ronda_group_detach(group, handles))
    kept = {handle: (entries, owner) for handle, owner in zip(handles, owners) if handle}
    _kept.update(kept)
    _drop_owners(group)
    return list(handles)


def group_found_inf(group: int, /) -> bool:
    found = c_int()
    check(library.ronda_group_found_inf(_group("group_found_inf", group), byref(found)))
    return bool(found.value)


def group_release(group: int, /) -> None:
    kept = _kept_by_group.pop(_group("group_release", group))

    def end(kept: object = kept) -> int:  # an interrupted call keeps what the members need
        return int(library.ronda_group_release(group))

    interruptibly(end)


def xla_handler(minor: int, /) -> object:
    raise ImportError(
        "ronda.jax needs the extension module ronda._native: install Ronda's wheel, and unset"
        " RONDA_PYTHON_BINDING"
    )
