# SPDX-License-Identifier: Apache-2.0

"""Tests gradients in the memory that all ranks have registered with NCCL together
(RONDA_GRADIENT_MEMORY_MB=8), with PyTorch's own CUDA code and without a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import unittest
import warnings
from collections.abc import Iterator, Sequence

from late_values import (  # isort: skip  # before torch
    COUNT,
    on_device,
    use_device,
    values,
)
import ronda.torch as hvd
import torch
from ronda._library import native
from ronda.torch import _tensors
from torch import nn

BYTES = COUNT * 4
STEPS = 25  # after 20 steps the schedule is locked
TOTAL = 3.0  # of the two ranks' numbers, each plus 1
MEMORY = 8 << 20


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
    """The identity function. Its gradient is this rank's number plus 1, times `factor`."""

    @staticmethod
    def forward(ctx, weight: torch.Tensor, factor: int) -> torch.Tensor:
        ctx.factor = factor
        return weight.clone()

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return own(ctx.factor, gradient.dtype).clone(), None


def own(factor: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Returns this rank's part of the sum `factor` * TOTAL."""
    return of_dtype(float((hvd.rank() + 1) * factor), dtype)


def of_dtype(value: float, dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor on the device with `value` in all elements, made without kernels."""
    if dtype is torch.float32:
        return on_device(value)
    key = value, dtype
    if key not in _others:
        _others[key] = torch.full((COUNT,), value, dtype=dtype).to(on_device(0.0).device)
        torch.cuda.synchronize()
    return _others[key]


_others: dict[tuple[float, torch.dtype], torch.Tensor] = {}


class Training:
    """Parameters and their optimizer. The sum of gradient i is TOTAL * (i + 1)."""

    def __init__(
        self, name: str, dtypes: Sequence[torch.dtype] = (torch.float32,) * 3, passes: int = 1
    ) -> None:
        self.passes = passes
        self.weights = [nn.Parameter(of_dtype(0.0, dtype).clone()) for dtype in dtypes]
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(self.weights, lr=1.0),
            named_parameters=[(f"{name}{i}", each) for i, each in enumerate(self.weights)],
            op=hvd.Sum,
            backward_passes_per_step=passes,
        )

    def add(self) -> None:
        """Adds a parameter, whose gradient backward computes last."""
        self.weights.insert(0, nn.Parameter(on_device(0.0).clone()))
        self.optimizer.add_param_group({"params": self.weights[:1]})

    def backward(self) -> None:
        outputs = [OwnGradient.apply(each, i + 1) for i, each in enumerate(self.weights)]
        ones = [of_dtype(1.0, each.dtype) for each in self.weights]
        torch.autograd.backward(outputs, ones)

    def step(self) -> None:
        """Makes a step after zero_grad(). Does not change the parameters."""
        self.optimizer.zero_grad()
        self.reduce()

    def reduce(self) -> None:
        """Computes the gradients and checks their sums. Adding to a gradient has no effect, because
        the stand-in has no kernels.
        """
        for _ in range(self.passes):
            self.backward()
        self.optimizer.synchronize()
        for i, weight in enumerate(self.weights):
            assert weight.grad is not None
            sums = values(weight.grad.clone())
            assert sums == [TOTAL * (i + 1)], f"gradient {i}: {sums}"

    def run(self, steps: int = STEPS) -> Training:
        for _ in range(steps):
            self.step()
        return self


@contextlib.contextmanager
def warnings_of_copies() -> Iterator[list[str]]:
    """Yields a list, which gets the warnings about gradients that have no room in the memory."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        yield texts
    texts += [str(each.message) for each in raised if "copied" in str(each.message)]


class GradientMemoryTest(unittest.TestCase):
    def tearDown(self) -> None:
        gc.collect()

    def assert_in_windows(self, training: Training) -> None:
        """Expects that NCCL reduces the gradients of a step in the memory."""
        before = sums_in_windows()
        training.step()
        self.assertGreater(sums_in_windows(), before)

    def assert_packed(self, training: Training) -> None:
        before = sums_in_windows()
        training.step()
        self.assertEqual(sums_in_windows(), before)

    def test_gradients_are_reduced_in_the_memory(self):
        training = Training("inside").run()
        self.assert_in_windows(training)
        weights = training.weights
        # They lie in the order in which backward has computed them.
        addresses = sorted(weight.grad.data_ptr() for weight in weights)
        self.assertEqual(addresses[2] - addresses[0], 2 * BYTES)
        # A gradient that is in the memory already is not copied.
        gradient = weights[0].grad
        before = sums_in_windows()
        for i, weight in enumerate(weights):
            weight.grad.copy_(own(i + 1))
        training.optimizer.synchronize()
        self.assertGreater(sums_in_windows(), before)
        self.assertIs(weights[0].grad, gradient)
        del training, weights, weight
        gc.collect()
        self.assertEqual(values(gradient.clone()), [TOTAL], "the memory is not free yet")

    def test_each_dtype_has_rooms(self):
        training = Training("dtypes", [torch.float32, torch.float64, torch.float32]).run()
        first, double, last = (weight.grad.data_ptr() for weight in training.weights)
        self.assertEqual(abs(last - first), BYTES)
        self.assert_in_windows(training)
        self.assertEqual(training.weights[1].grad.data_ptr(), double)

    def test_gradients_of_several_passes_are_moved_after_the_last_pass(self):
        self.assert_in_windows(Training("passes", passes=2).run())

    def test_gradients_that_the_program_owns_stay_where_they_are(self):
        for name in ("flat", "tensors"):
            with self.subTest(name):
                training = Training(name).run(3)  # the gradients have rooms
                flat = torch.zeros(3 * COUNT).to(on_device(0.0).device)
                parts = [part.data for part in flat.split(COUNT)]
                owned = parts if name == "flat" else [part.clone() for part in parts]
                for weight, gradient in zip(training.weights, owned):
                    weight.grad = gradient
                for _ in range(3):
                    for i, gradient in enumerate(owned):
                        gradient.copy_(own(i + 1))  # instead of the kernel that adds
                    training.reduce()
                    for i, gradient in enumerate(owned):
                        self.assertIs(training.weights[i].grad, gradient)
                        self.assertEqual(values(gradient.clone()), [TOTAL * (i + 1)])

    def test_a_new_parameter_gets_a_room(self):
        training = Training("more").run(3)
        training.add()
        training.run()
        self.assert_in_windows(training)
        addresses = sorted(weight.grad.data_ptr() for weight in training.weights)
        self.assertEqual(addresses[3] - addresses[0], 3 * BYTES)

    def test_without_room_for_new_rooms_there_are_none(self):
        training = Training("crowded").run(3)
        block = allocate(MEMORY - 4 * BYTES)
        with warnings_of_copies() as texts:
            for _ in range(2):
                training.add()
                training.run(3)
        self.assertEqual(len(texts), 1)
        training.run()
        self.assert_packed(training)
        free(allocate(3 * BYTES))  # the old rooms are free
        free(block)

    def test_the_memory_is_free_when_no_gradient_is_in_it(self):
        Training("freed").run(3)
        gc.collect()
        free(allocate(MEMORY))

    def test_memory_that_is_free_is_not_written_before_it_has_been_read(self):
        stream = torch.cuda.Stream()
        zeros = torch.zeros(MEMORY, dtype=torch.uint8).to(on_device(0.0).device)
        with torch.cuda.stream(stream):
            training = Training("late").run(3)
            block = training.weights[0].grad
            torch.cuda._sleep(2_000_000_000)  # about 1 s
            late = block.clone()
        del training, block
        gc.collect()
        address = allocate(MEMORY)
        memory = torch.as_tensor(_tensors.DeviceMemory(address, MEMORY), device=late.device)
        memory.copy_(zeros)
        self.assertEqual(values(late), [TOTAL])
        free(address)

    def test_gradients_at_different_places_are_copied(self):
        block = allocate(512) if hvd.rank() == 1 else 0
        self.assert_packed(Training("apart").run())
        if block != 0:
            free(block)

    def test_gradients_of_one_rank_outside_are_copied(self):
        block = allocate(MEMORY) if hvd.rank() == 1 else 0
        with warnings_of_copies() as texts:
            self.assert_packed(Training("outside").run())
        self.assertEqual(len(texts), hvd.rank())
        if block != 0:
            self.assertIn("RONDA_GRADIENT_MEMORY_MB on rank 0", texts[0])
            free(block)

    def test_the_next_epoch_has_memory_too(self):
        training = Training("epochs").run()
        hvd.shutdown()
        hvd.init()
        self.assert_in_windows(training.run())
