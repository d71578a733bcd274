# SPDX-License-Identifier: Apache-2.0

"""Tests collectives of torch.distributed in CUDA graphs, without a GPU."""

from __future__ import annotations

import unittest
from collections.abc import Callable

from late_values import COUNT, DEVICE, late, on_device, values  # isort: skip  # before torch
import torch
import torch.distributed as dist
from torch_group import end, start

RANK = SIZE = 0


def setUpModule() -> None:
    global RANK, SIZE
    RANK, SIZE = start()
    dist.all_reduce(late(1.0))  # opens the lane


tearDownModule = end


class GraphTest(unittest.TestCase):
    def setUp(self) -> None:
        self.total = float(sum(range(1, SIZE + 1)))
        self.graph = torch.cuda.CUDAGraph()
        self.source = on_device(-1.0).clone()
        self.target = on_device(-1.0).clone()
        torch.cuda.synchronize()

    def check_replays(self, result: Callable[[], list[float]], factor: float) -> None:
        """Replays the graph with several values of `source`. Checks that `result` returns the
        values of rank 0 times `factor`.
        """
        for value in (1.0, 10.0, 100.0):
            self.source.copy_(on_device(value * (RANK + 1)))
            self.graph.replay()
            self.assertEqual(result(), [value * factor])

    def test_collectives_are_repeated(self):
        whole = torch.empty(SIZE * COUNT, device=DEVICE)
        with torch.cuda.graph(self.graph):
            self.target.copy_(self.source)
            dist.all_reduce(self.target)  # total
            dist.all_gather_into_tensor(whole, self.target)  # the same
            dist.reduce_scatter_tensor(self.target, whole)  # SIZE * total
            dist.broadcast(self.target, 1)
        self.assertEqual(values(self.target), [-1.0], "captured work is not done")
        self.check_replays(lambda: values(self.target), SIZE * self.total)
        dist.all_reduce(self.target)
        self.assertEqual(values(self.target), [100 * SIZE * SIZE * self.total])

    def test_lists_are_copied_at_each_launch(self):
        rows = [on_device(-1.0).clone() for _ in range(SIZE)]
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            dist.all_gather(rows, self.source)
        self.check_replays(lambda: values(rows[0]), 1.0)

    def test_an_alltoall_is_repeated(self):
        room = torch.empty(2 * 1000, device=DEVICE)
        with torch.cuda.graph(self.graph):
            dist.all_to_all_single(room, self.source[:2000])
        self.check_replays(lambda: values(room[:1000].clone()), 1.0)

    def test_a_gather_is_ordered_on_each_rank(self):
        rows = [on_device(-1.0).clone() for _ in range(SIZE)] if RANK == 0 else None
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            dist.gather(self.source, rows, 0)
            self.source.copy_(self.target)
        for value in (1.0, 10.0):
            self.source.copy_(on_device(value * (RANK + 1)))
            self.graph.replay()
            self.assertEqual(values(self.source), [-1.0])
            if rows is not None:
                self.assertEqual(values(rows[1]), [2 * value])

    def test_a_capture_does_not_break_an_earlier_collective(self):
        rows = [on_device(-1.0).clone() for _ in range(SIZE)]
        self.source.copy_(on_device(3.0 * (RANK + 1)))
        work = dist.all_gather(rows, self.source, async_op=True)
        with torch.cuda.graph(self.graph):
            with self.assertRaisesRegex(RuntimeError, "captured"):
                dist.all_reduce(self.source)
            self.target.copy_(self.source)
        work.wait()
        self.assertEqual(values(rows[0]), [3.0])

    def test_a_work_in_a_capture(self):
        rows = [on_device(-1.0).clone() for _ in range(SIZE)]
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, capture_error_mode="global"):
            work = dist.all_gather(rows, self.source, async_op=True)
            self.assertFalse(work.is_completed())
            work.wait()
            self.assertTrue(work.is_completed())
            future = dist.all_reduce(rows[0], async_op=True).get_future()
            future.wait()
        self.check_replays(lambda: values(rows[0]), float(SIZE))

    def test_several_streams_of_a_capture(self):
        side = torch.cuda.Stream(DEVICE)
        with torch.cuda.graph(self.graph):
            work = dist.all_reduce(self.source, async_op=True)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                work.wait()
                self.target.copy_(self.source)
            torch.cuda.current_stream().wait_stream(side)
        self.check_replays(lambda: values(self.target), self.total)

    def test_a_group_that_has_not_used_the_gpu_is_refused(self):
        group = dist.new_group(list(range(SIZE)))
        with torch.cuda.graph(self.graph):
            with self.assertRaisesRegex(RuntimeError, "make one collective of the group"):
                dist.all_reduce(self.source, group=group)
            self.target.copy_(self.source)
        self.source.copy_(on_device(5.0))
        self.graph.replay()
        self.assertEqual(values(self.target), [5.0])
        dist.all_reduce(self.target, group=group)
        self.assertEqual(values(self.target), [5.0 * SIZE])
        dist.destroy_process_group(group)

    def test_an_operation_that_nccl_lacks_is_refused(self):
        with torch.cuda.graph(self.graph):
            with self.assertRaisesRegex(RuntimeError, "captured"):
                dist.all_reduce(self.source, dist.ReduceOp.MAX)
            dist.all_reduce(self.source)
        self.check_replays(lambda: values(self.source), self.total)
