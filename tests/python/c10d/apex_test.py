# SPDX-License-Identifier: Apache-2.0

"""Tests Apex's parallel and amp over Ronda."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import unittest

import ronda
import ronda.torch
import torch
from ronda import apex
from torch import nn
from torch.utils.checkpoint import checkpoint

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


class ReducingInBackward(torch.autograd.Function):
    """The identity. Its backward pass waits until all earlier gradients are summed."""

    @staticmethod
    def forward(ctx, tensor):
        return tensor.clone()

    @staticmethod
    def backward(ctx, gradient):
        ronda.torch.allreduce(torch.ones(1), name="later than earlier gradients")
        return gradient.clone()


class Shared(nn.Module):
    """A network in which autograd computes two gradients as views of a tensor that it reads again
    later.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(1, 2, 3))
        self.second = nn.Parameter(torch.zeros(2, 3))
        self.third = nn.Parameter(torch.zeros(3, 2))

    def forward(self, factor: torch.Tensor) -> torch.Tensor:
        first = ReducingInBackward.apply(self.first)  # backward computes its gradient last
        return ((first + (self.second.unsqueeze(0) + self.third.view(1, 2, 3))) * factor).sum()


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
                # At first the ranks' weights differ. The constructor replaces all of them with rank
                # 0's weights.
                model = apex.parallel.DistributedDataParallel(network(5 + RANK), **options)
                expected = [total / divisor for total in self.sums()]
                for _ in range(3):
                    self.check(gradients(model, RANK), expected)

    def check_shared(self, model: nn.Module, expected: float) -> None:
        for name, parameter in model.named_parameters():
            with self.subTest(parameter=name):
                self.assertEqual(set(parameter.grad.flatten().tolist()), {expected})

    def test_gradients_that_share_memory_are_summed_once(self):
        for delays in (False, True):
            model = apex.parallel.DistributedDataParallel(
                Shared(), gradient_average=False, delay_allreduce=delays
            )
            for _ in range(3):
                model.zero_grad(set_to_none=True)
                model(torch.full((1, 2, 3), RANK + 1.0)).backward()
                self.check_shared(model, float(sum(range(SIZE + 1))))

    def test_gradients_in_memory_of_the_program(self):
        for part_of, delays in itertools.product(
            (lambda part: part, lambda part: part.data), (False, True)
        ):
            model = apex.parallel.DistributedDataParallel(
                network(5), gradient_average=False, delay_allreduce=delays
            )
            sizes = [each.numel() for each in model.parameters()]
            flat = torch.zeros(sum(sizes))
            for parameter, part in zip(model.parameters(), flat.split(sizes)):
                parameter.grad = part_of(part.view_as(parameter))
            for _ in range(2):
                flat.zero_()
                expected = self.sums()
                model(inputs(RANK)).square().sum().backward()
                parts = [p.view_as(each) for p, each in zip(flat.split(sizes), expected)]
                self.check(parts, expected)

    def test_backward_that_raises_leaves_the_next_one_whole(self):
        class Failing(nn.Module):
            def forward(self, data: torch.Tensor) -> torch.Tensor:
                if self.training:
                    data.register_hook(self.fail)
                return data

            def fail(self, _: torch.Tensor) -> None:
                raise MemoryError("made up")

        for delays in (False, True):
            own = network()
            own.insert(3, failing := Failing())
            model = apex.parallel.DistributedDataParallel(own, delay_allreduce=delays)
            expected = [total / SIZE for total in self.sums()]
            self.assertRaises(MemoryError, gradients, model, RANK)
            failing.eval()
            for _ in range(2):
                self.check(gradients(model, RANK), expected)

    def test_gradients_of_a_checkpointed_segment_are_summed_once(self):
        class Checkpointed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = network()
                self.unused = nn.Parameter(torch.ones(2))

            def forward(self, data: torch.Tensor) -> torch.Tensor:
                data = data.clone().requires_grad_()
                return checkpoint(self.net[2:], self.net[:2](data), use_reentrant=True)

        for delays in (False, True):
            model = apex.parallel.DistributedDataParallel(
                Checkpointed(), gradient_average=False, delay_allreduce=delays
            )
            model.zero_grad()
            model(inputs(RANK)).square().sum().backward()
            self.check([p.grad for p in model.module.net.parameters()], self.sums())

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

    def test_copies_average_as_their_original(self):
        model = apex.parallel.DistributedDataParallel(network())
        expected = [total / SIZE for total in self.sums()]
        for each in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model):
            for _ in range(3):
                self.check(gradients(each, RANK), expected)

    def test_missing_argument_names_an_alternative(self):
        with self.assertRaisesRegex(NotImplementedError, "retain_allreduce_buffers"):
            apex.parallel.DistributedDataParallel(network(), retain_allreduce_buffers=True)
        for name, value, remedy in (
            ("device_ids", [0], "model.to"),
            ("output_device", 0, "module's device"),
            ("find_unused_parameters", True, "delay_allreduce=True"),
            ("process_group", object(), "all ranks"),
            ("bucket_cap_mb", 25, "RONDA_FUSION_THRESHOLD"),
        ):
            with self.subTest(name), self.assertRaisesRegex(TypeError, f"^{name} is.*{remedy}"):
                apex.parallel.DistributedDataParallel(network(), **{name: value})
        with self.assertRaisesRegex(TypeError, "^device_ids is"):
            apex.parallel.DistributedDataParallel(network(), [0])
        with self.assertRaisesRegex(TypeError, "no argument 'mesage_size'"):
            apex.parallel.DistributedDataParallel(network(), mesage_size=1)
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

    def test_reducer_of_gradients_that_share_memory(self):
        model = Shared()
        reducer = apex.parallel.Reducer(model)
        model(torch.full((1, 2, 3), RANK + 1.0)).backward()
        reducer.reduce()
        self.check_shared(model, (SIZE + 1) / 2)

    def test_synchronized_batch_normalization(self):
        """The result equals the result of one process that has the batches of all ranks."""
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

    def test_copies_compute_with_their_own_weights(self):
        for level in ("O1", "O2", "O3"):
            model = apex.amp.initialize(
                network(), opt_level=level, cast_model_outputs=torch.float32
            ).eval()
            data = inputs(0).to(model[0].weight.dtype)
            for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                self.assertTrue(torch.equal(other(data), model(data)))
                self.assertIs(other(data).dtype, torch.float32)
                before = model(data)
                nn.init.zeros_(other[3].weight)
                self.assertFalse(torch.equal(other(data), before))
                self.assertTrue(torch.equal(model(data), before))

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

    def test_gradients_of_several_losses_add_up(self):
        for delay in (False, True):
            for fraction in (1.0, 0.5):
                with self.subTest(delay_unscale=delay, scale=fraction * 128):
                    model = network()
                    optimizer = torch.optim.SGD(model.parameters(), 0.1)
                    apex.amp.initialize(model, optimizer, opt_level="O0", loss_scale=fraction * 128)
                    expected = gradients(network(), RANK)
                    for i in range(3):
                        loss = model(inputs(RANK)).square().sum()
                        with apex.amp.scale_loss(
                            loss, optimizer, delay_unscale=delay and i < 2
                        ) as scaled:
                            scaled.backward()
                    for parameter, gradient in zip(model.parameters(), expected):
                        torch.testing.assert_close(parameter.grad, 3 * gradient)

    def test_optimizers_of_apex(self):
        for make in (
            lambda p: apex.optimizers.FusedAdam(p, 0.05),
            lambda p: apex.optimizers.FusedSGD(p, 0.05, momentum=0.9),
            lambda p: apex.optimizers.FusedLAMB(p, 0.05),
        ):
            model = network()
            model, optimizer = apex.amp.initialize(model, make(model.parameters()))
            model = apex.parallel.DistributedDataParallel(model)
            losses = []
            for _ in range(10):
                optimizer.zero_grad()
                loss = model(inputs(RANK)).square().mean()
                losses.append(loss.item())
                with apex.amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
                optimizer.step()
            self.assertLess(losses[-1], losses[0])
            # The parameters must be equal on all ranks.
            for parameter in model.parameters():
                largest = ronda.torch.allreduce(parameter.detach(), op=ronda.ReduceOp.MAX)
                self.assertTrue(torch.equal(largest, parameter.detach()))

    def test_half_optimizer_over_distributed_gradients(self):
        model = network().to(torch.bfloat16)
        model = apex.parallel.DistributedDataParallel(model)
        optimizer = apex.fp16_utils.FP16_Optimizer(
            torch.optim.SGD(model.parameters(), 0.1), dynamic_loss_scale=True
        )
        before = [parameter.detach().clone() for parameter in model.parameters()]
        for has_overflowed in (True, False):
            factor = math.inf if has_overflowed and RANK == SIZE - 1 else 1.0
            optimizer.zero_grad()
            optimizer.backward(model(inputs(RANK).bfloat16()).float().sum() * factor)
            self.assertEqual(optimizer.overflow, has_overflowed)
            optimizer.step()
            is_same = all(map(torch.equal, before, model.parameters()))
            self.assertEqual(is_same, has_overflowed)
        self.assertEqual(optimizer.loss_scale, 2.0**31)

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
