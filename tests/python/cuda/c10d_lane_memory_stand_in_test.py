# SPDX-License-Identifier: Apache-2.0

"""Tests tensors in the memory of a lane, with PyTorch's own CUDA code and without a GPU."""

from __future__ import annotations

import ctypes
import gc
import os
import unittest
import weakref
from unittest import mock

from late_values import COUNT, DEVICE, fill_late, on_device, values  # isort: skip  # before torch
import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp
from ronda._library import native
from ronda.torch.c10d import _lane_memory
from ronda.torch.c10d._group import group_of
from torch import nn
from torch_group import end, start

RANK = SIZE = 0
MIB = 1 << 20


def setUpModule() -> None:
    global RANK, SIZE
    RANK, SIZE = start()


tearDownModule = end


def backend(group: dist.ProcessGroup | None = None):
    """Returns the backend of a group in the way of FSDP2."""
    return (group or dist.distributed_c10d._get_default_group())._get_backend(DEVICE)


def allocate(size: int, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    return backend(group).allocate_tensor(size, dtype=torch.float32, device=DEVICE)


def filled(size: int, value: float) -> torch.Tensor:
    """Returns a tensor in the lane's memory that gets its values late."""
    tensor = allocate(size)
    for part in tensor.split(COUNT):
        part.copy_(on_device(-1.0)[: part.numel()])
    torch.cuda._sleep(10_000_000)
    for part in tensor.split(COUNT):
        part.copy_(on_device(value)[: part.numel()])
    return tensor


class Scaled(nn.Module):
    """Multiplies by a parameter. The stand-in has no matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(SIZE * 1000, device=DEVICE))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.weight


class LaneMemoryTest(unittest.TestCase):
    def setUp(self) -> None:
        self.assertTrue(backend().supports_tensor_alloc(DEVICE))
        self.nccl = ctypes.CDLL(os.environ["RONDA_NCCL_LIBRARY"])
        self.own = float(RANK + 1)
        self.all = [float(rank + 1) for rank in range(SIZE)]
        self.copies = self.calls_by_copy_engines()

    def calls_by_copy_engines(self) -> int:
        return int(self.nccl.fake_nccl_calls(b"copies"))

    def test_collectives_use_the_memory(self):
        own = filled(COUNT, self.own)
        whole = allocate(SIZE * COUNT)
        dist.all_gather_into_tensor(whole, own)
        parts = [values(part.clone()) for part in whole.chunk(SIZE)]
        self.assertEqual(parts, [[each] for each in self.all])
        self.assertEqual(self.calls_by_copy_engines() - self.copies, 1)
        dist.reduce_scatter_tensor(own, whole)
        self.assertEqual(values(own.clone()), [SIZE * self.own])
        dist.all_reduce(own)
        self.assertEqual(values(own.clone()), [SIZE * sum(self.all)])

    def test_a_gather_in_place_needs_no_copy(self):
        whole = allocate(SIZE * COUNT)
        part = whole.chunk(SIZE)[RANK]
        fill_late(part, self.own)
        before = torch.cuda.memory_stats(DEVICE)["allocation.all.allocated"]
        dist.all_gather_into_tensor(whole, part)
        after = torch.cuda.memory_stats(DEVICE)["allocation.all.allocated"]
        self.assertEqual(after, before)
        parts = [values(each.clone()) for each in whole.chunk(SIZE)]
        self.assertEqual(parts, [[each] for each in self.all])
        self.assertEqual(self.calls_by_copy_engines() - self.copies, 1)

    def test_a_gather_that_overlaps_in_another_way_is_copied(self):
        whole = torch.empty(SIZE * COUNT, device=DEVICE)
        fill_late(whole[:COUNT], self.own)
        dist.all_gather_into_tensor(whole, whole[:COUNT])  # on rank 1 this is the other rank's part
        parts = [values(each.clone()) for each in whole.chunk(SIZE)]
        self.assertEqual(parts, [[each] for each in self.all])

    def test_a_tensor_that_would_have_to_be_copied_is_refused_on_all_ranks(self):
        whole = allocate(SIZE * COUNT)
        matrix = whole.view(SIZE, COUNT).t()
        shifted = whole[1 : COUNT + 1]  # no rank's part
        for call, text in (
            (lambda: dist.all_gather_into_tensor(whole, shifted), "share memory"),
            (lambda: dist.reduce_scatter_tensor(shifted, whole), "share memory"),
            (lambda: dist.all_to_all_single(whole, whole), "share memory"),
            (lambda: dist.all_reduce(matrix), "not contiguous.* pass a contiguous"),
            (lambda: dist.broadcast(matrix, 0), "not contiguous.* pass a contiguous"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                call()
        dist.all_reduce(whole)  # goes on as before

    def test_a_reduce_scatter_in_place_copies_on_all_ranks(self):
        whole = filled(SIZE * COUNT, self.own)
        part = whole.chunk(SIZE)[RANK]
        dist.reduce_scatter_tensor(part, whole)
        self.assertEqual(values(part.clone()), [sum(self.all)])

    def test_the_memory_of_a_tensor_that_is_freed_at_once_is_not_reused_too_early(self):
        for _ in range(4):
            result = on_device(0.0).clone()
            dist.all_reduce(filled(COUNT, self.own))  # freed while the device still works
            again = filled(COUNT, 2 * self.own)
            dist.all_reduce(again)
            result.copy_(again)
            self.assertEqual(values(result), [2 * sum(self.all)])

    def test_full_memory_is_an_error_that_names_the_setting(self):
        with self.assertRaisesRegex(
            torch.cuda.OutOfMemoryError,
            "no room for .* bytes in the memory of lane 0.*RONDA_LANE_MEMORY_MB",
        ):
            allocate(64 * MIB)
        dist.all_reduce(filled(COUNT, self.own))  # goes on as before

    def test_a_limit_of_torch_is_reported_in_torchs_words(self):
        with self.assertRaisesRegex(torch.cuda.OutOfMemoryError, "no room for"):
            allocate(64 * MIB)
        torch.cuda.set_per_process_memory_fraction(1e-6, DEVICE)
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0, DEVICE)
        with self.assertRaisesRegex(torch.cuda.OutOfMemoryError, "Tried to allocate"):
            allocate(10 * MIB)

    def test_memory_that_torch_has_cached_is_used_for_other_sizes(self):
        group = dist.new_group(list(range(SIZE)))
        kept = allocate(COUNT, group)
        for mib in (20, 30, 45, 60, 25):
            tensor = allocate(mib * MIB // 4, group)
            fill_late(tensor[:COUNT], self.own)
            dist.all_reduce(tensor[:COUNT], group=group)
            self.assertEqual(values(tensor[:COUNT].clone()), [sum(self.all)])
            del tensor  # torch caches its memory
        kept = allocate(40 * MIB // 4, group)
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            allocate(30 * MIB // 4, group)
        del kept
        self.assertEqual(allocate(50 * MIB // 4, group).numel(), 50 * MIB // 4)
        dist.destroy_process_group(group)

    def test_another_current_device_does_not_matter(self):
        group = dist.new_group(list(range(SIZE)))  # whose pool does not exist yet
        with torch.cuda.device(3 - DEVICE.index):  # the device of the other rank
            own, whole = allocate(COUNT, group), allocate(SIZE * COUNT, group)
        dist.all_gather_into_tensor(whole, own, group=group)
        self.assertEqual(self.calls_by_copy_engines() - self.copies, 1)
        dist.destroy_process_group(group)

    def test_a_device_without_a_number_is_the_current_one(self):
        tensor = backend().allocate_tensor(COUNT, dtype=torch.float32, device="cuda")
        self.assertEqual(tensor.device, DEVICE)
        dist.all_gather_into_tensor(allocate(SIZE * COUNT), tensor)
        self.assertEqual(self.calls_by_copy_engines() - self.copies, 1)

    def test_a_tensor_outside_of_the_memory_is_an_error(self):
        group = dist.new_group(list(range(SIZE)))
        plain = torch.cuda.MemPool()
        with mock.patch("torch.cuda.MemPool", return_value=plain):  # ignores the allocator
            with self.assertRaisesRegex(ValueError, "outside of the memory of this group's lane"):
                allocate(COUNT, group)
            self.assertEqual(allocate(0, group).numel(), 0)
        dist.destroy_process_group(group)

    def test_a_number_of_a_device_and_a_host_have_no_memory(self):
        self.assertFalse(backend().supports_tensor_alloc(DEVICE.index))
        self.assertFalse(backend().supports_tensor_alloc(torch.device("cpu")))
        with self.assertRaisesRegex(ValueError, "no memory for tensors on cpu: .* GPU"):
            backend().allocate_tensor(1, dtype=torch.float32, device=torch.device("cpu"))

    def test_a_torch_that_refuses_such_pools_has_no_memory(self):
        group = dist.new_group(list(range(SIZE)))
        refusal = RuntimeError("MemPool doesn't currently support expandable_segments.")
        with mock.patch("torch.cuda.use_mem_pool", side_effect=refusal):
            self.assertFalse(backend(group).supports_tensor_alloc(DEVICE))
            with self.assertRaisesRegex(ValueError, "refuses: .* support expandable_segments"):
                allocate(COUNT, group)
        dist.destroy_process_group(group)
        self.assertTrue(backend().supports_tensor_alloc(torch.device("cuda")))

    def test_tensors_outlive_their_group(self):
        group = dist.new_group(list(range(SIZE)))
        self.assertTrue(backend(group).supports_tensor_alloc(DEVICE))
        tensor = allocate(COUNT, group)
        fill_late(tensor, self.own)
        dist.all_reduce(tensor, group=group)
        self.assertGreater(native.lane_memory(group_of(group).process_set), 0)
        dist.destroy_process_group(group)
        del group
        self.assertEqual(values(tensor.clone()), [sum(self.all)])
        dist.all_reduce(tensor)  # over another lane, for which it is plain memory
        self.assertEqual(values(tensor.clone()), [SIZE * sum(self.all)])

    def test_an_allocator_outlives_the_module_that_has_made_it(self):
        allocator = weakref.ref(backend().mem_allocator)
        _lane_memory._allocators.clear()  # as at the interpreter's exit
        gc.collect()
        self.assertIsNotNone(allocator())

    def test_fsdp2_gathers_in_the_memory(self):
        layers = 3
        model = nn.Sequential(*[fsdp.fully_shard(Scaled()) for _ in range(layers)])
        fsdp.fully_shard(model)
        for module in model.modules():
            if isinstance(module, fsdp.FSDPModule):
                module.set_allocate_memory_from_process_group_for_comm(True)
        for step in range(1, 3):
            model(torch.ones(SIZE * 1000, device=DEVICE)).sum().backward()
            torch.cuda.synchronize(DEVICE)
            gathered = self.calls_by_copy_engines() - self.copies
            self.assertGreaterEqual(gathered, layers * step)

    def test_a_pool_of_the_program_uses_the_memory(self):
        pool = torch.cuda.MemPool(backend().mem_allocator)
        with torch.cuda.use_mem_pool(pool, DEVICE):
            tensor = torch.empty(COUNT, device=DEVICE)
            whole = torch.empty(SIZE * COUNT, device=DEVICE)
        fill_late(tensor, self.own)
        dist.all_gather_into_tensor(whole, tensor)
        self.assertEqual(self.calls_by_copy_engines() - self.copies, 1)
        self.assertEqual(values(whole[:COUNT].clone()), [1.0])
