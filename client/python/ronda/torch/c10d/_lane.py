# SPDX-License-Identifier: Apache-2.0

"""The lane of a group, which runs collectives on a GPU's tensors in the order of the calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ronda._library import native
from ronda.torch.c10d import _layout, _versions

Tensor = torch.Tensor


def gpu_tensor(arguments: Iterable[Any]) -> Tensor | None:
    """Returns the first tensor on a GPU among a method's arguments."""
    for argument in arguments:
        if isinstance(argument, (list, tuple)):
            argument = gpu_tensor(argument)
        if isinstance(argument, Tensor) and argument.is_cuda:
            return argument
    return None


# The address and the number of elements of what a rank sends to another rank, or receives from it.
Part = tuple[int, int]

NO_PART: Part = (0, 0)


def adjacent_parts(whole: Tensor, counts: Sequence[int]) -> list[Part]:
    """Returns the parts of a flat tensor, which have these numbers of elements."""
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


class Lane:
    """The lane of a process set, if the set has one. With a lane, the caller's thread gives the
    collectives to the GPU (client/ronda/lanes.h).
    """

    def __init__(self, process_set: int) -> None:
        self._process_set = process_set
        self._is_open: bool | None = None  # None: not known yet

    def carries(self, tensor: Tensor | None) -> bool:
        """Returns whether collectives on this tensor use the lane.

        At the first collective on a GPU's tensors, opens the lane; all ranks do so.

        Args:
            tensor: a tensor of the collective on a GPU, or None if the collective has no such
                tensor.
        """
        if tensor is None:
            return False
        # While torch captures a CUDA graph, the lane is not opened, because memory must not be
        # allocated and no collective is submitted.
        if self._is_open is None and not torch.cuda.is_current_stream_capturing():
            buffer = torch.empty(1, device=tensor.device)  # a tensor without elements has no memory
            self._is_open = native.lane_open(self._process_set, buffer.data_ptr())
        return bool(self._is_open)

    def reduces(self, tensor: Tensor, opts: Any) -> bool:
        """Returns whether a reduction of tensors of this kind, of any shape, uses the open lane.

        The result is also true if Ronda does not support the reduction, because the other ranks
        have then called another reduction, which probably uses the lane.

        Args:
            tensor: a tensor on a GPU that is reduced.
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
        """Tells the other ranks that this rank will not make its next call of the lane. REQUIRES:
        the lane is open, and the call would use it.
        """
        native.lane_refuse(self._process_set, " ".join(why.split()))
