# SPDX-License-Identifier: Apache-2.0

"""Converts tensors of any layout to dense tensors, which Ronda's operations need."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ronda.torch import _tensors
from ronda.types import ReduceOp

Tensor = torch.Tensor
Finish = Callable[[], None] | None


def dense(tensor: Tensor) -> Tensor:
    """Returns the elements in row-major order. Returns `tensor` itself if its memory has this
    order. Otherwise first waits for the earlier operations that change the tensor.

    For a lazily conjugated or negated view, computes the values, because the view's memory has
    different values.
    """
    if is_dense(tensor):
        return tensor
    _tensors.wait_for_users_of(reads=[tensor])
    return tensor.resolve_conj().resolve_neg().contiguous()


def is_dense(tensor: Tensor) -> bool:
    """Returns whether dense() returns `tensor` itself."""
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def flat(tensor: Tensor) -> Tensor:
    """Like dense(), but the result has one dimension."""
    return dense(tensor).view(-1)


def reducible(tensor: Tensor, op: int) -> tuple[int, Tensor]:
    """Returns the DType and the elements of a tensor for a reduction with `op`, a ReduceOp.

    Returns:
        The DType, and a tensor of real elements in row-major order, which is `tensor` itself if
        possible.

    Raises:
        ValueError: Ronda cannot reduce tensors of this dtype, layout or device with `op`.
    """
    elements = dense(tensor)
    if elements.is_complex():
        # Only these operators reduce the real and imaginary parts of complex numbers independently.
        if op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
            raise ValueError(
                f"ReduceOp.{ReduceOp(op).name} of {_tensors.describe(tensor)}: complex numbers can"
                " be reduced with SUM or AVG"
            )
        elements = torch.view_as_real(elements)
    return _tensors.dtype_number(elements), elements


def movable(elements: Tensor) -> tuple[int, Tensor]:
    """Returns the DType and the elements of a dense tensor, for operations that only move it. If
    Ronda does not support the tensor's dtype, the elements are bytes.
    """
    number = _tensors.DTYPES.get(elements.dtype)
    if number is not None:
        return number, elements
    if elements.is_complex():
        return movable(torch.view_as_real(elements))
    return _tensors.DTYPES[torch.uint8], elements.view(torch.uint8)


def counts_of_sent(counts: Sequence[int], data: Tensor, elements: Tensor) -> Sequence[int]:
    """Converts element counts of `data` to row counts of `elements`, the result of movable()."""
    if elements.dtype is data.dtype or elements.dim() > data.dim():
        return counts
    return [count * data.element_size() for count in counts]


def fill(tensor: Tensor, values: Tensor) -> None:
    """Copies values to a tensor. Autograd does not notice the change.

    A tensor that was created in inference mode can only be changed in inference mode. Each thread
    has its own mode, and the program's thread may have left inference mode since the operation
    began.
    """
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        tensor.copy_(values)


def copy_back(tensor: Tensor, result: Tensor) -> Finish:
    """Returns a function that copies a result to the current memory of `tensor`, or None if the
    result is already there.
    """
    if tensor.data_ptr() == result.data_ptr():
        return None
    tensor = tensor.detach()  # the program may give its own tensor other memory
    if tensor.is_complex() and not result.is_complex():
        result = torch.view_as_complex(result)

    return lambda: fill(tensor, result.view(tensor.shape))


def rows(tensor: Tensor, count: int) -> Tensor:
    """Returns a view of a contiguous tensor as `count` rows of the same length.

    Raises:
        ValueError: the number of the tensor's elements is not a multiple of `count`.
    """
    if tensor.numel() % count:
        raise ValueError(f"{_tensors.describe(tensor)} cannot be cut into {count} equal parts")
    return tensor.view(count, tensor.numel() // count)


def in_rows(tensor: Tensor) -> Tensor:
    """Returns a view of a contiguous tensor as a matrix with the same first dimension."""
    if tensor.dim() == 0:
        raise ValueError("a scalar has no first dimension to be split: reshape it to (1,)")
    return tensor.view(tensor.shape[0], math.prod(tensor.shape[1:]))


def check_dtypes(what: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Raises ValueError if the tensors have different dtypes, because outputs are not converted."""
    wanted = inputs[0].dtype
    for name, tensors in (("input", inputs), ("output", outputs)):
        for index, tensor in enumerate(tensors):
            if tensor.dtype is not wanted:
                raise ValueError(
                    f"{what}: {name} {index} is {_tensors.describe(tensor)}, but input 0 is of "
                    f"{wanted}: all tensors of a collective have one dtype"
                )


