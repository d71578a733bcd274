# SPDX-License-Identifier: Apache-2.0

"""The lane of a group: collectives of a GPU's tensors, in the order of the calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ronda._library import native
from ronda.torch.c10d import _layout, _versions

Tensor = torch.Tensor


def gpu_tensor(arguments: Iterable[Any]) -> Tensor | None:
    """The first tensor of a GPU among a method's arguments."""
    for argument in arguments:
        if isinstance(argument, (list, tuple)):
            argument = gpu_tensor(argument)
        if isinstance(argument, Tensor) and argument.is_cuda:
            return argument
    return None


class Lane:
    """The lane of a process set, if the set has one. The caller's thread gives the GPU the
    collectives (client/ronda/lanes.h).
    """

    def __init__(self, process_set: int) -> None:
        self._process_set = process_set
        self._is_open: bool | None = None  # None: not known yet

    def carries(self, tensor: Tensor | None) -> bool:
        """Whether collectives of this tensor go over the lane.

        Opens the lane, on all ranks, at their first collective of a GPU's tensors.

        Args:
            tensor: of the collective, on a GPU; None if it has no tensor on a GPU.
        """
        if tensor is None:
            return False
        # While a graph is being captured no collective is submitted, and nothing may be allocated.
        if self._is_open is None and not torch.cuda.is_current_stream_capturing():
            buffer = torch.empty(1, device=tensor.device)  # a tensor without elements has no memory
            self._is_open = native.lane_open(self._process_set, buffer.data_ptr())
        return bool(self._is_open)

    def reduces(self, tensor: Tensor, opts: Any) -> bool:
        """Whether the open lane carries a reduction of such tensors, whatever their shape.

        Also true if Ronda has no such reduction. Then the other ranks have called another
        reduction, probably over the lane.

        Args:
            tensor: of the reduction, on a GPU.
            opts: torch's options, with the op.
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
        """Says that this rank will not make its next call. REQUIRES: the open lane carries the
        call.
        """
        native.lane_refuse(self._process_set, " ".join(why.split()))
