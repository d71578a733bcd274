# SPDX-License-Identifier: Apache-2.0

"""The lane of a group, which runs collectives on GPU tensors in call order."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ronda._library import native
from ronda.errors import InvalidArgumentError
from ronda.torch import _tensors
from ronda.torch.c10d import _layout, _versions

Tensor = torch.Tensor

# ronda_lane_allocate_function and ronda_lane_free_function in client/ronda/lanes.h.
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)


def _memory_of(process_set: int, tensor: Tensor) -> range:
    """Returns the addresses of the memory of an open lane. The first block of the memory has the
    lowest address, so this function allocates a block and frees it.

    REQUIRES: no block of the memory is in use.

    Args:
        process_set: the id of the process set.
        tensor: a tensor on the lane's GPU.

    Raises:
        InvalidArgumentError: the lane has no memory, or its memory has no allocator.
    """
    allocate, free = native.lane_allocator(process_set)
    place = tensor.get_device(), _tensors.stream(tensor)
    begin = _ALLOCATE(allocate)(1, *place)
    if begin is None:
        raise InvalidArgumentError(native.last_error())
    _FREE(free)(begin, 1, *place)
    return range(begin, begin + native.lane_memory(process_set))


def gpu_tensor(arguments: Iterable[Any]) -> Tensor | None:
    """Returns the first tensor on a GPU among a method's arguments."""
    for argument in arguments:
        if isinstance(argument, (list, tuple)):
            argument = gpu_tensor(argument)
        if isinstance(argument, Tensor) and argument.is_cuda:
            return argument
    return None


# The address and the number of the elements that a rank sends to another rank, or receives from it.
Part = tuple[int, int]

NO_PART: Part = (0, 0)


def adjacent_parts(whole: Tensor, counts: Sequence[int]) -> list[Part]:
    """Divides a flat tensor into parts with these numbers of elements."""
    _, moved = _layout.movable(whole)
    factor = whole.element_size() // moved.element_size()
    parts, address = [], moved.data_ptr()
    for count in counts:
        parts.append((address, count * factor))
        address += count * whole.element_size()
    return parts


def part_of(tensor: Tensor) -> Part:
    """Returns a dense tensor as a part."""
    _, moved = _layout.movable(tensor.view(-1))
    return moved.data_ptr(), moved.numel()


def _copies(tensor: Tensor) -> str:
    """Describes a copy for error texts. The other ranks get only the beginnings of these texts."""
    return (
        f"Ronda would have to copy {_tensors.describe(tensor)} out of this memory "
        "(RONDA_LANE_MEMORY_MB), perhaps on this rank only"
    )


