# SPDX-License-Identifier: Apache-2.0

"""The memory for the results of operations on arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ronda import _buffers
from ronda._buffers import Buffer
from ronda._library import native
from ronda.errors import InvalidArgumentError
from ronda.handles import Handle, OwnedHandle, rows_of, start
from ronda.types import DType


def returns(result: Any) -> Callable[[OwnedHandle], Any]:
    return lambda handle: result


NO_RESULT = returns(None)


def _check_same(function: str, array: Buffer, out: Buffer) -> None:
    if (array.dtype, array.shape) != (out.dtype, out.shape):
        raise InvalidArgumentError(
            f"{function}: out has the shape {out.shape} and type {DType(out.dtype).name}, and "
            f"the array {array.shape} and {DType(array.dtype).name}: pass one that is like it"
        )


def _check_out(function: str, array: Buffer) -> None:
    """Checks the array of a call without `out`. The array must be in host memory, because Ronda
    allocates results only as NumPy arrays.
    """
    if array.stream is not None:
        raise InvalidArgumentError(
            f"{function}: the array is on a CUDA device: pass out=, an array there for the result"
        )


def like(function: str, array: Buffer, out: Any) -> tuple[Any, Buffer]:
    """Returns the result, which has the shape of the array, and the result's memory."""
    if out is None:
        _check_out(function, array)
        return _buffers.new_array(array.shape, array.dtype)
    if out is array.keep and array.is_writable:
        return out, array
    memory = _buffers.writable_buffer_of(out, f"{function}: out")
    _check_same(function, array, memory)
    return out, memory


def rows_out(function: str, array: Buffer, out: Any) -> Buffer | None:
    """Returns the memory of `out`, or None without `out`. Checks that the array has rows, and that
    the rows of `out` have the same type and shape.
    """
    if len(array.shape) == 0:
        raise InvalidArgumentError(
            f"{function}: the array is a scalar: pass one with rows, such as array.reshape(1)"
        )
    if out is None:
        return None
    memory = _buffers.writable_buffer_of(out, f"{function}: out")
    if memory.dtype != array.dtype or memory.shape[1:] != array.shape[1:]:
        raise InvalidArgumentError(
            f"{function}: out has rows of the shape {memory.shape[1:]} and type "
            f"{DType(memory.dtype).name}, and the array of {array.shape[1:]} and "
            f"{DType(array.dtype).name}: pass one with rows like the array's"
        )
    return memory


def take_rows(array: Buffer, out: Any) -> Callable[[OwnedHandle], Any]:
    return lambda handle: rows_of(handle, array.dtype, array.shape[1:], out)[0]


def start_for_rows(
    operation: str,
    array: Any,
    out: Any,
    name: str | None,
    options: tuple[Any, ...],
    take: Callable[[Buffer, Any], Callable[[OwnedHandle], Any]] = take_rows,
    has_result: bool = True,
) -> Handle:
    """Submits an operation for which Ronda determines the number of rows in the result.

    Args:
        operation: the name of the operation, such as "allgather"; the binding's function is named
            "allgather_async".
        array: the caller's array.
        out: memory for the result, which must not overlap `array`, or None.
        name: the tensor's name.
        options: the arguments of the binding's function besides array, out and name.
        take: returns the argument `take` of Handle for `array` and `out`.
        has_result: whether this rank gets a result.
    """
    source = _buffers.buffer_of(array, f"{operation}: the array")
    memory = rows_out(operation, source, out)
    if memory is None and has_result:
        _check_out(operation, source)
    used = [source] if memory is None else [source, memory]
    arguments = (
        name,
        source.dtype,
        source.shape,
        source.address,
        memory.address if memory else 0,
        memory.byte_count if memory else 0,
        [each.keep for each in used],
        *options,
        _buffers.stream_of(operation, source, memory),
    )
    spans = [each.span(each is memory) for each in used]
    submit = getattr(native, f"{operation}_async")
    return start(submit, arguments, spans, take(source, out))
