# SPDX-License-Identifier: Apache-2.0

"""Tests features that torch builds on process groups, over Ronda: FSDP, ZeRO, hooks, Join and
others.
"""

from __future__ import annotations

import unittest

import ronda.torch.c10d  # noqa: F401
import torch
import torch.distributed as dist
from ronda._library import native
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post_local_sgd
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging import averagers
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

RANK = SIZE = 0


def setUpModule() -> None:
    global RANK, SIZE
    torch.set_num_threads(1)
    dist.init_process_group("ronda")
    RANK, SIZE = dist.get_rank(), dist.get_world_size()


def tearDownModule() -> None:
    dist.destroy_process_group()


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 7, bias=False))


def batch(step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(8, 20, generator=generator)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()


def reference(steps: int, make=sgd) -> list[torch.Tensor]:
    """Returns the weights of one process that sees the batches of all ranks."""
    model = network()
    optimizer = make(model)
    for step in range(steps):
        step_of(model, optimizer, torch.cat([batch(step, rank) for rank in range(SIZE)]))
    return [parameter.detach() for parameter in model.parameters()]


class Digits(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return batch(index, 0)[0]


class WrapperTest(unittest.TestCase):
    def check(self, parameters, expected, tolerance: float = 1e-5) -> None:
        for ours, theirs in zip(parameters, expected, strict=True):
            torch.testing.assert_close(ours.detach(), theirs, rtol=tolerance, atol=tolerance)

    def check_same_on_all_ranks(self, parameters) -> None:
        flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        others = [torch.empty_like(flat) for _ in range(SIZE)]
        dist.all_gather(others, flat)
        for other in others:
            self.assertTrue(torch.equal(flat, other))

    def train(self, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
        for step in range(steps):
            step_of(model, optimizer, batch(step, RANK))


class DdpTest(WrapperTest):
    def test_equals_one_process(self):
        for options in (
            {},
            {"gradient_as_bucket_view": True},
            {"static_graph": True},
            {"bucket_cap_mb": 0.001},
        ):
            with self.subTest(**options):
                model = DistributedDataParallel(network(), **options)
                self.train(model, sgd(model), 5)
                self.check(model.parameters(), reference(5))

    def test_no_sync_accumulates(self):
        model = DistributedDataParallel(network())
        with model.no_sync():
            model(batch(0, RANK)).square().mean().backward()
        model(batch(1, RANK)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        plain = network()
        for step in range(2):
            plain(torch.cat([batch(step, rank) for rank in range(SIZE)])).square().mean().backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        self.check([p.grad for p in model.parameters()], [p.grad for p in plain.parameters()])

    def test_unused_parameters(self):
        class Branches(nn.Module):
            def __init__(self):
                super().__init__()
                self.branches = nn.ModuleList([nn.Linear(20, 3) for _ in range(SIZE + 1)])

            def forward(self, inputs):
                return self.branches[RANK](inputs)

        model = DistributedDataParallel(Branches(), find_unused_parameters=True)
        for step in range(3):
            model.zero_grad(set_to_none=True)
            model(batch(step, RANK)).square().mean().backward()
            self.assertIsNone(model.module.branches[SIZE].weight.grad)
            self.check_same_on_all_ranks(
                [branch.weight.grad for branch in model.module.branches[:SIZE]]
            )

    def test_sparse_gradients_and_buffers(self):
        torch.manual_seed(RANK)
        model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Flatten(), nn.BatchNorm1d(12))
        model = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(3):
            indices = torch.randint(
                0, 10, (8, 3), generator=torch.Generator().manual_seed(step + RANK)
            )
            step_of(model, optimizer, indices)
        self.check_same_on_all_ranks(model.parameters())

    def test_half_precision_hook(self):
        model = DistributedDataParallel(network())
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        self.train(model, sgd(model), 3)
        self.check(model.parameters(), reference(3), 2e-2)
        self.check_same_on_all_ranks(model.parameters())

    def test_power_sgd_hook(self):
        model = DistributedDataParallel(network())
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=4, start_powerSGD_iter=2
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        self.train(model, sgd(model), 6)
        self.check_same_on_all_ranks(model.parameters())

    def test_post_local_sgd(self):
        model = DistributedDataParallel(network())
        alone = [dist.new_group([rank]) for rank in range(SIZE)][RANK]
        state = post_local_sgd.PostLocalSGDState(None, alone, start_localSGD_iter=2)
        model.register_comm_hook(state, post_local_sgd.post_localSGD_hook)
        averager = averagers.PeriodicModelAverager(period=2, warmup_steps=2)
        optimizer = PostLocalSGDOptimizer(sgd(model), averager)
        self.train(model, optimizer, 7)  # the last step averages
        self.check_same_on_all_ranks(model.parameters())

    def test_forked_loaders(self):
        model = DistributedDataParallel(network())
        optimizer = sgd(model)
        loader = DataLoader(Digits(), 8, sampler=DistributedSampler(Digits()), num_workers=2)
        for _ in range(2):
            for inputs in loader:
                step_of(model, optimizer, inputs)
        self.check_same_on_all_ranks(model.parameters())

    def test_uneven_inputs(self):
        model = DistributedDataParallel(network())
        optimizer = sgd(model)
        with Join([model]):
            self.train(model, optimizer, 3 + 2 * RANK)
        self.check_same_on_all_ranks(model.parameters())

    def test_zero_redundancy(self):
        model = DistributedDataParallel(network())
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9
        )
        self.train(model, optimizer, 4)
        self.check(model.parameters(), reference(4))
        optimizer.consolidate_state_dict(to=0)
        if RANK == 0:
            self.assertEqual(len(optimizer.state_dict()["state"]), 3)


try:
    from torch.distributed import fsdp
except ValueError as error:  # torch 1.13 on Python 3.11: Python refuses one of torch's dataclasses
    fsdp = None
    WHY_NO_FSDP = f"torch {torch.__version__} cannot import its FSDP here: {error}"
else:
    WHY_NO_FSDP = ""


@unittest.skipIf(fsdp is None, WHY_NO_FSDP)
class FsdpTest(WrapperTest):
    def test_equals_one_process(self):
        for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
            with self.subTest(strategy=strategy):
                model = fsdp.FullyShardedDataParallel(
                    network(),
                    sharding_strategy=fsdp.ShardingStrategy[strategy],
                    device_id=torch.device("cpu"),
                )
                self.train(model, sgd(model), 4)
                with fsdp.FullyShardedDataParallel.summon_full_params(model):
                    self.check(model.parameters(), reference(4))


class ScheduleTest(WrapperTest):
    """DDP's buckets run in a locked schedule, without control messages."""

    NEGOTIATION = ("reports_sent", "lists_received", "buckets_agreed", "schedules_left")

    def check_locked(self, **options) -> None:
        model = DistributedDataParallel(network(), bucket_cap_mb=0.002, **options)
        optimizer = sgd(model)
        # If earlier schedules ended early, more equal steps are needed before the next one is
        # locked.
        for _ in range(280):
            step_of(model, optimizer, batch(0, RANK))
        before = native.statistics()
        for _ in range(10):
            step_of(model, optimizer, batch(0, RANK))
        after = native.statistics()
        # Any other operation would end the schedule. So the barrier makes each rank wait until all
        # ranks have read their statistics.
        dist.barrier(dist.new_group(backend="gloo"))
        grown = {name: after[name] - before[name] for name in self.NEGOTIATION}
        self.assertEqual(grown, dict.fromkeys(self.NEGOTIATION, 0))
        self.assertGreater(after["buckets_scheduled"], before["buckets_scheduled"])

    def test_ddp(self):
        self.check_locked()

    def test_gradient_as_bucket_view(self):
        self.check_locked(gradient_as_bucket_view=True)

    def test_unused_parameters(self):
        self.check_locked(find_unused_parameters=True)
