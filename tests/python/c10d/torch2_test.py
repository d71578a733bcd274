# SPDX-License-Identifier: Apache-2.0

"""Tests features of PyTorch 2: DTensor, functional collectives, compiled modules."""

from __future__ import annotations

import datetime
import os
import tempfile
import unittest

import ronda.torch.c10d  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# In newer versions of torch a group has a backend for each device. Before torch 2.15, the group
# itself was Ronda's backend.
HAS_BACKENDS = hasattr(getattr(torch._C._distributed_c10d, "Backend", None), "all_gather_single")
IS_NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)
RANK = SIZE = 0


def setUpModule() -> None:
    global RANK, SIZE
    if not IS_NEW:
        # In older versions, torch's store is in rank 0, which would end before the other ranks have
        # left init_process_group().
        raise unittest.SkipTest(f"torch {torch.__version__} is older than 2.5")
    torch.set_num_threads(1)
    dist.init_process_group("ronda")
    RANK, SIZE = dist.get_rank(), dist.get_world_size()


def tearDownModule() -> None:
    dist.destroy_process_group()


class NewTorchTest(unittest.TestCase):
    def test_functional_collectives(self):
        from torch.distributed import _functional_collectives as functional

        world = dist.group.WORLD
        mine = torch.ones(4) * (RANK + 1)
        numbers = torch.arange(1.0, SIZE + 1)
        total = functional.all_reduce(mine, "sum", world)
        gathered = functional.all_gather_tensor(mine[:1], 0, world)
        scattered = functional.reduce_scatter_tensor(mine.repeat(SIZE), "sum", 0, world)
        exchanged = functional.all_to_all_single(mine[:1].repeat(SIZE), None, None, world)
        sent = functional.broadcast(mine, 0, world)
        for found, expected in (
            (total, numbers.sum().expand(4)),
            (gathered, numbers),
            (scattered, numbers.sum().expand(4)),
            (exchanged, numbers),
            (sent, torch.ones(4)),
        ):
            torch.testing.assert_close(found + 0, expected)

    def test_coalescing(self):
        tensors = [torch.ones(3), torch.ones(5)]
        with dist.distributed_c10d._coalescing_manager(async_ops=True) as works:
            for tensor in tensors:
                dist.all_reduce(tensor)
        works.wait()
        for tensor in tensors:
            self.assertTrue((tensor == SIZE).all())

    def test_dtensor(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (SIZE,))
        whole = torch.arange(12.0 * SIZE).view(3 * SIZE, 4)
        rows = distribute_tensor(whole, mesh, [Shard(0)])
        columns = rows.redistribute(mesh, [Shard(1)])
        for each in (rows, columns):
            self.assertTrue(torch.equal(each.redistribute(mesh, [Replicate()]).to_local(), whole))
            self.assertEqual(each.sum().full_tensor(), whole.sum())

    def test_tensor_parallel(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import parallel

        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 4 * SIZE), nn.ReLU(), nn.Linear(4 * SIZE, 8))
        inputs = torch.randn(2, 8)
        expected = model(inputs)
        plan = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
        model = parallel.parallelize_module(model, init_device_mesh("cpu", (SIZE,)), plan)
        torch.testing.assert_close(model(inputs), expected)

    def test_compiled_function(self):
        @torch.compile(backend="aot_eager")
        def compute(tensor: torch.Tensor) -> torch.Tensor:
            tensor = tensor * 2
            dist.all_reduce(tensor)
            return tensor + 1

        torch.testing.assert_close(compute(torch.ones(3)), torch.full((3,), 2.0 * SIZE + 1))

    def test_compiled_ddp(self):
        torch.manual_seed(RANK)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)))
        compiled = torch.compile(model, backend="aot_eager")
        for _ in range(3):
            compiled(torch.randn(2, 8)).sum().backward()
        gradient = model.module[0].weight.grad
        others = [torch.empty_like(gradient) for _ in range(SIZE)]
        dist.all_gather(others, gradient)
        for other in others:
            self.assertTrue(torch.equal(other, gradient))


