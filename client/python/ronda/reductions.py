# SPDX-License-Identifier: Apache-2.0

"""Reductions of arrays. An array may be a NumPy array, or any object with the buffer protocol,
DLPack or the CUDA array interface.

Every rank of the process set must submit the same operations with the same arguments. Ranks may
submit named operations in any order, but must submit unnamed operations in the same order.
Functions named *_async return a Handle at once; the arrays belong to the operation until
Handle.wait() has returned the result. Functions without the suffix _async wait for the result.
Arguments such as `root` are ranks in the job.

Common arguments:
    array: must be contiguous in row-major order. An array has the same shape and type on every
        rank, unless the function says otherwise. Numbers and lists are converted to NumPy arrays.
    out: memory for the result, which the function then returns. With some functions `out` may be
        `array`. Without `out` the result is a new NumPy array. Arrays on a CUDA device need an
        `out` on that device. The operation runs after the work already enqueued on the arrays'
        stream. The host waits for the operation, so the result is ready on every stream.
    op: how elements are combined; AVERAGE divides by the number of ranks.
    name: the tensor's name, the same on every rank. None means that operations are matched by call
        order in their process set.
    compression: the format in which floating-point elements are sent.
    prescale: multiplies each rank's input before the reduction.
    postscale: multiplies the result.
    process_set: the ranks that take part.
    deadline_s: how many seconds the operation may wait for a rank. Zero means the job's deadline,
        and a negative number means no limit.

Errors of all functions on submission:
    NotInitializedError, DuplicateNameError (the name is in flight), InvalidArgumentError (nothing
    was submitted).

Errors of an operation, which Handle.wait() raises for *_async functions:
    MismatchError (ranks disagree; the job continues), DeadlineError, PeerFailedError,
    OutOfMemoryError, InternalError; InvalidArgumentError if `out` is too small for the result.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from ronda import _buffers, _rows, process_sets
from ronda._in_flight import IN_FLIGHT, Span, first_conflict
from ronda._library import native
from ronda._refusals import Told
from ronda._results import like, returns, start_for_rows
from ronda.errors import InvalidArgumentError
from ronda.handles import Handle, start
from ronda.process_sets import ProcessSet, global_process_set
from ronda.types import ReduceOp, Wire

__all__ = [
    "allreduce",
    "allreduce_async",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "reduce",
    "reduce_async",
    "reducescatter",
    "reducescatter_async",
]


def _allreduce_arguments(
    function: str,
    array: Any,
    out: Any,
    op: ReduceOp,
    name: str | None,
    compression: Wire,
    prescale: float,
    postscale: float,
    process_set: int,
    error_feedback: bool = False,
    detect_overflow: bool = False,
    deadline_s: float = 0.0,
) -> tuple[Any, list[Span], _rows.Allreduce]:
    """Returns the result, the memory that the operation uses, and the arguments for the binding."""
    source = _buffers.buffer_of(array, f"{function}: the array")
    result, memory = like(function, source, out)
    arguments = _rows.allreduce(
        name=name,
        dtype=source.dtype,
        shape=source.shape,
        input=source.address,
        output=memory.address,
        keep=(source.keep, memory.keep),
        op=op,
        compression=compression,
        prescale=prescale,
        postscale=postscale,
        process_set=process_set,
        error_feedback=error_feedback,
        detect_overflow=detect_overflow,
        deadline_s=deadline_s,
        stream=_buffers.stream_of(function, source, memory),
    )
    return result, [source.span(False), memory.span(True)], arguments


def allreduce(
    array: Any,
    op: ReduceOp = ReduceOp.AVERAGE,
    *,
    out: Any = None,
    name: str | None = None,
    compression: Wire = Wire.NONE,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
    error_feedback: bool = False,
    deadline_s: float = 0.0,
) -> Any:
    """Combines the arrays of all ranks; every rank gets the result.

    Args:
        out: may be `array`.
        error_feedback: whether to add the compression's rounding errors to this rank's next array
            of this name.
    """
    id = process_sets.id_of(process_set)
    with Told(id, name):
        result, spans, arguments = _allreduce_arguments(
            "allreduce",
            array,
            out,
            op,
            name,
            compression,
            prescale,
            postscale,
            id,
            error_feedback,
            False,
            deadline_s,
        )
        IN_FLIGHT.wait_for_users_of(spans)
        native.allreduce(*arguments)
    return result


def allreduce_async(
    array: Any,
    op: ReduceOp = ReduceOp.AVERAGE,
    *,
    out: Any = None,
    name: str | None = None,
    compression: Wire = Wire.NONE,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
    error_feedback: bool = False,
    detect_overflow: bool = False,
    deadline_s: float = 0.0,
) -> Handle:
    """Like allreduce(), but returns a handle at once.

    Args:
        detect_overflow: if true, Handle.found_inf() tells whether the result has an infinity or a
            NaN.
    """
    id = process_sets.id_of(process_set)
    with Told(id, name):
        result, spans, arguments = _allreduce_arguments(
            "allreduce",
            array,
            out,
            op,
            name,
            compression,
            prescale,
            postscale,
            id,
            error_feedback,
            detect_overflow,
            deadline_s,
        )
        return start(native.allreduce_async, arguments, spans, returns(result))


def grouped_allreduce(
    arrays: Sequence[Any], op: ReduceOp = ReduceOp.AVERAGE, **options: Any
) -> list[Any]:
    """Like grouped_allreduce_async(), but waits, and returns the list of the results."""
    handles = grouped_allreduce_async(arrays, op, **options)
    return [handle.wait() for handle in handles]


def grouped_allreduce_async(
    arrays: Sequence[Any],
    op: ReduceOp = ReduceOp.AVERAGE,
    *,
    outs: Sequence[Any] | None = None,
    name: str | None = None,
    compression: Wire = Wire.NONE,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
    deadline_s: float = 0.0,
) -> list[Handle]:
    """Submits allreduces that run together or, if one of them fails, not at all. Returns their
    handles.

    Args:
        outs: an `out` for each array. `outs` may be `arrays`.
        name: the name of the group. None means that Ronda derives a name from types and shapes, so
            two groups with the same types and shapes need names if both are in flight.
    """
    if outs is not None and len(outs) != len(arrays):
        raise InvalidArgumentError(
            f"grouped_allreduce: {len(outs)} outs for {len(arrays)} arrays: pass one for each"
        )
    set_id = process_sets.id_of(process_set)
    # If the program gives no name, Ronda derives the group's name from the arrays. A rank whose
    # arrays are wrong cannot derive this name, and so cannot refuse the group.
    with Told(set_id, name, len(arrays) if name is not None else 0):
        made = [
            _allreduce_arguments(
                "grouped_allreduce",
                array,
                outs[i] if outs is not None else None,
                op,
                None,
                compression,
                prescale,
                postscale,
                set_id,
                deadline_s=deadline_s,
            )
            for i, array in enumerate(arrays)
        ]
        _check_apart([spans for _, spans, _ in made])
        rows = [arguments for _, _, arguments in made]
        group = name if name is not None else name_of_group([row[1:3] for row in rows])
        named = [(f"{group}.{i}", *row[1:]) for i, row in enumerate(rows)]
        for _, spans, _ in made:
            IN_FLIGHT.wait_for_users_of(spans)
        ids = native.grouped_allreduce_async(named, group)
    handles = [Handle(id, returns(result)) for id, (result, _, _) in zip(ids, made)]
    for handle, (_, spans, _) in zip(handles, made):
        IN_FLIGHT.add(handle, spans)
    return handles


def _check_apart(members: Sequence[Sequence[Span]]) -> None:
    conflict = first_conflict(members)
    if conflict is not None:
        raise InvalidArgumentError(
            f"grouped_allreduce: arrays {conflict[0]} and {conflict[1]} share memory that a result"
            " is written to: pass each array once, and outs apart"
        )


def name_of_group(members: Sequence[tuple[int, Sequence[int]]]) -> str:
    """Returns a name for a group that the program has not named. The name is the same on every rank
    and in every step.

    Args:
        members: the DType and the shape of each array.
    """
    description = repr([(int(dtype), tuple(shape)) for dtype, shape in members])
    return f"grouped_allreduce.{zlib.crc32(description.encode()):08x}"


def reduce(array: Any, root: int, op: ReduceOp = ReduceOp.AVERAGE, **options: Any) -> Any:
    """Like reduce_async(), but waits. Returns the result on `root`, and None on other ranks."""
    return reduce_async(array, root, op, **options).wait()


def reduce_async(
    array: Any,
    root: int,
    op: ReduceOp = ReduceOp.AVERAGE,
    *,
    out: Any = None,
    name: str | None = None,
    compression: Wire = Wire.NONE,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
    deadline_s: float = 0.0,
) -> Handle:
    """Combines the arrays of all ranks. `root` gets the result, the other ranks get None.

    Args:
        out: used only on `root`; may be `array`.
    """
    id = process_sets.id_of(process_set)
    with Told(id, name):
        source = _buffers.buffer_of(array, "reduce: the array")
        is_root = native.rank() == root
        result, memory = like("reduce", source, out) if is_root else (None, None)
        arguments = (
            name,
            source.dtype,
            source.shape,
            source.address,
            memory.address if memory else 0,
            (source.keep, memory and memory.keep),
            op,
            root,
            compression,
            prescale,
            postscale,
            id,
            deadline_s,
            _buffers.stream_of("reduce", source, memory),
        )
        spans = [source.span(False)] + ([memory.span(True)] if memory else [])
        return start(native.reduce_async, arguments, spans, returns(result))


def reducescatter(array: Any, op: ReduceOp = ReduceOp.AVERAGE, **options: Any) -> Any:
    """Like reducescatter_async(), but waits, and returns this rank's rows."""
    return reducescatter_async(array, op, **options).wait()


def reducescatter_async(
    array: Any,
    op: ReduceOp = ReduceOp.AVERAGE,
    *,
    out: Any = None,
    name: str | None = None,
    compression: Wire = Wire.NONE,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
    deadline_s: float = 0.0,
) -> Handle:
    """Combines the arrays of all ranks and distributes the rows of the result.

    With n rows and m members, each member gets n // m rows, and the first n % m members get one row
    more.

    Args:
        out: must not overlap `array`.
    """
    id = process_sets.id_of(process_set)
    with Told(id, name):
        options = (op, compression, prescale, postscale, id, deadline_s)
        return start_for_rows("reducescatter", array, out, name, options)
