# SPDX-License-Identifier: Apache-2.0

"""Tests torch.distributed over Ronda with PyTorch's own CUDA code, without a GPU."""

from __future__ import annotations

import time
import unittest
from collections.abc import Callable

from late_values import (  # isort: skip  # before torch
    COUNT,
    DEVICE,
    LateGradient,
    fill_late,
    late,
    on_device,
    uses_the_first_device,
    values,
)
import torch
import torch.distributed as dist
from ronda._in_flight import IN_FLIGHT
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_group import end, start

RANK = SIZE = 0


def setUpModule() -> None:
    global RANK, SIZE
    RANK, SIZE = start()


tearDownModule = end


class Weight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(COUNT))

    def forward(self, value: float) -> torch.Tensor:
        return LateGradient.apply(self.weight, value)


def sum_bucket(state, bucket):  # DDP accepts no annotations that are strings
    """With this hook, DDP copies gradients. Without a hook, DDP would scale them with a kernel."""
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def await_condition(is_true: Callable[[], bool], otherwise: str) -> None:
    """Repeats the check until it is true, for up to a minute."""
    deadline = time.monotonic() + 60
    while not is_true():
        if time.monotonic() > deadline:
            raise AssertionError(otherwise)
        time.sleep(0.001)


def await_end(work: dist.Work) -> None:
    """Polls until `work` is complete, so that no stream waits for it."""
    await_condition(work.is_completed, "a collective does not end")


class StreamsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.total = SIZE * (SIZE + 1) / 2
        self.side, self.other = torch.cuda.Stream(), torch.cuda.Stream()

    def start(self) -> tuple[torch.Tensor, dist.Work]:
        tensor = on_device(-1.0).clone()
        torch.cuda.synchronize()
        with torch.cuda.stream(self.side):
            fill_late(tensor, float(RANK + 1))
            work = dist.all_reduce(tensor, async_op=True)
        return tensor, work

    def test_earlier_work_of_the_stream_comes_first(self):
        for _ in range(4):
            tensor = late(float(RANK + 1))
            dist.all_reduce(tensor)
            self.assertEqual(values(tensor.clone()), [self.total])

    def test_every_wait_orders_its_stream(self):
        for _ in range(4):
            tensor, work = self.start()
            copies = []
            for stream in (self.other, torch.cuda.current_stream(), torch.cuda.Stream()):
                with torch.cuda.stream(stream):
                    work.wait()
                    copies.append(tensor.clone())
            for copy in copies:
                self.assertEqual(values(copy), [self.total])

    def test_the_stream_that_submitted_waits_too(self):
        for _ in range(4):
            tensor, work = self.start()
            with torch.cuda.stream(self.other):
                work.wait()
            with torch.cuda.stream(self.side):
                copy = tensor.clone()
            self.assertEqual(values(copy), [self.total])

    def test_a_wait_behind_the_future_orders_its_stream(self):
        for _ in range(4):
            tensor, work = self.start()
            future = work.get_future()
            with torch.cuda.stream(self.other):
                copy = future.wait()[0].clone()
            work.wait()
            self.assertEqual(values(tensor.clone()), [self.total])
            self.assertEqual(values(copy), [self.total])

    def test_futures_callbacks_see_the_result(self):
        for _ in range(4):
            _, work = self.start()
            copy = work.get_future().then(lambda future: future.value()[0].clone())
            self.assertEqual(values(copy.wait().clone()), [self.total])

    def test_result_that_a_poll_found_needs_no_wait(self):
        for _ in range(4):
            tensor, work = self.start()
            await_end(work)
            with torch.cuda.stream(self.other):
                copy = tensor.clone()
            self.assertEqual(values(copy), [self.total])

    def start_gather(self) -> tuple[list[torch.Tensor], dist.Work]:
        """Starts a gather that copies its rows to the caller's tensors after the collective."""
        rows = [on_device(-1.0).clone() for _ in range(SIZE)]
        tensor = on_device(-1.0).clone()
        torch.cuda.synchronize()
        with torch.cuda.stream(self.side):
            fill_late(tensor, float(RANK + 1))
            return rows, dist.all_gather(rows, tensor, async_op=True)

    def check_gathered(self, copies: list[torch.Tensor]) -> None:
        found = [values(copy) for copy in copies]
        self.assertEqual(found, [[float(rank + 1)] for rank in range(SIZE)])

    def test_gathered_rows_of_a_poll_need_no_wait(self):
        for _ in range(4):
            rows, work = self.start_gather()
            await_end(work)
            with torch.cuda.stream(self.other):
                copies = [row.clone() for row in rows]
            self.check_gathered(copies)

    def test_later_waits_order_what_comes_after_the_collective(self):
        for _ in range(4):
            rows, work = self.start_gather()
            with torch.cuda.stream(self.side):
                work.wait()
            with torch.cuda.stream(self.other):
                work.wait()
                copies = [row.clone() for row in rows]
            self.check_gathered(copies)

    def test_works_without_a_wait_are_released(self):
        for _ in range(4):
            self.start()

        def are_let_go() -> bool:
            IN_FLIGHT.forget_ended()
            return not IN_FLIGHT.operations()

        await_condition(are_let_go, "operations are kept that have ended")

    def test_a_barrier_waits_for_the_device(self):
        late(1.0)
        event = torch.cuda.Event()
        event.record()
        dist.barrier()
        self.assertTrue(event.query())

    def test_backward_on_a_side_stream(self):
        model = DistributedDataParallel(Weight().to(DEVICE))
        model.register_comm_hook(None, sum_bucket)
        for step in range(6):
            stream = (self.side, self.other)[step % 2]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                model.zero_grad()
                model(float(RANK + 1)).backward(on_device(1.0))
            torch.cuda.current_stream().wait_stream(stream)
            self.assertEqual(values(model.module.weight.grad.clone()), [self.total])

    def test_other_devices_are_left_alone(self):
        works = [self.start()[1] for _ in range(4)]
        futures = [work.get_future().then(lambda future: None) for work in works]
        for future in futures:
            future.wait()
        self.assertFalse(uses_the_first_device())


class GraphsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.source, self.target = on_device(1.0).clone(), on_device(-1.0).clone()
        self.graph = torch.cuda.CUDAGraph()

    def check_replays(self) -> None:
        self.assertEqual(values(self.target), [-1.0], "captured work is not done")
        for value in (2.0, 3.0):
            self.source.copy_(on_device(value))
            self.graph.replay()
            self.assertEqual(values(self.target), [value])

    def test_a_graph_repeats_what_was_captured(self):
        with torch.cuda.graph(self.graph):
            self.target.copy_(self.source)
        self.check_replays()

    def test_a_refused_operation_leaves_the_capture_valid(self):
        tensor = on_device(float(RANK + 1)).clone()
        with torch.cuda.graph(self.graph):
            with self.assertRaisesRegex(RuntimeError, "captured"):
                dist.all_reduce(tensor, dist.ReduceOp.MAX)  # NCCL lacks it
            self.target.copy_(self.source)
        self.check_replays()
        dist.all_reduce(tensor)
        self.assertEqual(values(tensor), [SIZE * (SIZE + 1) / 2])

    def test_polls_leave_the_capture_valid(self):
        tensor = on_device(-1.0).clone()
        torch.cuda.synchronize()
        fill_late(tensor, float(RANK + 1))
        work = dist.all_reduce(tensor, async_op=True)
        with torch.cuda.graph(self.graph, capture_error_mode="global"):
            self.target.copy_(self.source)
            self.assertFalse(work.is_completed(), "the graph would repeat the copies")
        self.check_replays()
        work.wait()
        self.assertEqual(values(tensor.clone()), [SIZE * (SIZE + 1) / 2])