@unittest.skipUnless(HAS_BACKENDS, f"torch {torch.__version__} is older than 2.15")
class BackendTest(unittest.TestCase):
    """Tests methods that PyTorch calls on a Backend, but not on a ProcessGroup."""

    def test_split_group_keeps_the_order_of_its_ranks(self):
        ranks = list(reversed(range(SIZE)))
        group = dist.split_group(None, [ranks])
        mine = ranks.index(RANK)
        self.assertEqual((group.rank(), group.size()), (mine, SIZE))
        own = torch.tensor([float(RANK)])
        gathered = [torch.empty(1) for _ in ranks]
        dist.all_gather(gathered, own, group)
        whole = torch.empty(SIZE)
        dist.all_gather_single(whole, own, group)
        self.assertEqual(torch.cat(gathered).tolist(), ranks)
        self.assertEqual(whole.tolist(), ranks)
        part = torch.empty(1)
        dist.reduce_scatter_single(part, torch.arange(float(SIZE)), group=group)
        self.assertEqual(part.item(), SIZE * mine)
        exchanged = torch.empty(SIZE)
        dist.all_to_all_single(exchanged, torch.arange(float(SIZE)) + 10 * RANK, group=group)
        self.assertEqual(exchanged.tolist(), [10.0 * rank + mine for rank in ranks])
        pieces = [own + k for k in range(SIZE)] if mine == 0 else None
        dist.scatter(part, pieces, group=group, group_src=0)
        self.assertEqual(part.item(), ranks[0] + mine)
        dist.destroy_process_group(group)

    def test_split_group_refuses_to_leave_a_rank_out(self):
        if RANK == 0:
            dist.destroy_process_group(dist.split_group(None, [[0]]))
        else:
            with self.assertRaisesRegex(ValueError, f"rank {RANK} is in none of the groups"):
                dist.split_group(None, [[0]])
        dist.barrier()

    def test_destroyed_group_completes_its_collectives(self):
        group = dist.new_group()
        tensors = [torch.ones(100000) for _ in range(20)]
        works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
        dist.destroy_process_group(group)
        for work, tensor in zip(works, tensors):
            self.assertTrue(work.is_success())
            self.assertTrue((tensor == SIZE).all())

    def test_gather_single(self):
        for root in range(SIZE):
            whole = torch.empty(2 * SIZE) if root == RANK else None
            dist.gather_single(torch.full((2,), float(RANK)), whole, root)
            if whole is not None:
                self.assertEqual(whole.tolist(), [float(i // 2) for i in range(2 * SIZE)])

    def test_groups_of_a_group_with_a_device(self):
        world = dist.group.WORLD
        world.bound_device_id = torch.device("cpu", 0)
        try:
            group = dist.new_group([0])
        finally:
            world.bound_device_id = None
        if RANK == 0:
            self.assertEqual(group.size(), 1)
        dist.barrier()

    def test_mesh_of_two_dimensions(self):
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (SIZE, 1), mesh_dim_names=("data", "model"))
        for name, size in (("data", SIZE), ("model", 1)):
            total = torch.ones(1)
            dist.all_reduce(total, group=mesh.get_group(name))
            self.assertEqual(total.item(), size)

    def test_a_backend_for_each_device(self):
        group = dist.new_group(backend="cpu:gloo,cuda:ronda")
        self.assertIn("Gloo", type(group._get_backend(torch.device("cpu"))).__name__)
        dist.destroy_process_group(group)

    def test_questions_have_answers(self):
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        self.assertTrue(backend.supports_coalescing and backend.supports_splitting)
        self.assertTrue(backend.supports_shrinking)
        self.assertFalse(backend.supports_reconfigure)  # unless made for it
        self.assertEqual(backend.options.backend, "ronda")
        before = dist.group.WORLD._get_sequence_number_for_group()
        dist.all_reduce(torch.ones(1))
        self.assertEqual(dist.group.WORLD._get_sequence_number_for_group(), before + 1)

    def test_set_timeout(self):
        group = dist.new_group()
        dist.set_timeout(datetime.timedelta(seconds=3), group)
        store = dist.distributed_c10d._get_default_store()
        if RANK == 0:
            with self.assertRaisesRegex(TimeoutError, "rank 1"):
                dist.all_reduce(torch.ones(1), group=group)
            store.set("set_timeout", "1")
        else:
            store.wait(["set_timeout"], datetime.timedelta(seconds=60))
        dist.barrier()

    def test_fully_shard(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        def network() -> nn.Module:
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

        model, alone = network(), network()
        fully_shard(model, mesh=init_device_mesh("cpu", (SIZE,)))
        optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (model, alone)]
        for step in range(3):
            batches = [
                torch.randn(3, 8, generator=torch.Generator().manual_seed(10 * step + rank))
                for rank in range(SIZE)
            ]
            for optimizer in optimizers:
                optimizer.zero_grad()
            model(batches[RANK]).square().mean().backward()
            sum(alone(batch).square().mean() for batch in batches).div(SIZE).backward()
            for optimizer in optimizers:
                optimizer.step()
        for one, other in zip(model.parameters(), alone.parameters()):
            torch.testing.assert_close(one.full_tensor(), other)

    def test_checkpoint(self):
        from torch.distributed import checkpoint
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        folder = [tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")) if RANK == 0 else None]
        dist.broadcast_object_list(folder)
        mesh = init_device_mesh("cpu", (SIZE,))
        whole = torch.arange(8.0 * SIZE).view(2 * SIZE, 4)
        saved = {"step": 7, "rows": distribute_tensor(whole, mesh, [Shard(0)])}
        loaded = {
            "step": 0,
            "rows": distribute_tensor(torch.zeros_like(whole), mesh, [Shard(0)]),
        }
        checkpoint.save(saved, checkpoint_id=folder[0])
        checkpoint.load(loaded, checkpoint_id=folder[0])
        self.assertEqual(loaded["step"], 7)
        self.assertTrue(torch.equal(loaded["rows"].full_tensor(), whole))

    def test_pipeline(self):
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        torch.manual_seed(0)
        layers = [nn.Linear(8, 8) for _ in range(SIZE)]
        inputs, targets = torch.randn(4, 8), torch.randn(4, 8)

        def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return (output - target).square().mean()

        loss(nn.Sequential(*layers)(inputs), targets).backward()
        expected = layers[RANK].weight.grad.clone()
        layers[RANK].zero_grad()
        stage = PipelineStage(layers[RANK], RANK, SIZE, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=loss)
        if RANK == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets) if RANK == SIZE - 1 else schedule.step()
        torch.testing.assert_close(layers[RANK].weight.grad, expected)
