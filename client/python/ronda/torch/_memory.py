# SPDX-License-Identifier: Apache-2.0

"""Places gradients in the memory that all ranks have registered with NCCL together, where NCCL
reduces them without a copy (RONDA_GRADIENT_MEMORY_MB).
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence

import torch

from ronda._library import native
from ronda.errors import RondaError
from ronda.torch import _tensors
from ronda.torch._gradient import Gradient, Reduction
from ronda.types import Wire


def lay_out(gradients: Sequence[Gradient], reduction: Reduction) -> None:
    """Gives gradients on a GPU rooms in the memory, one after the other, unless they have rooms.

    The ranks compare the places whenever they have changed, and copy gradients at different places.
    So a rank may fail to make rooms.

    Args:
        gradients: in the order in which they are reduced.
        reduction: how they are reduced. Gradients that are sent in another format get no room.
    """
    placed = [
        each
        for each in gradients
        if each.parameter.is_cuda and reduction.wire(each.dtype) is Wire.NONE
    ]
    if any(each.room is not None for each in placed):
        return
    for dtype in dict.fromkeys(each.dtype for each in placed):
        members = [each for each in placed if each.dtype is dtype]
        sizes = [each.parameter.numel() for each in members]
        memory = _allocate(sum(sizes), members[0].parameter)
        if memory is None:
            return
        for gradient, part in zip(members, memory.split(sizes)):
            # With `data`, changes of one gradient do not count as changes of the others.
            gradient.room = part.as_strided(gradient.shape, gradient.strides).data


def _allocate(elements: int, like: torch.Tensor) -> torch.Tensor | None:
    """Returns a flat tensor in the memory, with the dtype and device of `like`; None if there is no
    memory. If the memory has no room, warns and returns None.
    """
    count = elements * like.element_size()
    try:
        address = native.gradient_allocate(count, _tensors.stream(like) or 0)
    except RondaError as error:
        warnings.warn(f"gradients are copied before they are reduced: {error}", stacklevel=2)
        return None
    if address == 0:
        return None
    block = _tensors.DeviceMemory(address, count)
    weakref.finalize(block, _free, address, like.device).atexit = False
    return torch.as_tensor(block, device=like.device).view(like.dtype)  # keeps `block` alive


def _free(address: int, device: torch.device) -> None:
    """Called when no tensor is in the block any more."""
    native.lane_free(address, torch.cuda.current_stream(device).cuda_stream)