def check_count(what: str, kind: str, tensors: Sequence[Tensor], size: int) -> None:
    """Raises ValueError if the number of tensors does not equal the number of ranks in the
    group.
    """
    if len(tensors) != size:
        raise ValueError(
            f"{what}: {len(tensors)} {kind} tensors in a group of {size} ranks: pass one for each"
        )


def check_pairs(what: str, outputs: Sequence[Any], inputs: Sequence[Tensor]) -> None:
    """Raises ValueError if there is not one entry of `outputs` for each input."""
    if len(outputs) != len(inputs):
        raise ValueError(
            f"{what}: {len(inputs)} inputs, and outputs for {len(outputs)}: pass one for each"
        )


def _adjacent(tensors: Sequence[Tensor]) -> Tensor | None:
    """Returns a flat view of the memory of all tensors, or None if they are not adjacent in
    memory.
    """
    address = tensors[0].data_ptr()
    for tensor in tensors:
        if not is_dense(tensor) or tensor.data_ptr() != address:
            return None
        address += tensor.numel() * tensor.element_size()
    total = sum(tensor.numel() for tensor in tensors)
    first: Any = tensors[0]
    # Compare the storages, because two separate allocations may be adjacent by chance.
    storage = first.untyped_storage() if hasattr(first, "untyped_storage") else first.storage()
    room = storage.nbytes() // first.element_size() - first.storage_offset()
    if total > room:
        return None
    whole: Tensor = first.detach().as_strided((total,), (1,))
    return whole


def together(tensors: Sequence[Tensor]) -> Tensor:
    """Returns a flat tensor with the elements of all tensors, which is a view if they are adjacent
    in memory.
    """
    whole = _adjacent(tensors)
    if whole is not None:
        return whole
    _tensors.wait_for_users_of(reads=tensors)
    return torch.cat([flat(tensor) for tensor in tensors])


def room_for(tensors: Sequence[Tensor]) -> tuple[Tensor, Finish]:
    """Returns a flat tensor for the results of all tensors, and a function that copies the results
    to the tensors.
    """
    whole = _adjacent(tensors)
    if whole is not None:
        return whole, None
    tensors = [tensor.detach() for tensor in tensors]  # as in copy_back()
    sizes = [tensor.numel() for tensor in tensors]
    room: Any = torch.empty(sum(sizes), dtype=tensors[0].dtype, device=tensors[0].device)

    def finish() -> None:
        for tensor, part in zip(tensors, room.split(sizes)):
            fill(tensor, part.view(tensor.shape))

    return room, finish


def apart(source: Tensor, destination: Tensor) -> Tensor:
    """Returns `source`, or a copy if `source` shares memory with `destination`."""
    return apart_each([source], [destination])[0]


def apart_each(sources: Sequence[Tensor], destinations: Sequence[Tensor]) -> list[Tensor]:
    """Returns `sources`, with a copy in place of each source that shares memory with a destination.

    Args:
        sources: dense tensors.
        destinations: dense tensors that do not share memory with each other.
    """
    begins = sorted((each.data_ptr(), _end(each)) for each in destinations if each.numel())
    result = []
    for source in sources:
        # Of the destinations that begin before the end of the source, the last one ends last.
        before = bisect.bisect_left(begins, (_end(source), 0))
        is_shared = before > 0 and begins[before - 1][1] > source.data_ptr()
        if is_shared:
            _tensors.wait_for_users_of(reads=[source])
        result.append(source.clone() if is_shared else source)
    return result


def _end(tensor: Tensor) -> int:
    return tensor.data_ptr() + tensor.numel() * tensor.element_size()


def memory(room: Tensor | None) -> tuple[int, int]:
    """Returns the address of `room` and its size in bytes, or zeros if Ronda must allocate the
    result.
    """
    return (0, 0) if room is None else (room.data_ptr(), room.numel() * room.element_size())


def all_of(finishes: Sequence[Finish]) -> Finish:
    """Returns a function that calls each function in `finishes`, or None if all are None."""
    calls = [finish for finish in finishes if finish is not None]
    if not calls:
        return None

    def finish() -> None:
        for call in calls:
            call()

    return finish


def sum_of_rows(like: Tensor, indices: Tensor, values: Tensor, factor: float) -> Tensor:
    """Returns the sparse tensor of these rows. Rows with equal indices are added."""
    if values.dtype is torch.bool:
        total = torch.sparse_coo_tensor(indices, values.to(torch.uint8), like.shape).coalesce()
        return torch.sparse_coo_tensor(total._indices(), total._values().bool(), like.shape)
    if factor != 1.0:
        values = values * factor
    return torch.sparse_coo_tensor(indices, values, like.shape).coalesce()
