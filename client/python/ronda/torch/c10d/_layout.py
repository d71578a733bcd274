"""Tensors of any layout as the dense memory that an operation of Ronda reads or writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ronda.torch import _tensors

Tensor = torch.Tensor
Finish = Callable[[], None] | None


def reducible(tensor: Tensor) -> tuple[int, Tensor]:
    """The DType and the elements of a tensor that is to be reduced.

    Returns:
        A tensor in row-major order, `tensor` itself if it can be; its elements are real.

    Raises:
        ValueError: Ronda cannot reduce tensors of this dtype, layout or device.
    """
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return _tensors.dtype_number(tensor), tensor.contiguous()


def movable(flat: Tensor) -> tuple[int, Tensor]:
    """The same of a contiguous tensor that is only moved: as bytes, if need be."""
    number = _tensors.DTYPES.get(flat.dtype)
    if number is not None:
        return number, flat
    if flat.is_complex():
        return movable(torch.view_as_real(flat))
    return _tensors.DTYPES[torch.uint8], flat.view(torch.uint8)


def copy_back(tensor: Tensor, dense: Tensor) -> Finish:
    """What brings a result in `dense` to `tensor`: nothing if they share their memory."""
    if tensor.data_ptr() == dense.data_ptr():
        return None
    if tensor.is_complex() and not dense.is_complex():
        dense = torch.view_as_complex(dense)

    def finish() -> None:
        tensor.copy_(dense.view(tensor.shape))

    return finish


def rows(tensor: Tensor, count: int) -> Tensor:
    """A contiguous tensor as `count` rows of the same length.

    Raises:
        ValueError: the number of its elements is not a multiple of `count`.
    """
    if tensor.numel() % count:
        raise ValueError(f"{_tensors.describe(tensor)} cannot be cut into {count} equal parts")
    return tensor.view(count, tensor.numel() // count)


def in_rows(tensor: Tensor) -> Tensor:
    """A contiguous tensor as a matrix: its first dimension, and all others together."""
    if tensor.dim() == 0:
        raise ValueError("a scalar has no first dimension to be split: reshape it to (1,)")
    return tensor.view(tensor.shape[0], math.prod(tensor.shape[1:]))


def _adjacent(tensors: Sequence[Tensor]) -> Tensor | None:
    """One flat tensor over the memory of all, if they lie there one behind the other."""
    address = tensors[0].data_ptr()
    for tensor in tensors:
        if not tensor.is_contiguous() or tensor.data_ptr() != address:
            return None
        address += tensor.numel() * tensor.element_size()
    total = sum(tensor.numel() for tensor in tensors)
    first: Any = tensors[0]
    # Memory of two allocations may be adjacent by chance.
    storage = first.untyped_storage() if hasattr(first, "untyped_storage") else first.storage()
    room = storage.nbytes() // first.element_size() - first.storage_offset()
    if total > room:
        return None
    flat: Tensor = first.as_strided((total,), (1,))
    return flat


def together(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of all tensors in one flat tensor: a view of them if they are adjacent."""
    flat = _adjacent(tensors)
    return torch.cat([tensor.reshape(-1) for tensor in tensors]) if flat is None else flat


def room_for(tensors: Sequence[Tensor]) -> tuple[Tensor, Finish]:
    """A flat tensor to which the results for all tensors can go, and what deals them out."""
    flat = _adjacent(tensors)
    if flat is not None:
        return flat, None
    sizes = [tensor.numel() for tensor in tensors]
    room: Any = torch.empty(sum(sizes), dtype=tensors[0].dtype, device=tensors[0].device)

    def finish() -> None:
        for tensor, part in zip(tensors, room.split(sizes)):
            tensor.copy_(part.view(tensor.shape))

    return room, finish


def apart(source: Tensor, destination: Tensor) -> Tensor:
    """`source`, or a copy of it if it shares memory with `destination`."""
    begin, other = source.data_ptr(), destination.data_ptr()
    is_shared = (
        begin < other + destination.numel() * destination.element_size()
        and other < begin + source.numel() * source.element_size()
    )
    return source.clone() if is_shared else source


def memory(room: Tensor | None) -> tuple[int, int]:
    """Address and size in bytes; zeros where Ronda is to allocate the result."""
    return (0, 0) if room is None else (room.data_ptr(), room.numel() * room.element_size())


def all_of(finishes: Sequence[Finish]) -> Finish:
    """What calls each of them; None if there is nothing to call."""
    calls = [finish for finish in finishes if finish is not None]
    if not calls:
        return None

    def finish() -> None:
        for call in calls:
            call()

    return finish
