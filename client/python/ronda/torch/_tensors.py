# SPDX-License-Identifier: Apache-2.0

"""Describes torch tensors for the C ABI by dtype, shape, address and stream.

A tensor can be submitted if it is dense and row-major, in host memory or on a CUDA device. All
checks are here and written by hand, so that submitting a gradient costs only a few attribute
look-ups.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ronda import _rows
from ronda._in_flight import IN_FLIGHT, Span
from ronda.types import DType

# Ronda's types have the same names as torch's. torch before 2.3 has no uint16, uint32 and uint64.
DTYPES: dict[torch.dtype, int] = {
    getattr(torch, dtype.name.lower()): int(dtype)
    for dtype in DType
    if hasattr(torch, dtype.name.lower())
}

TORCH_DTYPES: dict[int, torch.dtype] = {number: dtype for dtype, number in DTYPES.items()}


def describe(tensor: torch.Tensor) -> str:
    """Describes `tensor` for error texts."""
    layout = "" if tensor.layout is torch.strided else f" {tensor.layout}"
    return f"a{layout} tensor of {tensor.dtype}, shape {tuple(tensor.shape)}, on {tensor.device}"


def dtype_number(tensor: torch.Tensor) -> int:
    """Returns the DType of `tensor`. Checks everything except the tensor's memory layout.

    Raises:
        ValueError: `tensor` is not a tensor, or Ronda cannot reduce its layout, device or dtype.
    """
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(
            f"{tensor!r:.80} is a {type(tensor).__name__} and no tensor: pass a tensor, such as"
            " torch.tensor(value), or use broadcast_object() or allgather_object()"
        )
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"{describe(tensor)} is not dense: use to_dense() or sparse_allreduce_async()"
        )
    if not (tensor.is_cpu or tensor.is_cuda):
        raise ValueError(
            f"{describe(tensor)} is neither in host memory nor on a CUDA device: copy it"
        )
    number = DTYPES.get(tensor.dtype)
    if number is None:
        raise ValueError(
            f"{describe(tensor)}: the dtype is not supported. It may be "
            f"{', '.join(map(str, DTYPES))}"
        )
    return number


def check(tensor: torch.Tensor) -> int:
    """Checks that a tensor can be submitted without a copy, and returns its DType.

    Raises:
        ValueError: as in dtype_number(), or the tensor's elements are not consecutive in memory.
    """
    number = dtype_number(tensor)
    if tensor.is_neg():
        raise ValueError(
            f"{describe(tensor)} is a view whose elements are negated when they are read: pass"
            " tensor.resolve_neg()"
        )
    if not tensor.is_contiguous():
        raise ValueError(f"{describe(tensor)} has strides {tensor.stride()}: it must be contiguous")
    return number


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Returns `tensor`, or, for a lazily negated view, a copy with the negated values."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_neg():
        return tensor
    wait_for_users_of(reads=[tensor])
    return tensor.resolve_neg()


def span(tensor: torch.Tensor, is_written: bool) -> Span:
    """Returns the span of a tensor that an operation uses; for a sparse tensor, of its values."""
    if tensor.layout is torch.sparse_coo:
        tensor = tensor._values()
    if tensor.layout is not torch.strided or not (elements := tensor.numel()):
        return Span(0, 0, is_written)
    begin, width = tensor.data_ptr(), tensor.element_size()
    if tensor.is_contiguous():
        return Span(begin, begin + elements * width, is_written)
    steps = sorted(
        (step, size) for size, step in zip(tensor.shape, tensor.stride()) if size > 1 and step > 0
    )
    end = begin + (sum((size - 1) * step for step, size in steps) + 1) * width
    # The innermost dimensions are a run of consecutive elements. The next dimension repeats it.
    run = 1
    while steps and steps[0][0] == run:
        run *= steps.pop(0)[1]
    period = steps[0][0] if steps else 0
    if period > run and all(step % period == 0 for step, _ in steps):
        return Span(begin, end, is_written, period * width, run * width)
    return Span(begin, end, is_written)


def spans(reads: Iterable[torch.Tensor], writes: Iterable[torch.Tensor]) -> list[Span]:
    """Returns the spans of an operation that reads and writes these tensors."""
    return [span(each, False) for each in reads] + [span(each, True) for each in writes]


def wait_for_users_of(
    reads: Iterable[torch.Tensor] = (), writes: Iterable[torch.Tensor] = ()
) -> None:
    """Waits for the earlier operations that conflict with a copy of or to these tensors.

    A copy runs at once, before its operation is submitted and waits for earlier operations. So all
    code that copies a tensor of the caller calls this function first.
    """
    if IN_FLIGHT:
        IN_FLIGHT.wait_for_users_of(spans(reads, writes))


# The rank's only GPU, or -1 before the first tensor on a GPU.
_device_index = -1


def _ask_for_stream(device_index: int) -> int:
    """Returns the current stream of a GPU, by creating torch's stream object."""
    return int(torch.cuda.current_stream(device_index).cuda_stream)


