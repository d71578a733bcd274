"""What the C ABI wants to know of a torch tensor: dtype, shape, address, stream.

A tensor can be submitted if it is dense and row-major, in host memory or on a CUDA device. The
checks are in one place and by hand: a gradient's submission should cost a few attribute look-ups.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ronda._in_flight import Span
from ronda.types import DType

DTYPES: dict[torch.dtype, int] = {
    torch.uint8: int(DType.UINT8),
    torch.int8: int(DType.INT8),
    torch.int16: int(DType.INT16),
    torch.int32: int(DType.INT32),
    torch.int64: int(DType.INT64),
    torch.float16: int(DType.FLOAT16),
    torch.bfloat16: int(DType.BFLOAT16),
    torch.float32: int(DType.FLOAT32),
    torch.float64: int(DType.FLOAT64),
    torch.bool: int(DType.BOOL),
}
# From torch 2.3 on.
for _name in ("uint16", "uint32", "uint64"):
    if hasattr(torch, _name):
        DTYPES[getattr(torch, _name)] = int(DType[_name.upper()])

TORCH_DTYPES: dict[int, torch.dtype] = {number: dtype for dtype, number in DTYPES.items()}


def describe(tensor: torch.Tensor) -> str:
    """`tensor` in words, for error texts."""
    layout = "" if tensor.layout is torch.strided else f" {tensor.layout}"
    return f"a{layout} tensor of {tensor.dtype}, shape {tuple(tensor.shape)}, on {tensor.device}"


def dtype_number(tensor: torch.Tensor) -> int:
    """The DType of `tensor`, after all checks that do not concern the order of its elements.

    Raises:
        ValueError: it is no tensor, or the layout, the device or the dtype is not one that Ronda
            can reduce.
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
    """The DType of a tensor that can be submitted as it is.

    Raises:
        ValueError: as of dtype_number(), or the memory of the tensor does not hold its elements
            one after the other.
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
    """`tensor`, or a copy whose memory holds the elements of a lazily negated view."""
    is_negated = isinstance(tensor, torch.Tensor) and tensor.is_neg()
    return tensor.resolve_neg() if is_negated else tensor


def span(tensor: torch.Tensor, is_written: bool) -> Span:
    """The memory of a tensor that an operation reads, or writes; nothing for a sparse tensor."""
    if tensor.layout is not torch.strided or not (elements := tensor.numel()):
        return Span(0, 0, is_written)
    begin = tensor.data_ptr()
    if not tensor.is_contiguous():
        # With gaps: all that lies between its first element and its last.
        strides = zip(tensor.shape, tensor.stride())
        elements = sum((size - 1) * step for size, step in strides) + 1
    return Span(begin, begin + elements * tensor.element_size(), is_written)


def spans(reads: Iterable[torch.Tensor], writes: Iterable[torch.Tensor]) -> list[Span]:
    """The memory that an operation uses that reads some tensors and writes others."""
    return [span(each, False) for each in reads] + [span(each, True) for each in writes]


# The GPU of the tensors: a rank has one. -1: there has been no tensor on a GPU.
_device_index = -1


def _ask_for_stream(device_index: int) -> int:
    """The current stream of a GPU, by way of an object for it."""
    return int(torch.cuda.current_stream(device_index).cuda_stream)


# From torch 2.0 on in one call, where torch is built for CUDA.
_stream_of: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _ask_for_stream)


def stream(tensor: torch.Tensor) -> int | None:
    """The current stream of `tensor`'s device as a cudaStream_t; None for host memory."""
    if not tensor.is_cuda:
        return None
    global _device_index
    _device_index = tensor.get_device()
    return _stream_of(_device_index)


def current_stream() -> int:
    """The current stream of the GPU that the rank's tensors are on, as a cudaStream_t.

    REQUIRES: stream() has been asked for that of a tensor on it.
    """
    return _stream_of(_device_index)


if hasattr(torch.Tensor, "untyped_storage"):  # from torch 2.0 on
    storage: Any = torch.Tensor.untyped_storage
else:
    storage = getattr(torch.Tensor, "_storage")  # noqa: B009


def owners(*tensors: torch.Tensor) -> tuple[Any, ...]:
    """What has to be kept while an operation works on the memory of `tensors`.

    A tensor that the program keeps may be given other memory at any time (`tensor.data = ...`,
    `set_`), which frees what it had. storage() of it is the owner of the memory itself.
    """
    return tuple(map(storage, tensors))


def finish_current_stream() -> None:
    """Waits for all work on the current stream of the rank's GPU; without a GPU does nothing."""
    if torch.cuda.is_initialized():
        device = _device_index if _device_index >= 0 else None
        torch.cuda.current_stream(device).synchronize()


def in_order(tensor: torch.Tensor) -> bool:
    """Whether the elements lie without gaps in some order of the dimensions, as with channels_last.

    An elementwise operation can work on the memory of such a tensor as it is, if all ranks have
    the same strides.
    """
    expected = 1
    for size, step in sorted(zip(tensor.shape, tensor.stride()), key=lambda pair: pair[1]):
        if size == 1:
            continue
        if step != expected:
            return False
        expected *= size
    return True


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
) -> tuple[Any, ...]:
    """The arguments of native.allreduce_async, of a row of a group as well. Both tensors are kept.

    Args:
        name: of the tensor; None where operations match by order.
        tensor: input of any shape.
        output: of the same shape and dtype; may be `tensor`.
        op: a ReduceOp.
        wire: a Wire.
        prescale: factor of the input.
        postscale: factor of the result.
        process_set: id.
        error_feedback: see ronda_allreduce_args; so the next two.
        detect_overflow: whether native.found_inf() will be asked.
        deadline_s: 0 for the job's.

    Raises:
        ValueError: a tensor cannot be submitted (see check()).
    """
    dtype = check(tensor)
    if output is not tensor:
        check(output)
    return (
        name,
        dtype,
        tuple(tensor.shape),
        tensor.data_ptr(),
        output.data_ptr(),
        owners(tensor, output),
        op,
        wire,
        prescale,
        postscale,
        process_set,
        error_feedback,
        detect_overflow,
        deadline_s,
        stream(tensor),
    )


def copy_of_output(address: int, rows: int, like: torch.Tensor) -> torch.Tensor:
    """A tensor with a result in memory of Ronda's; that may be given back on the current stream.

    Args:
        address: of the first row, on `like`'s device.
        rows: first dimension of the result.
        like: tensor of the same dtype, device, and dimensions but the first.
    """
    result = torch.empty((rows, *like.shape[1:]), dtype=like.dtype, device=like.device)
    count = result.numel() * result.element_size()
    if count == 0:
        return result
    if result.is_cuda:
        memory = torch.as_tensor(_DeviceMemory(address, count), device=like.device)
        result.view(-1).view(torch.uint8).copy_(memory)
    else:
        ctypes.memmove(result.data_ptr(), address, count)
    return result


class _DeviceMemory:
    """Bytes of a GPU's memory, as torch.as_tensor() takes them."""

    def __init__(self, address: int, count: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (count,),
            "typestr": "|u1",
            "version": 2,
        }
