# SPDX-License-Identifier: Apache-2.0

"""Tests ronda.torch with tensors in GPU memory. The ranks may share one GPU."""

from __future__ import annotations

import random
import unittest

import ronda.torch as hvd
import torch
from gpu_cases import DEVICE, Slow, fill_late, use_device
from torch import nn

COUNT = 100_003


def setUpModule() -> None:
    use_device()
    hvd.init()


def tearDownModule() -> None:
    torch.cuda.synchronize()
    hvd.shutdown()


def of_rank(rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers on the GPU, exact in every dtype."""
    return ((torch.arange(COUNT) + 2 * rank) % 7).to(dtype).to(DEVICE)


def of_all(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.stack([of_rank(rank, dtype) for rank in range(hvd.size())])


class OperationsTest(unittest.TestCase):
    def check(self, actual: torch.Tensor, expected: torch.Tensor) -> None:
        self.assertEqual(actual.dtype, expected.dtype)
        self.assertEqual(actual.device, expected.device)
        self.assertTrue(torch.equal(actual, expected), f"{actual} is not {expected}")

    def test_allreduce_of_every_dtype(self):
        for dtype in (
            torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16,
            torch.float32, torch.float64,
        ):  # fmt: skip
            for op, combine in ((hvd.Sum, "sum"), (hvd.Min, "amin"), (hvd.Max, "amax")):
                with self.subTest(dtype=dtype, op=op):
                    result = hvd.allreduce(of_rank(hvd.rank(), dtype), op=op, name=f"{dtype}{op}")
                    self.check(result, getattr(of_all(dtype), combine)(0).to(dtype))

    def test_average_and_scales(self):
        result = hvd.allreduce(of_rank(hvd.rank()), name="average", prescale_factor=4.0)
        self.check(result, 4 * of_all().mean(0))

    def test_compression(self):
        for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
            result = hvd.allreduce(
                of_rank(hvd.rank()), op=hvd.Sum, compression=compression, name=str(compression)
            )
            self.check(result, of_all().sum(0))

    def test_adasum_of_equal_tensors(self):
        ones = torch.ones(COUNT, device=DEVICE)
        result = hvd.allreduce(ones, op=hvd.Adasum, name="adasum")
        torch.testing.assert_close(result, ones)

    def test_broadcast(self):
        result = hvd.broadcast(of_rank(hvd.rank()), root_rank=hvd.size() - 1, name="broadcast")
        self.check(result, of_rank(hvd.size() - 1))

    def test_allgather_of_uneven_rows(self):
        rows = [torch.full((rank + 1, 3), float(rank), device=DEVICE) for rank in range(hvd.size())]
        self.check(hvd.allgather(rows[hvd.rank()], name="rows"), torch.cat(rows))

    def test_alltoall(self):
        own = torch.arange(2.0 * hvd.size(), device=DEVICE) + 100 * hvd.rank()
        begin = 2.0 * hvd.rank()
        parts = [
            torch.arange(begin, begin + 2, device=DEVICE) + 100 * each for each in range(hvd.size())
        ]
        self.check(hvd.alltoall(own, name="alltoall"), torch.cat(parts))

    def test_reducescatter(self):
        own = torch.ones(2 * hvd.size(), 3, device=DEVICE) * (hvd.rank() + 1)
        total = hvd.size() * (hvd.size() + 1) / 2
        result = hvd.reducescatter(own, op=hvd.Sum, name="scatter")
        self.check(result, torch.full((2, 3), total, device=DEVICE))

    def test_many_locked_steps(self):
        for step in range(30):
            tensors = [of_rank(hvd.rank()) + step for _ in range(5)]
            handles = [
                hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"locked{i}")
                for i, tensor in enumerate(tensors)
            ]
            for handle in handles:
                hvd.synchronize(handle)
            expected = of_all().sum(0) + step * hvd.size()
            for tensor in tensors:
                self.check(tensor, expected)

    def test_large_tensor_in_chunks(self):
        large = torch.full((40 << 20,), float(hvd.rank() + 1), device=DEVICE)
        hvd.allreduce_(large, op=hvd.Sum, name="large")
        total = hvd.size() * (hvd.size() + 1) / 2
        self.assertEqual((large.min().item(), large.max().item()), (total, total))


class StreamsTest(unittest.TestCase):
    """Only streams wait for results; the host does not."""

    def setUp(self) -> None:
        self.total = hvd.size() * (hvd.size() + 1) / 2
        self.side, self.other = torch.cuda.Stream(), torch.cuda.Stream()
        torch.cuda.synchronize()

    def check(self, tensor: torch.Tensor, value: float | None = None) -> None:
        torch.cuda.synchronize()
        value = self.total if value is None else value
        self.assertEqual((tensor.min().item(), tensor.max().item()), (value, value))

    def test_earlier_work_of_the_stream_comes_first(self):
        tensor = torch.zeros(COUNT, device=DEVICE)
        for _ in range(6):
            fill_late(tensor, hvd.rank() + 1)
            hvd.allreduce_(tensor, op=hvd.Sum, name="here")
            self.check(tensor.clone())

    def test_a_stream_waits_that_did_not_submit(self):
        tensor = torch.zeros(COUNT, device=DEVICE)
        for _ in range(6):
            with torch.cuda.stream(self.side):
                fill_late(tensor, hvd.rank() + 1)
                handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="elsewhere")
            with torch.cuda.stream(self.other):
                hvd.synchronize(handle)
                copy = tensor.clone()
            self.check(copy)

    def test_results_of_a_stream_that_did_not_submit(self):
        for _ in range(6):
            with torch.cuda.stream(self.side):
                tensor = torch.zeros(5, 3, device=DEVICE)
                fill_late(tensor, hvd.rank() + 1)
                handle = hvd.allgather_async(tensor, name="gathered")
            with torch.cuda.stream(self.other):
                gathered = hvd.synchronize(handle).clone()
            torch.cuda.synchronize()
            expected = [float(rank + 1) for rank in range(hvd.size())]
            self.assertEqual(gathered[::5, 0].tolist(), expected)

    def test_memory_that_is_dropped_at_once(self):
        for _ in range(6):
            tensor = torch.zeros(COUNT, device=DEVICE)
            fill_late(tensor, hvd.rank() + 1)
            handle = hvd.allreduce_async(tensor, op=hvd.Sum, name="dropped")
            del tensor
            junk = [torch.full((COUNT,), 77.0, device=DEVICE) for _ in range(4)]
            self.check(hvd.synchronize(handle).clone())
            del junk

    def test_backward_on_other_streams(self):
        """Consecutive steps use different streams. The weight shows the sums of the ranks'
        inputs.
        """
        weight = nn.Parameter(torch.zeros(COUNT, device=DEVICE))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([weight], lr=1.0), named_parameters=[("weight", weight)], op=hvd.Sum
        )
        streams = [torch.cuda.current_stream(), self.side, self.other, self.side]
        for step in range(8):
            stream = streams[step % 4]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                optimizer.zero_grad()
                (Slow.apply(weight) * (hvd.rank() + 1)).sum().backward()
                optimizer.step()
            torch.cuda.current_stream().wait_stream(stream)
            self.check(weight.detach().clone(), -self.total * (step + 1))

    def test_backward_on_one_stream_and_step_on_another(self):
        weight = nn.Parameter(torch.zeros(COUNT, device=DEVICE))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([weight], lr=1.0), named_parameters=[("weight2", weight)], op=hvd.Sum
        )
        for step in range(6):
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                optimizer.zero_grad()
                (Slow.apply(weight) * (hvd.rank() + 1)).sum().backward()
            torch.cuda.current_stream().wait_stream(self.side)
            optimizer.step()
            self.check(weight.detach().clone(), -self.total * (step + 1))

    def test_steps_that_differ_from_the_last_ones(self):
        """Ranks submit in different orders, and one is late, so schedules are vetoed."""
        generator = random.Random(hvd.rank())
        for step in range(40):
            numbers = list(range(4 + step // 10))
            tensors = [torch.zeros(COUNT, device=DEVICE) for _ in numbers]
            if step > 20:
                generator.shuffle(numbers)
            handles = []
            for number in numbers:
                if step % 8 == hvd.rank():
                    fill_late(tensors[number], hvd.rank() + number)
                else:
                    tensors[number].fill_(hvd.rank() + number)
                handles.append(hvd.allreduce_async_(tensors[number], op=hvd.Sum, name=f"v{number}"))
            for handle in handles:
                hvd.synchronize(handle)
            for number, tensor in enumerate(tensors):
                self.check(tensor.clone(), self.total + (number - 1) * hvd.size())

    def test_memory_is_freed_in_the_middle_of_a_step(self):
        """cudaFree() waits until the device has completed all of its work."""
        for _ in range(6):
            tensor = torch.zeros(COUNT, device=DEVICE)
            fill_late(tensor, hvd.rank() + 1)
            handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="before_free")
            other = torch.empty(256 << 20, device=DEVICE)
            del other
            torch.cuda.empty_cache()
            hvd.synchronize(handle)
            self.check(tensor.clone())

    def test_graphs_beside_reductions(self):
        """The backward pass is a CUDA graph. Each launch of the graph is followed by a reduction of
        the gradients.
        """
        weight = torch.zeros(COUNT, device=DEVICE)
        gradient, factor = torch.zeros_like(weight), torch.ones((), device=DEVICE)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            gradient.copy_(torch.ones_like(weight) * factor)
        for step in range(6):
            factor.fill_(float(hvd.rank() + 1))
            torch.cuda._sleep(50_000_000)
            graph.replay()
            hvd.synchronize(hvd.allreduce_async_(gradient, op=hvd.Sum, name="of_a_graph"))
            weight -= gradient
            self.check(weight.clone(), -self.total * (step + 1))

    def test_a_stream_that_is_captured_is_refused(self):
        tensor = torch.ones(COUNT, device=DEVICE)
        graph = torch.cuda.CUDAGraph()
        with self.assertRaisesRegex(Exception, "captur"), torch.cuda.graph(graph):
            hvd.allreduce_(tensor, op=hvd.Sum, name="captured")
        torch.cuda.synchronize()
        hvd.allreduce_(tensor, op=hvd.Sum, name="after")
        self.check(tensor, hvd.size())


class TrainingTest(unittest.TestCase):
    def test_equals_one_process(self):
        def network() -> nn.Module:
            torch.manual_seed(5)
            return nn.Sequential(nn.Linear(20, 300), nn.Tanh(), nn.Linear(300, 7)).to(DEVICE)

        def batch(step: int, rank: int) -> torch.Tensor:
            generator = torch.Generator().manual_seed(1000 * step + rank)
            return torch.randn(8, 20, generator=generator).to(DEVICE)

        def train(optimizer, model, inputs) -> None:
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()

        for options in ({}, {"groups": 2}, {"backward_passes_per_step": 1}):
            with self.subTest(**options):
                model, plain = network(), network()
                optimizer = hvd.DistributedOptimizer(
                    torch.optim.Adam(model.parameters()), model.named_parameters(), **options
                )
                hvd.broadcast_parameters(model.state_dict(), root_rank=0)
                hvd.broadcast_optimizer_state(optimizer, root_rank=0)
                alone = torch.optim.Adam(plain.parameters())
                for step in range(10):
                    train(optimizer, model, batch(step, hvd.rank()))
                    everyone = [batch(step, rank) for rank in range(hvd.size())]
                    train(alone, plain, torch.cat(everyone))
                for ours, theirs in zip(model.parameters(), plain.parameters()):
                    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)

    def test_gradient_scaler(self):
        weight = nn.Parameter(torch.zeros(COUNT, device=DEVICE))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([weight], lr=1.0), named_parameters=[("scaled", weight)]
        )
        scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
        for _ in range(4):
            optimizer.zero_grad()
            scaler.scale((weight * (2 * hvd.rank() + 2)).sum()).backward()
            optimizer.synchronize()
            scaler.unscale_(optimizer)
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
            scaler.update()
        expected = torch.full_like(weight, -4.0 * (hvd.size() + 1))
        torch.testing.assert_close(weight.detach(), expected)

    def test_sync_batch_norm(self):
        norm = hvd.SyncBatchNorm(4).to(DEVICE)
        plain = nn.BatchNorm2d(4).to(DEVICE)
        torch.manual_seed(3)
        everything = torch.randn(3 * hvd.size(), 4, 5, 5).to(DEVICE)
        own = everything[3 * hvd.rank() : 3 * hvd.rank() + 3]
        expected = plain(everything)[3 * hvd.rank() : 3 * hvd.rank() + 3]
        torch.testing.assert_close(norm(own), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(norm.running_var, plain.running_var)
