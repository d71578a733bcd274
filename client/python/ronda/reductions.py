"""Reductions of arrays in host memory: NumPy's, and everything with the buffer protocol or DLPack.

Every rank of the process set submits the same operations with the same arguments: in any order
where they have names, else in the same order. Functions named *_async return at once, with a
Handle; the arrays belong to the operation until Handle.wait() has returned the result. The others
wait. Roots and other ranks are numbered as in the job.

Common arguments:
    array: the same shape and type on every rank, if the function does not say otherwise; contiguous
        in row-major order. Numbers and lists become NumPy arrays.
    out: memory for the result, which is returned then; it may be `array` where that is said.
        Without it the result is a new NumPy array.
    op: how elements are combined; AVERAGE divides by the number of ranks.
    name: the tensor's, the same on every rank; None: operations meet in the order of the calls in
        their process set.
    compression: the format in which floating-point elements travel.
    prescale, postscale: factors of each rank's input, and of the result.
    process_set: the ranks that take part.
    deadline_s: seconds that the operation may wait for a rank; 0: as for the job, negative: for
        ever.

Errors of all functions (of *_async those of the second group are raised by wait()):
    NotInitializedError, DuplicateNameError (the name is in flight), InvalidArgumentError (nothing
    was submitted). MismatchError (ranks disagree; the job goes on), DeadlineError, PeerFailedError,
    OutOfMemoryError, InternalError; InvalidArgumentError if `out` is too small for the result.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from ronda import _buffers, process_sets
from ronda._library import native
from ronda._results import like, returns, rows_out, take_rows
from ronda.errors import InvalidArgumentError
from ronda.handles import Handle
from ronda.process_sets import ProcessSet, global_process_set
from ronda.types import ReduceOp, Wire


def _allreduce_arguments(
    function: str,
    array: Any,
    out: Any,
    op: ReduceOp,
    name: str | None,
    compression: Wire,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    error_feedback: bool = False,
    detect_overflow: bool = False,
    deadline_s: float = 0.0,
) -> tuple[Any, tuple[Any, ...]]:
    """The result, and the arguments for the binding."""
    source = _buffers.buffer_of(array, f"{function}: the array")
    result, memory = like(function, source, out)
    id = process_sets.id_of(process_set)
    return result, (
        name,
        source.dtype,
        source.shape,
        source.address,
        memory.address,
        (source.keep, memory.keep),
        op,
        compression,
        prescale,
        postscale,
        id,
        error_feedback,
        detect_overflow,
        deadline_s,
    )


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
        error_feedback: rounding errors of the compression are added to this rank's next array of
            this name.
    """
    result, arguments = _allreduce_arguments(
        "allreduce",
        array,
        out,
        op,
        name,
        compression,
        prescale,
        postscale,
        process_set,
        error_feedback,
        False,
        deadline_s,
    )
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
    """allreduce() without waiting.

    Args:
        detect_overflow: Handle.found_inf() tells whether the result has infinite elements.
    """
    result, arguments = _allreduce_arguments(
        "allreduce",
        array,
        out,
        op,
        name,
        compression,
        prescale,
        postscale,
        process_set,
        error_feedback,
        detect_overflow,
        deadline_s,
    )
    return Handle(native.allreduce_async(*arguments), returns(result))


def grouped_allreduce(
    arrays: Sequence[Any], op: ReduceOp = ReduceOp.AVERAGE, **options: Any
) -> list[Any]:
    """grouped_allreduce_async(), and waits for all: the list of the results."""
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
    """Allreduces that are carried out together or, if one fails, not at all. A handle for each.

    Args:
        outs: an `out` for each array; may be `arrays`.
        name: of the group. Without one it follows from types and shapes, so that two groups which
            are alike need names to be in flight together.
    """
    if outs is not None and len(outs) != len(arrays):
        raise InvalidArgumentError(
            f"grouped_allreduce: {len(outs)} outs for {len(arrays)} arrays: pass one for each"
        )
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
            process_set,
            deadline_s=deadline_s,
        )
        for i, array in enumerate(arrays)
    ]
    group = (
        name
        if name is not None
        else _name_of_group("allreduce", [arguments for _, arguments in made])
    )
    named = [(f"{group}.{i}", *arguments[1:]) for i, (_, arguments) in enumerate(made)]
    ids = native.grouped_allreduce_async(named, group)
    return [Handle(id, returns(result)) for id, (result, _) in zip(ids, made)]


def _name_of_group(kind: str, arguments: Sequence[tuple[Any, ...]]) -> str:
    """The same on every rank, and for every step."""
    description = repr([(dtype, shape) for _, dtype, shape, *_ in arguments])
    return f"grouped_{kind}.{zlib.crc32(description.encode()):08x}"


def reduce(array: Any, root: int, op: ReduceOp = ReduceOp.AVERAGE, **options: Any) -> Any:
    """reduce_async(), and waits: the result on `root`, None elsewhere."""
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
    """Combines the arrays of all ranks; `root` gets the result, and the others None.

    Args:
        out: on root; may be `array`.
    """
    source = _buffers.buffer_of(array, "reduce: the array")
    is_root = native.rank() == root
    result, memory = like("reduce", source, out) if is_root else (None, None)
    id = native.reduce_async(
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
        process_sets.id_of(process_set),
        deadline_s,
    )
    return Handle(id, returns(result))


def reducescatter(array: Any, op: ReduceOp = ReduceOp.AVERAGE, **options: Any) -> Any:
    """reducescatter_async(), and waits: this rank's rows."""
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
    """Combines the arrays of all ranks and deals out the rows of the result.

    Of n rows each of m members gets n // m, and the first n % m members one more.

    Args:
        out: must not overlap `array`.
    """
    source = _buffers.buffer_of(array, "reducescatter: the array")
    address, byte_count, keep = rows_out("reducescatter", source, out)
    id = native.reducescatter_async(
        name,
        source.dtype,
        source.shape,
        source.address,
        address,
        byte_count,
        (source.keep, keep),
        op,
        compression,
        prescale,
        postscale,
        process_sets.id_of(process_set),
        deadline_s,
    )
    return Handle(id, take_rows(source, out))