class Lane:
    """The lane of a process set, if the set has one. With a lane, the calling thread launches the
    collectives on the GPU (client/ronda/lanes.h).
    """

    def __init__(self, process_set: int, position: int) -> None:
        """
        Args:
            process_set: the id of the process set.
            position: the position of this rank in the set.
        """
        self._process_set = process_set
        self._position = position
        self._is_open: bool | None = None  # None: not known yet
        self.memory = range(0)  # the addresses of the open lane's memory for tensors
        self.why_no_memory = ""  # set if the open lane has no such memory

    def carries(self, tensor: Tensor | None) -> bool:
        """Returns whether collectives on this tensor use the lane.

        Opens the lane at the first collective on GPU tensors, as all ranks do.

        Args:
            tensor: a GPU tensor of the collective, or None if it has none.

        Raises:
            InvalidArgumentError: the lane is not open, and a CUDA graph is being captured.
        """
        return tensor is not None and self.open(tensor.device)

    def open(self, device: torch.device) -> bool:
        """Opens the lane, unless it has been opened before; all ranks do so.

        Returns:
            Whether the lane is open.

        Raises:
            InvalidArgumentError: the lane is not open, and a CUDA graph is being captured.
        """
        if self._is_open is None:
            if torch.cuda.is_current_stream_capturing():
                raise InvalidArgumentError(
                    "a CUDA graph is being captured, and this group has not used the GPU yet: make "
                    "one collective of the group on a tensor of the GPU before the capture"
                )
            buffer = torch.empty(1, device=device)  # a tensor without elements has no memory
            self._is_open = native.lane_open(self._process_set, buffer.data_ptr())
            try:
                self.memory = _memory_of(self._process_set, buffer)
            except InvalidArgumentError as error:
                self.why_no_memory = str(error)
        return bool(self._is_open)

    def gathered(self, data: Tensor, room: Tensor) -> Tensor:
        """Returns the input of a gather into `room`: `data`, or a copy if they share memory.

        An open lane needs no copy if `data` is this rank's part of `room`.

        Args:
            data: the dense tensor of this rank.
            room: the flat tensor for the parts of all ranks.
        """
        own = room.data_ptr() + self._position * data.numel() * data.element_size()
        if self._is_open and data.is_cuda and data.data_ptr() == own:
            return data
        return self.apart(data, room)

    def scattered(self, data: Tensor, room: Tensor) -> Tensor:
        """Returns the input of a reduce_scatter into `room`: `data`, or a copy if they share
        memory.

        If `room` is this rank's part of `data`, all ranks make a copy, so the lane's memory may be
        copied, too.

        Args:
            data: the dense tensor with the parts of all ranks.
            room: the dense tensor for this rank's part.
        """
        own = data.data_ptr() + self._position * room.numel() * room.element_size()
        is_in_place = room.data_ptr() == own
        return _layout.apart(data, room) if is_in_place else self.apart(data, room)

    def apart(self, source: Tensor, destination: Tensor) -> Tensor:
        """As _layout.apart(), but never copies a tensor in the lane's memory; see apart_each()."""
        return self.apart_each([source], [destination])[0]

    def apart_each(self, sources: Sequence[Tensor], destinations: Sequence[Tensor]) -> list[Tensor]:
        """As _layout.apart_each(), but never copies a tensor in the lane's memory. The other ranks
        may need no copy, and NCCL needs memory of the same kind on all ranks.

        Raises:
            InvalidArgumentError: a tensor in the lane's memory needs a copy.
        """
        results = _layout.apart_each(sources, destinations)
        for source, result in zip(sources, results):
            if result is not source and source.data_ptr() in self.memory:
                raise InvalidArgumentError(
                    "input and output share memory of the lane: "
                    f"{_copies(source)}: pass tensors that do not overlap. The input of an "
                    "all_gather may also be this rank's own part of the output"
                )
        return results

    def begin(self, tensors: Sequence[Tensor]) -> None:
        """Opens the lane at the first collective on GPU tensors. Checks that the layout of these
        tensors of a collective does not make Ronda copy the lane's memory.

        Raises:
            InvalidArgumentError: a tensor in the lane's memory needs a copy; or as carries().
        """
        self.carries(gpu_tensor(tensors))
        if not self.memory:
            return
        for tensor in tensors:
            if tensor.layout is not torch.strided or _layout.is_dense(tensor):
                continue
            if tensor.data_ptr() in self.memory:
                raise InvalidArgumentError(
                    f"not contiguous, in memory of the lane: {_copies(tensor)}. Its strides are "
                    f"{tensor.stride()}: pass a contiguous tensor"
                )

    def reduces(self, tensor: Tensor, opts: Any) -> bool:
        """Returns whether the open lane serves reductions of tensors like this one, of any shape.

        Also returns true if Ronda does not support the reduction: the other ranks have then called
        a different one, which probably uses the lane.

        Args:
            tensor: a GPU tensor to reduce.
            opts: torch's options, which contain the reduce op.
        """
        if tensor.is_sparse:
            return False
        try:
            op, factor = _versions.reduce_op(opts)
            number, _ = _layout.reducible(tensor.new_empty(0), op)
        except (NotImplementedError, TypeError, ValueError):
            return True
        return native.lane_reduces(self._process_set, number, op, factor)

    def refuse(self, why: str) -> None:
        """Tells the other ranks that this rank will not make its next call on the lane. REQUIRES:
        the lane is open, and the call would use it.
        """
        native.lane_refuse(self._process_set, " ".join(why.split()))
