# SPDX-License-Identifier: Apache-2.0

"""Places gradients in the memory that all ranks have registered with NCCL together, where NCCL
reduces them without a copy (RONDA_GRADIENT_MEMORY_MB).
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from ronda._library import native
from ronda.errors import RondaError
from ronda.torch import _tensors
from ronda.torch._gradient import Gradient, Reduction
from ronda.types import ReduceOp, Wire


class Rooms:
    """The rooms of a reducer's gradients in the memory.

    The ranks compare the places whenever they have changed, and pack gradients at different places.
    So a rank may fail to make rooms.
    """

    def __init__(self) -> None:
        self._placed: list[Gradient] = []
        self._has_warned = False

    def lay_out(self, gradients: Sequence[Gradient], reduction: Reduction) -> None:
        """Gives gradients on a GPU rooms, one after the other, unless they have these rooms.

        A gradient in an earlier room keeps the earlier rooms' block allocated. So both blocks must
        have room in the memory. If there is no room, warns once.

        Args:
            gradients: in the order in which they are reduced.
            reduction: how they are reduced. Gradients that NCCL cannot reduce in place get no room.
        """
        if reduction.op is ReduceOp.ADASUM:
            return
        placed = [
            each
            for each in gradients
            if each.parameter.is_cuda
            and each.parameter.requires_grad
            and reduction.wire(each.dtype) is Wire.NONE
        ]
        if placed == self._placed and all(each.room is not None for each in placed):
            return
        self._drop()
        self._placed = placed
        for dtype in dict.fromkeys(each.dtype for each in placed):
            members = [each for each in placed if each.dtype is dtype]
            sizes = [each.parameter.numel() for each in members]
            memory = self._allocate(sum(sizes), members[0])
            if memory is None:
                return
            for gradient, part in zip(members, memory.split(sizes)):
                # With `data`, changes of one gradient do not count as changes of the others.
                gradient.room = part.as_strided(gradient.shape, gradient.strides).data
                _watch(gradient)

    def end_epoch(self) -> None:
        """Drops the rooms, because the next epoch has other memory."""
        self._drop()
        self._has_warned = False

    def _drop(self) -> None:
        for gradient in self._placed:
            gradient.room = None
        self._placed = []

    def _allocate(self, elements: int, first: Gradient) -> torch.Tensor | None:
        """Returns a flat tensor in the memory, with the first gradient's dtype and device; None if
        there is no memory, or no room in it.
        """
        device = first.parameter.device
        stream = torch.cuda.current_stream(device)
        count = elements * first.parameter.element_size()
        try:
            address = native.gradient_allocate(count, stream.cuda_stream)
        except RondaError as error:
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(
                    f"gradients are copied before they are reduced: {error}", stacklevel=2
                )
            return None
        if address == 0:
            return None
        block = _tensors.DeviceMemory(address, count)
        weakref.finalize(block, _free, address, stream).atexit = False
        return torch.as_tensor(block, device=device).view(first.dtype)  # keeps `block` alive


def _watch(gradient: Gradient) -> None:
    """Makes autograd record in each step whether it makes the gradient, or adds to a tensor that
    the parameter already has.
    """
    if gradient.is_watched:
        return
    gradient.is_watched = True
    watched = weakref.ref(gradient)

    def before_accumulation(_: Any) -> None:
        its = watched()
        if its is not None and its.parameter.grad is None:
            its.is_new = True

    hook: Any = gradient.parameter.register_hook(before_accumulation)  # type: ignore[no-untyped-call]
    weakref.finalize(gradient, hook.remove).atexit = False


def _free(address: int, stream: torch.cuda.Stream) -> None:
    """Called when no tensor is in the block any more, on any thread. The block was allocated on
    `stream`, whose work may still use it.
    """
    current = torch.cuda.current_stream(stream.device)
    current.wait_stream(stream)
    native.lane_free(address, current.cuda_stream)
