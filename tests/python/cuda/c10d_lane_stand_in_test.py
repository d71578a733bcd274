# SPDX-License-Identifier: Apache-2.0

"""Tests the lane of a torch.distributed group with PyTorch's own CUDA code, without a GPU."""

from __future__ import annotations

import unittest

from late_values import COUNT, DEVICE, late, on_device, values  # isort: skip  # before torch
import torch
import torch.distributed as dist
from ronda._library import native
from ronda.torch.c10d._group import group_of
from torch_group import end, start

RANK = SIZE = 0


def setUpModule() -> None:
    global RANK, SIZE
    RANK, SIZE = start()
    dist.all_reduce(late(1.0))  # opens the lane


tearDownModule = end


def parts(tensor: torch.Tensor) -> list[float]:
    """Returns the distinct values in each rank's part of a tensor."""
    return [each for part in tensor.view(SIZE, -1).unbind() for each in values(part.clone())]


class LaneTest(unittest.TestCase):
    def setUp(self) -> None:
        self.own = float(RANK + 1)
        self.all = [float(rank + 1) for rank in range(SIZE)]
        self.total = sum(self.all)
        self.before = native.statistics()

    def operations_of_the_engine(self) -> int:
        """Returns how many operations on tensors have been negotiated in this test."""
        return native.statistics()["tensors"] - self.before["tensors"]

    def test_collectives_do_not_reach_the_engine(self):
        tensor = late(self.own)
        dist.all_reduce(tensor)
        self.assertEqual(values(tensor.clone()), [self.total])
        tensor = late(self.own)
        dist.broadcast(tensor, 1)
        self.assertEqual(values(tensor.clone()), [2.0])
        whole = torch.empty(SIZE * COUNT, device=DEVICE)
        dist.all_gather_into_tensor(whole, late(self.own))
        self.assertEqual(parts(whole), self.all)
        dist.reduce_scatter_tensor(tensor, whole)
        self.assertEqual(values(tensor.clone()), [SIZE * self.own])
        rows = [on_device(-1.0).clone() for _ in range(SIZE)]
        dist.all_gather(rows, late(self.own))
        self.assertEqual([values(row.clone()) for row in rows], [[each] for each in self.all])
        dist.reduce_scatter(tensor, list(whole.chunk(SIZE)))
        self.assertEqual(values(tensor.clone()), [SIZE * self.own])
        self.assertEqual(self.operations_of_the_engine(), 0)

    def test_reduces_scatters_and_gathers_do_not_reach_the_engine(self):
        tensor = late(self.own)
        dist.reduce(tensor, 1)
        self.assertEqual(values(tensor.clone()), [self.total if RANK == 1 else self.own])
        rows = [on_device(-1.0).clone() for _ in range(SIZE)] if RANK == 1 else None
        dist.gather(late(self.own), rows, dst=1)
        for rank, row in enumerate(rows or []):
            self.assertEqual(values(row.clone()), [self.all[rank]])
        tensor = on_device(-1.0).clone()
        rows = [late(10.0), late(20.0)] if RANK == 0 else None
        dist.scatter(tensor, rows, src=0)
        self.assertEqual(values(tensor.clone()), [10.0 * self.own])
        self.assertEqual(self.operations_of_the_engine(), 0)

    def test_alltoalls_do_not_reach_the_engine(self):
        for split in ([400, 600], [600, 400], [1000, 0]):
            sent = late(self.own)[:1000]
            received = torch.empty(split[RANK] * SIZE, device=DEVICE)
            dist.all_to_all_single(received, sent, [split[RANK]] * SIZE, split)
            if split[RANK]:
                self.assertEqual(parts(received), self.all)
        matrix = late(self.own)[:100_000].view(SIZE, 50, 1000)
        whole = torch.empty_like(matrix)
        dist.all_to_all_single(whole, matrix)
        self.assertEqual(parts(whole), self.all)
        rooms = [torch.empty(100 * (RANK + 1), device=DEVICE) for _ in range(SIZE)]
        data = [late(self.own)[: 100 * (rank + 1)] for rank in range(SIZE)]
        dist.all_to_all(rooms, data)
        self.assertEqual([values(room.clone()) for room in rooms], [[each] for each in self.all])
        self.assertEqual(self.operations_of_the_engine(), 0)

    def test_exchanges_of_other_dtypes_and_in_place(self):
        tensor = late(self.own)[:1000]
        dist.all_to_all_single(tensor, tensor)  # in place
        self.assertEqual(parts(tensor), self.all)
        for dtype in (torch.complex64, torch.int16):
            sent = torch.full((4,), RANK + 1).to(dtype).to(DEVICE)
            received = torch.full((4,), -1).to(dtype).to(DEVICE)
            dist.all_to_all_single(received, sent)
            self.assertEqual(received.cpu().tolist(), [1, 1, 2, 2])

    def test_exchanges_in_groups_of_another_order(self):
        group = dist.new_group(list(reversed(range(SIZE))))
        sent = late(self.own)[:1000]
        received = torch.empty(1000, device=DEVICE)
        dist.all_to_all_single(received, sent, group=group)
        ranks = dist.get_process_group_ranks(group)
        self.assertEqual(parts(received), [float(rank + 1) for rank in ranks])
        dist.destroy_process_group(group)

    def test_averages_and_factors_are_nccls(self):
        tensor = late(self.own)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        self.assertEqual(values(tensor.clone()), [self.total / SIZE])
        tensor = late(self.own)
        dist.all_reduce(tensor, torch._C._distributed_c10d._make_nccl_premul_sum(0.5))
        self.assertEqual(values(tensor.clone()), [self.total / 2])
        self.assertEqual(self.operations_of_the_engine(), 0)

    def test_coalesced_collectives(self):
        tensors = [late(self.own) for _ in range(3)]
        with dist._coalescing_manager(device=DEVICE, async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        self.assertEqual([values(tensor.clone()) for tensor in tensors], [[self.total]] * 3)
        self.assertEqual(self.operations_of_the_engine(), 0)

    def test_parts_of_different_sizes(self):
        rows = [torch.empty(1000 * (rank + 1), device=DEVICE) for rank in range(SIZE)]
        dist.all_gather(rows, late(self.own)[: 1000 * (RANK + 1)])
        self.assertEqual([values(row.clone()) for row in rows], [[each] for each in self.all])
        self.assertEqual(self.operations_of_the_engine(), 0)

    def test_operations_that_nccl_lacks_keep_their_place(self):
        for _ in range(3):
            tensor = late(self.own)
            works = [
                dist.all_reduce(tensor, async_op=True),
                dist.all_reduce(tensor, dist.ReduceOp.MAX, async_op=True),
                dist.all_reduce(tensor, async_op=True),
            ]
            for work in works:
                work.wait()
            self.assertEqual(values(tensor.clone()), [SIZE * self.total])
        self.assertEqual(self.operations_of_the_engine(), 3)

    def test_collectives_of_one_memory_need_no_wait(self):
        tensor = late(self.own)
        for _ in range(4):
            dist.all_reduce(tensor, async_op=True)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        self.assertEqual(values(tensor.clone()), [SIZE**4 * self.total])

    def test_groups_have_lanes_of_their_own(self):
        others = [dist.new_group(list(range(SIZE))) for _ in range(2)]
        tensor = late(self.own)
        expected = self.total
        dist.all_reduce(tensor)
        for _ in range(3):
            for group in others:
                dist.all_reduce(tensor, group=group)
                expected *= SIZE
        self.assertEqual(values(tensor.clone()), [expected])
        for group in others:
            dist.destroy_process_group(group)

    def test_a_group_that_is_dropped_keeps_its_results(self):
        group = dist.new_group(list(range(SIZE)))
        tensor = late(self.own)
        dist.all_reduce(tensor, group=group)
        group_of(group)._end()  # as a garbage collection calls it
        self.assertEqual(values(tensor.clone()), [self.total])
        dist.destroy_process_group(group)

    def test_messages_go_their_own_way(self):
        tensor, other = late(self.own), on_device(-1.0).clone()
        received = dist.irecv(other, (RANK - 1) % SIZE)
        sent = dist.isend(tensor, (RANK + 1) % SIZE)
        received.wait()
        sent.wait()
        self.assertEqual(values(other.clone()), [float((RANK - 1) % SIZE + 1)])

    def test_a_lane_without_memory_says_why(self):
        backend = dist.distributed_c10d._get_default_group()._get_backend(DEVICE)
        self.assertFalse(backend.supports_tensor_alloc(DEVICE))
        with self.assertRaisesRegex(ValueError, f"on {DEVICE}: .*RONDA_LANE_MEMORY_MB is 0"):
            backend.allocate_tensor(COUNT, dtype=torch.float32, device=DEVICE)

    def test_a_refusal_on_all_ranks_leaves_the_lane_open(self):
        tensor = late(self.own)
        with self.assertRaisesRegex(ValueError, "4 times|times as many"):
            dist.all_gather_into_tensor(tensor, tensor)
        dist.all_reduce(tensor)
        self.assertEqual(values(tensor.clone()), [self.total])
        self.assertEqual(self.operations_of_the_engine(), 0)
