# SPDX-License-Identifier: Apache-2.0

"""Helpers for the tests of Apex's optimizers."""

from __future__ import annotations

import unittest

import torch
from torch import nn


def setUpModule() -> None:
    torch.set_num_threads(1)


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    """Returns parameters of several shapes."""
    generator = torch.Generator().manual_seed(3)
    shapes = ((4, 3), (7,), (), (2, 3, 4, 5))
    values = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return [nn.Parameter(value) for value in values]


def set_gradients(several: list[nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for parameter in several:
        gradient = torch.randn(parameter.shape, generator=generator)
        parameter.grad = gradient.to(parameter.dtype)


def trained(make, dtype: torch.dtype = torch.float32, steps: int = 5) -> list[nn.Parameter]:
    """Returns parameters after some steps of the optimizer that `make` creates for them."""
    several = parameters(dtype)
    optimizer = make(several)
    for step in range(steps):
        set_gradients(several, step)
        optimizer.step()
    return several


class OptimizerCase(unittest.TestCase):
    def check(self, found, expected, **tolerance) -> None:
        tolerance = tolerance or {"rtol": 1e-5, "atol": 1e-6}
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(
                ours.detach(), theirs.detach(), check_dtype=False, check_stride=False, **tolerance
            )
