"""What PyTorch 2 builds on process groups: DTensor, functional collectives, compiled modules."""

from __future__ import annotations

import unittest

import ronda.torch.c10d  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

IS_NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 5)
RANK = SIZE = 0


def setUpModule() -> None:
    global RANK, SIZE
    torch.set_num_threads(1)
    dist.init_process_group("ronda")
    RANK, SIZE = dist.get_rank(), dist.get_world_size()


def tearDownModule() -> None:
    dist.destroy_process_group()


@unittest.skipUnless(IS_NEW, f"torch {torch.__version__} is older than 2.5")
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
