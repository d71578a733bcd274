# SPDX-License-Identifier: Apache-2.0

"""Helpers for tests with the stand-in for CUDA, which copy values to the device late."""

from __future__ import annotations

import os

# isort: split
import stand_in  # before torch
import torch

COUNT = 100_003
# Not the first device: a thread that has not chosen a device would use the first one, and the tests
# detect this.
DEVICE = torch.device("cuda", 1 + int(os.environ.get("RONDA_LOCAL_RANK", "0")))
_CYCLES = 100_000_000  # about 50 ms

_constants: dict[float, torch.Tensor] = {}


def on_device(value: float) -> torch.Tensor:
    """Returns a tensor on the device with `value` in all elements, for all streams."""
    if value not in _constants:
        _constants[value] = torch.full((COUNT,), value).to(DEVICE)
        torch.cuda.synchronize(DEVICE)
    return _constants[value]


def fill_late(tensor: torch.Tensor, value: float) -> None:
    """Fills the tensor on the current stream, after the stream has been busy for about 50 ms."""
    source = on_device(value)
    torch.cuda._sleep(_CYCLES)  # type: ignore[no-untyped-call]
    tensor.copy_(source)


def late(value: float) -> torch.Tensor:
    """Returns a tensor that is -1 until the current stream fills it late."""
    tensor = on_device(-1.0).clone()
    fill_late(tensor, value)
    return tensor


def values(tensor: torch.Tensor) -> list[float]:
    """Waits until the device has completed its work. Returns the tensor's distinct values."""
    torch.cuda.synchronize(DEVICE)
    return tensor.cpu().unique().tolist()


class LateGradient(torch.autograd.Function):
    """The identity function. Its gradient arrives late, and has `value` in all elements."""

    @staticmethod
    def forward(ctx, weight: torch.Tensor, value: float) -> torch.Tensor:
        ctx.value = value
        return weight.clone()

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        result = on_device(-1000.0).clone()  # the value if it is read too early
        fill_late(result, ctx.value)
        return result, None


def use_device() -> None:
    """Makes the rank's device the current one. If there is no stand-in, skips the test module."""
    stand_in.require()
    torch.cuda.set_device(DEVICE)


def uses_the_first_device() -> bool:
    """Returns whether this process has used the first device, which no test may use."""
    return stand_in.has_context(0)
