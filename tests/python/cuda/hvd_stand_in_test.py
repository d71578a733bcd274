# SPDX-License-Identifier: Apache-2.0

"""Tests ronda.torch with PyTorch's CUDA code, without a GPU. Only streams wait for results."""

from __future__ import annotations

import unittest

from late_values import (  # isort: skip  # before torch
    COUNT,
    DEVICE,
    LateGradient,
    fill_late,
    on_device,
    use_device,
    uses_the_first_device,
    values,
)
import ronda.torch as hvd
import torch
from stand_in import dropped_kernels
from torch import nn


def setUpModule() -> None:
    use_device()
    hvd.init()


def tearDownModule() -> None:
    torch.cuda.synchronize()
    hvd.shutdown()


class StreamsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.own = float(hvd.rank() + 1)
        self.total = hvd.size() * (hvd.size() + 1) / 2
        self.side, self.other = torch.cuda.Stream(), torch.cuda.Stream()
        on_device(self.own)
        torch.cuda.synchronize()

    def test_earlier_work_of_the_stream_comes_first(self):
        tensor = on_device(-1.0).clone()
        for _ in range(4):
            fill_late(tensor, self.own)
            hvd.allreduce_(tensor, op=hvd.Sum, name="here")
            self.assertEqual(values(tensor.clone()), [self.total])

    def test_a_rank_that_lacks_a_checked_tensor_is_told_so(self):
        mine = on_device(self.own) if hvd.rank() == 1 else None
        with self.assertRaisesRegex(ValueError, "ranks differ"):
            hvd.check_numbers([("weight", mine)])

    def start(self) -> tuple[torch.Tensor, hvd.Handle]:
        """Starts a sum on the side stream. The tensor is -1 until this rank's value arrives."""
        tensor = on_device(-1.0).clone()
        torch.cuda.synchronize()
        with torch.cuda.stream(self.side):
            fill_late(tensor, self.own)
            return tensor, hvd.allreduce_async_(tensor, op=hvd.Sum, name="elsewhere")

    def test_a_stream_waits_that_did_not_submit(self):
        for _ in range(8):
            tensor, handle = self.start()
            with torch.cuda.stream(self.other):
                hvd.synchronize(handle)
                copy = tensor.clone()
            self.assertEqual(values(copy), [self.total])

    def test_the_stream_that_submitted_waits_too(self):
        for _ in range(8):
            tensor, handle = self.start()
            with torch.cuda.stream(self.other):
                hvd.synchronize(handle)
            with torch.cuda.stream(self.side):
                copy = tensor.clone()
            self.assertEqual(values(copy), [self.total])

    def test_sparse_results_wait_on_the_stream_that_fetches_them(self):
        for step in range(4):
            indices = torch.arange(COUNT).unsqueeze(0).to(DEVICE)
            rows = on_device(-1.0).clone()
            torch.cuda.synchronize()
            with torch.cuda.stream(self.side):
                fill_late(rows, self.own)
                sparse = torch.sparse_coo_tensor(
                    indices, rows, (COUNT,), check_invariants=False, is_coalesced=True
                )
                handle = hvd.sparse_allreduce_async(sparse, name=f"sparse{step}", op=hvd.Sum)
            with torch.cuda.stream(self.other):
                copy = hvd.synchronize(handle)._values().clone()
            expected = [float(rank + 1) for rank in range(hvd.size())]
            self.assertEqual(values(copy), expected)

    def check_backward(self, name: str, **options: object) -> None:
        """Consecutive steps use different streams. Gradients must be complete on the stream of
        backward().

        PyTorch accumulates a gradient on the stream of the parameter's first use, which is not the
        default stream here.
        """
        weights = [nn.Parameter(on_device(0.0).clone()) for _ in range(3)]
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(weights, lr=1.0),
            named_parameters=[(f"{name}{i}", weight) for i, weight in enumerate(weights)],
            op=hvd.Sum,
            **options,
        )
        streams = [self.side, self.other, torch.cuda.current_stream(), self.side]
        for step in range(8):
            stream = streams[step % 4]
            with torch.cuda.stream(stream):
                optimizer.zero_grad()
                # All gradients come from a single backward pass. From the second step on, they are
                # a prepared group.
                outputs = [LateGradient.apply(weight, self.own) for weight in weights]
                torch.autograd.backward(outputs, [on_device(1.0)] * len(outputs))
                optimizer.synchronize()
                copies = [weight.grad.clone() for weight in weights]
            for copy in copies:
                self.assertEqual(values(copy), [self.total])

    def test_backward_on_other_streams(self):
        self.check_backward("alone")

    def test_backward_of_groups_on_other_streams(self):
        self.check_backward("grouped", groups=1)

    def test_results_need_none_of_the_kernels_that_are_dropped(self):
        before = dropped_kernels()
        torch.ones(3, device=DEVICE)
        self.assertEqual(dropped_kernels(), before + 1)
        tensor = on_device(-1.0).clone()
        fill_late(tensor, self.own)
        hvd.allreduce_(tensor, op=hvd.Sum, name="without kernels")
        self.assertEqual(values(tensor.clone()), [self.total])
        self.assertEqual(dropped_kernels(), before + 1)

    def test_other_devices_are_left_alone(self):
        handles = [
            hvd.allreduce_async(on_device(1.0), op=hvd.Sum, name=f"left{i}") for i in range(8)
        ]
        for handle in handles:
            hvd.synchronize(handle)
        torch.cuda.synchronize()
        self.assertFalse(uses_the_first_device())
