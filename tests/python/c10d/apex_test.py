"""Apex's parallel and amp over Ronda."""

from __future__ import annotations

import unittest

import ronda
import torch
from ronda import apex
from torch import nn

RANK = SIZE = 0


def setUpModule() -> None:
    global RANK, SIZE
    torch.set_num_threads(1)
    ronda.init()
    RANK, SIZE = ronda.rank(), ronda.size()


def tearDownModule() -> None:
    ronda.shutdown()


def network(seed: int = 5) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))


def inputs(rank: int) -> torch.Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(rank))


def gradients(model: nn.Module, rank: int) -> list[torch.Tensor]:
    model.zero_grad()
    model(inputs(rank)).square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


class ParallelTest(unittest.TestCase):
    def check(self, found, expected) -> None:
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)

    def sums(self) -> list[torch.Tensor]:
        by_rank = [gradients(network(), rank) for rank in range(SIZE)]
        return [sum(each) for each in zip(*by_rank)]

    def test_gradients_are_averaged(self):
        for options, divisor in (
            ({}, SIZE),
            ({"delay_allreduce": True}, SIZE),
            ({"gradient_average": False}, 1),
            ({"gradient_predivide_factor": 4.0}, SIZE),
            ({"gradient_predivide_factor": 4.0, "gradient_average": False}, 4),
        ):
            with self.subTest(**options):
                # Other weights on other ranks: the constructor makes them rank 0's.
                model = apex.parallel.DistributedDataParallel(network(5 + RANK), **options)
                expected = [total / divisor for total in self.sums()]
                for _ in range(3):
                    self.check(gradients(model, RANK), expected)

    def test_disabled_allreduce_accumulates(self):
        model = apex.parallel.DistributedDataParallel(network())
        model.disable_allreduce()
        self.check(gradients(model, RANK), gradients(network(), RANK))
        model.enable_allreduce()
        model(inputs(RANK)).square().sum().backward()  # adds to the gradients
        self.check(
            [p.grad for p in model.parameters()], [2 * total / SIZE for total in self.sums()]
        )

    def test_parameters_without_gradients(self):
        for delay in (False, True):
            two = nn.ModuleList([nn.Linear(6, 2), nn.Linear(6, 2)])
            two.forward = lambda x, two=two: two[0](x)
            model = apex.parallel.DistributedDataParallel(two, delay_allreduce=delay)
            model(inputs(RANK)).sum().backward()
            if delay:
                self.assertIsNone(two[1].weight.grad)
            else:
                self.assertFalse(two[1].weight.grad.any())

    def test_what_is_not_there(self):
        with self.assertRaisesRegex(NotImplementedError, "retain_allreduce_buffers"):
            apex.parallel.DistributedDataParallel(network(), retain_allreduce_buffers=True)
        with self.assertRaisesRegex(NotImplementedError, "all ranks"):
            apex.parallel.convert_syncbn_model(network(), process_group=object())

    def test_reducer(self):
        model = network(5 + RANK)
        reducer = apex.parallel.Reducer(model)
        gradients(model, RANK)
        reducer.reduce()
        self.check([p.grad for p in model.parameters()], [total / SIZE for total in self.sums()])
        tensors = [torch.full((2,), float(RANK)), torch.full((3, 2), 1.0).t()]
        apex.parallel.Reducer(tensors).reduce()
        self.check(tensors, [torch.full((2,), (SIZE - 1) / 2), torch.ones(2, 3)])

    def test_synchronized_batch_normalization(self):
        """Equals one process with the batches of all ranks."""
        whole = network()
        whole(torch.cat([inputs(rank) for rank in range(SIZE)])).square().sum().backward()
        model = apex.parallel.convert_syncbn_model(network())
        self.assertIsInstance(model[1], apex.parallel.SyncBatchNorm)
        model = apex.parallel.DistributedDataParallel(model, gradient_average=False)
        self.check(gradients(model, RANK), [p.grad for p in whole.parameters()])
        self.check(model.buffers(), whole.buffers())


class AmpTest(unittest.TestCase):
    def train(self, level: str, **options) -> tuple[nn.Module, float]:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        model, optimizer = apex.amp.initialize(model, optimizer, opt_level=level, **options)
        model = apex.parallel.DistributedDataParallel(model)
        data = inputs(RANK).to(next(model.parameters()).dtype)
        for _ in range(20):
            optimizer.zero_grad()
            loss = model(data).float().square().mean()
            with apex.amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
        return model.module, loss.item()

    def test_levels(self):
        plain, loss = self.train("O0")
        for level in ("O1", "O2", "O3"):
            with self.subTest(level=level):
                model, lower = self.train(level)
                dtype = torch.bfloat16 if level == "O3" else torch.float32
                self.assertIs(model[0].weight.dtype, dtype)
                self.assertIs(model(inputs(0).to(dtype)).dtype, torch.bfloat16)
                self.assertAlmostEqual(lower, loss, delta=0.05)
                for ours, theirs in zip(model.parameters(), plain.parameters()):
                    torch.testing.assert_close(ours.float(), theirs, rtol=0.1, atol=0.05)

    def test_outputs_and_norms(self):
        model = apex.amp.initialize(
            network(), opt_level="O3", keep_batchnorm_fp32=True, cast_model_outputs=torch.float32
        )
        self.assertIs(model[1].weight.dtype, torch.float32)
        self.assertIs(model[0].weight.dtype, torch.bfloat16)

    def test_overflow_skips_a_step_on_every_rank(self):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model, optimizer = apex.amp.initialize(model, optimizer, opt_level="O1")
        model = apex.parallel.DistributedDataParallel(model)
        before = [parameter.detach().clone() for parameter in model.parameters()]

        def step(factor: float) -> None:
            optimizer.zero_grad()
            with apex.amp.scale_loss(model(inputs(RANK)).sum() * factor, optimizer) as scaled:
                scaled.backward()
            optimizer.step()

        step(float("inf") if RANK == SIZE - 1 else 1.0)
        for ours, theirs in zip(model.parameters(), before):
            self.assertTrue(torch.equal(ours, theirs))
        self.assertEqual(apex.amp.state_dict()["loss_scaler0"]["loss_scale"], 2.0**15)
        step(1.0)
        self.assertFalse(torch.equal(model.module[3].bias, before[-1]))
        self.assertEqual(apex.amp.state_dict()["loss_scaler0"]["unskipped"], 1)

    def test_state(self):
        apex.amp.initialize(network(), num_losses=2)
        state = apex.amp.state_dict()
        state["loss_scaler1"]["loss_scale"] = 8.0
        apex.amp.load_state_dict(state)
        self.assertEqual(apex.amp.state_dict(), state)
        with self.assertRaisesRegex(ValueError, "2 losses, and initialize\\(\\) 1"):
            apex.amp.initialize(network())
            apex.amp.load_state_dict(state)
        with self.assertRaisesRegex(ValueError, "O0, O1, O2, O3"):
            apex.amp.initialize(network(), opt_level="O4")
