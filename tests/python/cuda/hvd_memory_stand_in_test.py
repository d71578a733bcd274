# SPDX-License-Identifier: Apache-2.0

"""Tests gradients in the memory that all ranks have registered with NCCL together
(RONDA_GRADIENT_MEMORY_MB=2), with PyTorch's own CUDA code and without a GPU.
"""

from __future__ import annotations

import ctypes
import gc
import os
import unittest
import warnings

from late_values import (  # isort: skip  # before torch
    COUNT,
    on_device,
    use_device,
    values,
)
import ronda.torch as hvd
import torch
from ronda._library import native
from torch import nn

BYTES = COUNT * 4
STEPS = 25  # after 20 steps the schedule is locked
TOTAL = 3.0  # of two ranks


def setUpModule() -> None:
    use_device()
    hvd.init()
    hvd.allreduce(on_device(1.0), name="first")  # makes the memory


def tearDownModule() -> None:
    torch.cuda.synchronize()
    hvd.shutdown()


def sums_in_windows() -> int:
    """Returns how many calls of NCCL this process has made on symmetric windows."""
    fake = ctypes.CDLL(os.environ["RONDA_NCCL_LIBRARY"])
    return int(fake.fake_nccl_calls(b"symmetric"))


def allocate(count: int) -> int:
    return native.gradient_allocate(count, torch.cuda.current_stream().cuda_stream)


def free(block: int) -> None:
    native.lane_free(block, torch.cuda.current_stream().cuda_stream)


class OwnGradient(torch.autograd.Function):
    """The identity function. Its gradient is this rank's number plus 1, without kernels."""

    @staticmethod
    def forward(ctx, weight: torch.Tensor) -> torch.Tensor:
        return weight.clone()

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        return on_device(float(hvd.rank() + 1)).clone()


class GradientMemoryTest(unittest.TestCase):
    def train(self, name: str, count: int = 3) -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
        """Makes steps, and returns the parameters and the optimizer after the last one."""
        weights = [nn.Parameter(on_device(0.0).clone()) for _ in range(count)]
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(weights, lr=1.0),
            named_parameters=[(f"{name}{i}", weight) for i, weight in enumerate(weights)],
            op=hvd.Sum,
        )
        for step in range(STEPS):
            optimizer.zero_grad()
            outputs = [OwnGradient.apply(weight) for weight in weights]
            torch.autograd.backward(outputs, [on_device(1.0)] * count)
            optimizer.synchronize()
            for weight in weights:
                assert weight.grad is not None
                self.assertEqual(values(weight.grad.clone()), [TOTAL], f"step {step}")
        return weights, optimizer

    def test_gradients_are_reduced_in_the_memory(self):
        before = sums_in_windows()
        weights, optimizer = self.train("inside")
        self.assertGreater(sums_in_windows(), before)
        # They lie in the order in which backward has computed them.
        addresses = sorted(weight.grad.data_ptr() for weight in weights)
        self.assertEqual(addresses[2] - addresses[0], 2 * BYTES)
        # A gradient that is in the memory already is not copied.
        gradient = weights[0].grad
        before = sums_in_windows()
        for weight in weights:
            weight.grad.copy_(on_device(float(hvd.rank() + 1)))
        optimizer.synchronize()
        self.assertGreater(sums_in_windows(), before)
        self.assertIs(weights[0].grad, gradient)
        del optimizer
        gc.collect()
        self.assertEqual(values(gradient.clone()), [TOTAL], "the memory is not free yet")

    def test_the_memory_is_free_when_no_gradient_is_in_it(self):
        self.train("freed")
        gc.collect()
        block = allocate(2 << 20)
        self.assertNotEqual(block, 0)
        free(block)

    def test_gradients_at_different_places_are_copied(self):
        block = allocate(512) if hvd.rank() == 1 else 0
        before = sums_in_windows()
        self.train("apart")
        self.assertEqual(sums_in_windows(), before)
        if block != 0:
            free(block)

    def test_gradients_of_one_rank_outside_are_copied(self):
        block = allocate(2 << 20) if hvd.rank() == 1 else 0
        before = sums_in_windows()
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            self.train("outside")
        self.assertEqual(sums_in_windows(), before)
        texts = [str(each.message) for each in raised if "copied" in str(each.message)]
        self.assertEqual(len(texts), hvd.rank())
        if block != 0:
            self.assertIn("RONDA_GRADIENT_MEMORY_MB on rank 0", texts[0])
            free(block)
