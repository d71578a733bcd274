# SPDX-License-Identifier: Apache-2.0

"""Tests DDP with gradients that are sent in 16 or 8 bits."""

from __future__ import annotations

import unittest

import ronda.torch.c10d  # noqa: F401
import torch
import torch.distributed as dist
from ronda.torch.ddp_hook import CompressionState, compressed_allreduce
from ronda.types import Wire
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANK = SIZE = 0


def setUpModule() -> None:
    global RANK, SIZE
    torch.set_num_threads(1)
    dist.init_process_group("ronda")
    RANK, SIZE = dist.get_rank(), dist.get_world_size()


def tearDownModule() -> None:
    dist.destroy_process_group()


class Slopes(nn.Module):
    """A module whose gradients equal the arguments of forward()."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.zeros(1000))

    def forward(self, gradients: torch.Tensor) -> torch.Tensor:
        return (self.values * gradients).sum()


def numbers(rank: int) -> torch.Tensor:
    return torch.randn(1000, generator=torch.Generator().manual_seed(rank))


class HookTest(unittest.TestCase):
    # The allowed error, relative to the largest element: half a unit in the last place for each
    # rank.
    TOLERANCES = {Wire.FP16: 1e-3, Wire.BF16: 8e-3, Wire.FP8_E4M3: 0.08, Wire.FP8_E5M2: 0.15}

    def model(self, **options) -> tuple[nn.Module, CompressionState]:
        model = DistributedDataParallel(Slopes())
        state = CompressionState(**options)
        model.register_comm_hook(state, compressed_allreduce)
        return model, state

    def gradient(self, model: nn.Module, of: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        model(of).backward()
        return model.module.values.grad.clone()

    def test_wires(self):
        expected = sum(numbers(rank) for rank in range(SIZE)) / SIZE
        for wire, tolerance in self.TOLERANCES.items():
            with self.subTest(wire=wire.name):
                found = self.gradient(self.model(wire=wire)[0], numbers(RANK))
                error = (found - expected).abs().max() / expected.abs().max()
                self.assertGreater(error, 0)
                self.assertLess(error, tolerance)
                others = [torch.empty_like(found) for _ in range(SIZE)]
                dist.all_gather(others, found)
                for other in others:
                    self.assertTrue(torch.equal(found, other))

    def test_error_feedback(self):
        """Later steps add the rounding errors of earlier steps, so the mean of many steps is nearly
        exact.
        """
        expected = sum(numbers(rank) for rank in range(SIZE)) / SIZE
        errors = []
        for feedback in (False, True):
            model, _ = self.model(wire=Wire.FP8_E4M3, error_feedback=feedback)
            total = sum(self.gradient(model, numbers(RANK)) for _ in range(40))
            errors.append((total / 40 - expected).abs().mean().item())
        self.assertLess(errors[1], errors[0] / 2)

    def test_overflow_is_seen_on_every_rank(self):
        model, state = self.model(wire=Wire.FP16, detect_overflow=True)
        self.gradient(model, numbers(RANK))
        self.assertFalse(state.found_inf())
        self.gradient(model, numbers(RANK) * (1e6 if RANK == 1 else 1))
        self.assertTrue(state.found_inf())
        self.gradient(model, numbers(RANK))
        self.assertFalse(state.found_inf())

    def test_group_of_another_backend(self):
        with self.assertRaisesRegex(ValueError, "backend 'ronda', not 'gloo'"):
            CompressionState(dist.new_group(backend="gloo"))
