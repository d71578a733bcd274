# SPDX-License-Identifier: Apache-2.0

"""Helpers for tests on a GPU, such as slow work."""

from __future__ import annotations

import os
import unittest

import torch

# The rank's device. If there is a single GPU, all ranks share it.
HAS_GPU = torch.cuda.is_available()
LOCAL_RANK = int(os.environ.get("RONDA_LOCAL_RANK", "0"))
DEVICE = (
    torch.device("cuda", LOCAL_RANK % torch.cuda.device_count()) if HAS_GPU else torch.device("cpu")
)
_CYCLES = 100_000_000  # about 50 ms


def use_device() -> None:
    """Makes the rank's GPU the current one."""
    torch.set_num_threads(1)
    if not HAS_GPU:
        raise unittest.SkipTest("there is no GPU")
    torch.cuda.set_device(DEVICE)


def fill_late(tensor: torch.Tensor, value: float) -> None:
    """Fills the tensor on the current stream, after the stream has been busy for about 50 ms."""
    torch.cuda._sleep(_CYCLES)  # type: ignore[no-untyped-call]
    tensor.fill_(value)


class Slow(torch.autograd.Function):
    """The identity function, whose gradient takes about 50 ms."""

    @staticmethod
    def forward(ctx, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        result = torch.full_like(gradient, -1000.0)  # the value if it is read too early
        torch.cuda._sleep(_CYCLES)  # type: ignore[no-untyped-call]
        return result.copy_(gradient)