# Since torch 2.0, CUDA builds have a function that returns the stream in a single call.
_stream_of: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _ask_for_stream)


def stream(tensor: torch.Tensor) -> int | None:
    """Returns the current stream of `tensor`'s GPU as a cudaStream_t, or None for host memory."""
    if not tensor.is_cuda:
        return None
    global _device_index
    _device_index = tensor.get_device()
    return _stream_of(_device_index)


def current_stream() -> int:
    """Returns the current stream of the rank's GPU, as a cudaStream_t.

    REQUIRES: stream() has been called for a tensor on that GPU.
    """
    return _stream_of(_device_index)


if hasattr(torch.Tensor, "untyped_storage"):  # from torch 2.0 on
    storage: Any = torch.Tensor.untyped_storage
else:
    storage = getattr(torch.Tensor, "_storage")  # noqa: B009


def owners(*tensors: torch.Tensor) -> tuple[Any, ...]:
    """Returns the objects that must stay alive while an operation uses the memory of `tensors`.

    The program may replace the memory of a tensor at any time (`tensor.data = ...`, `set_`), which
    would free the old memory. storage() returns the object that owns a tensor's memory.
    """
    return tuple(map(storage, tensors))


def finish_current_stream() -> None:
    """Waits for all work on the current stream of the rank's GPU. Does nothing without a GPU."""
    if torch.cuda.is_initialized():
        device = _device_index if _device_index >= 0 else None
        torch.cuda.current_stream(device).synchronize()


def allreduce_arguments(
    name: str | None,
    tensor: torch.Tensor,
    output: torch.Tensor,
    op: int,
    *,
    wire: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: int = 0,
    error_feedback: bool = False,
    detect_overflow: bool = False,
    deadline_s: float = 0.0,
) -> _rows.Allreduce:
    """Returns the arguments of native.allreduce_async. A member of a group takes the same
    arguments. The arguments keep both tensors alive.

    Args:
        name: the tensor's name. None means that operations are matched by order.
        tensor: the input, of any shape.
        output: has the same shape and dtype; may be `tensor`.
        op: a ReduceOp.
        wire: a Wire.
        prescale: multiplies the input.
        postscale: multiplies the result.
        process_set: id.
        error_feedback: see ronda_allreduce_args.
        detect_overflow: see ronda_allreduce_args; true if the program will call native.found_inf().
        deadline_s: 0 means the job's deadline.

    Raises:
        ValueError: a tensor cannot be submitted (see check()).
    """
    dtype = check(tensor)
    if output is not tensor:
        check(output)
    return _rows.allreduce(
        name=name,
        dtype=dtype,
        shape=tuple(tensor.shape),
        input=tensor.data_ptr(),
        output=output.data_ptr(),
        keep=owners(tensor, output),
        op=op,
        compression=wire,
        prescale=prescale,
        postscale=postscale,
        process_set=process_set,
        error_feedback=error_feedback,
        detect_overflow=detect_overflow,
        deadline_s=deadline_s,
        stream=stream(tensor),
    )


def copy_of_output(address: int, rows: int, like: torch.Tensor) -> torch.Tensor:
    """Returns a tensor with a copy of a result in Ronda's memory. When the function has returned,
    Ronda's memory may be released on the current stream.

    Args:
        address: the address of the first row, on `like`'s device.
        rows: the number of rows of the result.
        like: a tensor with the same dtype, device and dimensions, except the first.
    """
    result = torch.empty((rows, *like.shape[1:]), dtype=like.dtype, device=like.device)
    count = result.numel() * result.element_size()
    if count == 0:
        return result
    if result.is_cuda:
        memory = torch.as_tensor(DeviceMemory(address, count), device=like.device)
        result.view(-1).view(torch.uint8).copy_(memory)
    else:
        ctypes.memmove(result.data_ptr(), address, count)
    return result


class DeviceMemory:
    """Bytes in GPU memory, in a form that torch.as_tensor() accepts."""

    def __init__(self, address: int, count: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (count,),
            "typestr": "|u1",
            "version": 2,
        }
