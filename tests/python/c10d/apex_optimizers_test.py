# SPDX-License-Identifier: Apache-2.0

"""Tests ronda.apex.optimizers, in one process."""

from __future__ import annotations

import io
import math
import unittest

import torch
from apex_cases import OptimizerCase, parameters, set_gradients, setUpModule, trained  # noqa: F401
from ronda.apex import optimizers
from torch import nn


class TorchOptimizersTest(OptimizerCase):
    def test_sgd_equals_torchs(self):
        for options in (
            {},
            {"weight_decay": 0.1},
            {"momentum": 0.9},
            {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1},
            {"momentum": 0.9, "nesterov": True},
            {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        ):
            with self.subTest(**options):
                ours = trained(lambda p, o=options: optimizers.FusedSGD(p, lr=0.1, **o))
                self.check(ours, trained(lambda p, o=options: torch.optim.SGD(p, lr=0.1, **o)))

    def test_sgd_decay_after_momentum_does_not_enter_it(self):
        ours = trained(
            lambda p: optimizers.FusedSGD(
                p, 0.1, momentum=0.9, weight_decay=0.2, wd_after_momentum=True
            )
        )
        expected = parameters()
        momenta = [torch.zeros_like(p) for p in expected]
        with torch.no_grad():
            for step in range(5):
                set_gradients(expected, step)
                for p, momentum in zip(expected, momenta):
                    momentum.mul_(0.9).add_(p.grad)
                    p.sub_(0.1 * (momentum + 0.2 * p))
        self.check(ours, expected)

    def test_parameter_whose_first_gradient_comes_later(self):
        def make(cls):
            several = parameters()
            optimizer = cls(several, lr=0.1, momentum=0.9, dampening=0.5)
            for step in range(4):
                set_gradients(several, step)
                if step < 2:
                    several[1].grad = None
                optimizer.step()
            return several

        self.check(make(optimizers.FusedSGD), make(torch.optim.SGD))

    def test_gradient_in_another_order_of_elements(self):
        """Tests a gradient whose memory format differs from the parameter's; torch's fused CPU
        kernels mix up the two formats.
        """

        def make(cls, **options):
            values = parameters()[3].detach().contiguous(memory_format=torch.channels_last)
            several = [nn.Parameter(values)]
            optimizer = cls(several, lr=0.1, **options)
            for step in range(3):
                set_gradients(several, step)
                self.assertNotEqual(several[0].stride(), several[0].grad.stride())
                optimizer.step()
            return several

        self.check(make(optimizers.FusedAdam), make(torch.optim.AdamW, weight_decay=0.0))
        momentum = {"momentum": 0.9, "nesterov": True}
        self.check(make(optimizers.FusedSGD, **momentum), make(torch.optim.SGD, **momentum))

    def test_adam_equals_torchs(self):
        for decoupled, theirs in ((True, torch.optim.AdamW), (False, torch.optim.Adam)):
            for decay in (0.0, 0.1):
                options = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": decay}
                with self.subTest(adam_w_mode=decoupled, **options):
                    ours = trained(
                        lambda p, o=options, d=decoupled: optimizers.FusedAdam(
                            p, adam_w_mode=d, **o
                        )
                    )
                    self.check(ours, trained(lambda p, o=options, cls=theirs: cls(p, **o)))

    def test_adam_without_correction_of_bias(self):
        ours = trained(lambda p: optimizers.FusedAdam(p, 0.05, False, weight_decay=0.1))
        expected = parameters()
        averages = [(torch.zeros_like(p), torch.zeros_like(p)) for p in expected]
        with torch.no_grad():
            for step in range(5):
                set_gradients(expected, step)
                for p, (m, v) in zip(expected, averages):
                    m.mul_(0.9).add_(0.1 * p.grad)
                    v.mul_(0.999).add_(0.001 * p.grad.square())
                    p.sub_(0.05 * (m / (v.sqrt() + 1e-8) + 0.1 * p))
        self.check(ours, expected)

    def test_adagrad_equals_torchs(self):
        for decay in (0.0, 0.1):
            ours = trained(lambda p, d=decay: optimizers.FusedAdagrad(p, 0.05, weight_decay=d))
            theirs = trained(lambda p, d=decay: torch.optim.Adagrad(p, 0.05, weight_decay=d))
            self.check(ours, theirs)

    def test_adagrad_with_decay_of_the_weights(self):
        ours = trained(
            lambda p: optimizers.FusedAdagrad(p, 0.05, weight_decay=0.1, adagrad_w_mode=True)
        )
        expected = parameters()
        sums = [torch.zeros_like(p) for p in expected]
        with torch.no_grad():
            for step in range(5):
                set_gradients(expected, step)
                for p, total in zip(expected, sums):
                    total.add_(p.grad.square())
                    p.sub_(0.05 * (p.grad / (total.sqrt() + 1e-10) + 0.1 * p))
        self.check(ours, expected)


class LambTest(OptimizerCase):
    def expected(
        self,
        decay: float = 0.01,
        correct: bool = True,
        decoupled: bool = True,
        average: bool = True,
        largest: float = 1.0,
        everywhere: bool = False,
    ) -> list[nn.Parameter]:
        """Updates one parameter at a time, by the formula in the class's docstring."""
        several = parameters()
        moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in several]
        with torch.no_grad():
            for step in range(1, 6):
                set_gradients(several, step - 1)
                norm = math.sqrt(sum(p.grad.square().sum().item() for p in several))
                for p, (m, v) in zip(several, moments):
                    g = p.grad / max(1.0, norm / largest)
                    if not decoupled:
                        g = g + decay * p
                    m.mul_(0.9).add_(g * (0.1 if average else 1.0))
                    v.mul_(0.999).add_(0.001 * g * g)
                    mean = m / (1 - 0.9**step) if correct else m
                    square = v / (1 - 0.999**step) if correct else v
                    update = mean / (square.sqrt() + 1e-6)
                    if decoupled:
                        update = update + decay * p
                    ratio = 1.0
                    if (decay != 0 or everywhere) and p.norm() > 0 and update.norm() > 0:
                        ratio = p.norm() / update.norm()
                    p.sub_(0.1 * ratio * update)
        return several

    def test_step_is_that_of_the_formula(self):
        for ours, formula in (
            ({}, {}),
            ({"weight_decay": 0.0}, {"decay": 0.0}),
            ({"weight_decay": 0.0, "use_nvlamb": True}, {"decay": 0.0, "everywhere": True}),
            ({"adam_w_mode": False, "weight_decay": 0.2}, {"decoupled": False, "decay": 0.2}),
            ({"grad_averaging": False}, {"average": False}),
            ({"bias_correction": False}, {"correct": False}),
            ({"max_grad_norm": 100.0}, {"largest": math.inf}),
            ({"max_grad_norm": math.inf}, {"largest": math.inf}),
        ):
            with self.subTest(**ours):
                found = trained(lambda p, o=ours: optimizers.FusedLAMB(p, lr=0.1, **o))
                self.check(found, self.expected(**formula), rtol=1e-4, atol=1e-5)

    def test_parameter_of_zeros_moves(self):
        zeros = nn.Parameter(torch.zeros(3))
        optimizer = optimizers.FusedLAMB([zeros], lr=0.1)
        zeros.grad = torch.ones(3)
        optimizer.step()
        torch.testing.assert_close(zeros.detach(), torch.full((3,), -0.1), rtol=1e-4, atol=1e-4)

    def test_norm_is_that_of_all_groups(self):
        def make(groups):
            several = parameters()
            optimizer = optimizers.FusedLAMB(groups(several), lr=0.1)
            set_gradients(several, 0)
            optimizer.step()
            return several

        whole = make(lambda p: p)
        self.check(make(lambda p: [{"params": p[:1]}, {"params": p[1:]}]), whole)


class NovoGradTest(OptimizerCase):
    def expected(
        self,
        inside: bool = False,
        average: bool = True,
        largest: bool = False,
        zero: bool = False,
        correct: bool = True,
    ) -> list[nn.Parameter]:
        several = parameters()
        averages, norms = [torch.zeros_like(p) for p in several], [None] * len(several)
        with torch.no_grad():
            for step in range(1, 6):
                set_gradients(several, step - 1)
                for i, (p, m) in enumerate(zip(several, averages)):
                    g = p.grad
                    new = (g.abs().max() if largest else g.norm()).item()
                    if norms[i] is None:
                        norms[i] = 0.0 if zero else new
                    if largest:
                        norms[i] = 0.98 * norms[i] + 0.02 * new
                    else:
                        norms[i] = math.sqrt(0.98 * norms[i] ** 2 + 0.02 * new**2)
                    divisor = norms[i] / (math.sqrt(1 - 0.98**step) if correct else 1.0) + 1e-8
                    if inside:
                        g = g / divisor + 0.1 * p
                    m.mul_(0.95).add_(g * (0.05 if average else 1.0))
                    mean = m / (1 - 0.95**step) if correct else m
                    p.sub_(0.1 * (mean if inside else mean / divisor + 0.1 * p))
        return several

    def test_step_is_that_of_the_formula(self):
        for ours, formula in (
            ({}, {}),
            ({"reg_inside_moment": True}, {"inside": True}),
            ({"grad_averaging": False}, {"average": False}),
            ({"norm_type": 0}, {"largest": True}),
            ({"init_zero": True}, {"zero": True}),
            ({"bias_correction": False}, {"correct": False}),
        ):
            with self.subTest(**ours):
                found = trained(
                    lambda p, o=ours: optimizers.FusedNovoGrad(
                        p, lr=0.1, betas=(0.95, 0.98), weight_decay=0.1, **o
                    )
                )
                self.check(found, self.expected(**formula), rtol=1e-4, atol=1e-5)


# For each optimizer, a function that creates it for the given parameters.
ALL = {
    "FusedSGD": lambda p: optimizers.FusedSGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "FusedAdam": lambda p: optimizers.FusedAdam(p, lr=0.1, weight_decay=0.1),
    "FusedAdagrad": lambda p: optimizers.FusedAdagrad(p, lr=0.1),
    "FusedLAMB": lambda p: optimizers.FusedLAMB(p, lr=0.1),
    "FusedNovoGrad": lambda p: optimizers.FusedNovoGrad(p, lr=0.1),
}


class EveryOptimizerTest(OptimizerCase):
    def test_gradients_stay_as_they_are(self):
        for name, make in ALL.items():
            with self.subTest(name):
                several = trained(make)
                expected = parameters()
                set_gradients(expected, 4)
                self.check([p.grad for p in several], [p.grad for p in expected], rtol=0, atol=0)

    def test_parameters_of_16_bits_step_as_those_of_32(self):
        for dtype in (torch.float16, torch.bfloat16):
            for name, make in ALL.items():
                with self.subTest(name):
                    narrow = parameters(dtype)
                    wide = [nn.Parameter(p.detach().float()) for p in narrow]
                    optimizer, other = make(narrow), make(wide)
                    set_gradients(narrow, 0)
                    for ours, theirs in zip(narrow, wide):
                        theirs.grad = ours.grad.float()
                    optimizer.step()
                    other.step()
                    self.check(narrow, [p.to(dtype) for p in wide], rtol=0, atol=0)
                    for state in optimizer.state.values():
                        for value in state.values():
                            self.assertIs(value.dtype, torch.float32)

    def test_saved_state_goes_on_as_if_nothing_had_happened(self):
        for dtype in (torch.float32, torch.float16):
            for name, make in ALL.items():
                with self.subTest(name):
                    several = parameters(dtype)
                    optimizer = make(several)
                    set_gradients(several, 0)
                    optimizer.step()
                    file = io.BytesIO()
                    torch.save(optimizer.state_dict(), file)
                    file.seek(0)
                    others = [nn.Parameter(p.detach().clone()) for p in several]
                    restored = make(others)
                    restored.load_state_dict(torch.load(file))
                    for each, its in ((optimizer, several), (restored, others)):
                        for step in range(1, 4):
                            set_gradients(its, step)
                            each.step()
                    self.check(others, several, rtol=0, atol=0)

    def test_parameters_without_gradients_stay(self):
        for name, make in ALL.items():
            with self.subTest(name):
                several = parameters()
                before = several[0].detach().clone()
                optimizer = make([{"params": several[:1]}, {"params": several[1:]}])
                optimizer.step()  # no parameter has a gradient
                set_gradients(several, 0)
                several[0].grad = None
                optimizer.step()
                self.check(several[:1], [before], rtol=0, atol=0)

    def test_closure_and_schedule(self):
        for name, make in ALL.items():
            with self.subTest(name):
                several = parameters()
                optimizer = make(several)
                schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.0)
                before = [p.detach().clone() for p in several]

                def closure(several=several, optimizer=optimizer):
                    optimizer.zero_grad()
                    loss = sum(p.square().sum() for p in several)
                    loss.backward()
                    return loss

                self.assertGreater(optimizer.step(closure).item(), 0)
                self.check(several, before, rtol=0, atol=0)  # at a learning rate of 0
                schedule.step()

    def test_sparse_gradients_are_refused(self):
        for name, make in ALL.items():
            with self.subTest(name):
                table = nn.Embedding(4, 2, sparse=True)
                optimizer = make(table.parameters())
                table(torch.tensor([1])).sum().backward()
                with self.assertRaisesRegex(RuntimeError, "SparseAdam"):
                    optimizer.step()

    def test_zero_grad(self):
        several = parameters()
        for make, removes in (
            (lambda p: optimizers.FusedAdam(p), True),
            (lambda p: optimizers.FusedAdam(p, set_grad_none=False), False),
            (lambda p: optimizers.FusedSGD(p, 0.1), False),
        ):
            set_gradients(several, 0)
            optimizer = make(several)
            optimizer.zero_grad()
            for parameter in several:
                self.assertEqual(parameter.grad is None, removes)
                self.assertFalse(not removes and parameter.grad.any())
        optimizer.zero_grad(set_to_none=True)
        self.assertIsNone(several[0].grad)

    def test_arguments_that_are_not_there(self):
        several = parameters()
        for name in ("FusedAdam", "FusedLAMB", "FusedNovoGrad"):
            with self.assertRaisesRegex(NotImplementedError, f"amsgrad=True.*{name}"):
                getattr(optimizers, name)(several, amsgrad=True)
        with self.assertRaisesRegex(NotImplementedError, "capturable=True"):
            optimizers.FusedAdam(several, capturable=True)
        for name, options, text in (
            ("FusedSGD", {}, "lr"),
            ("FusedSGD", {"lr": 0.1, "nesterov": True}, "nesterov"),
            ("FusedSGD", {"lr": 0.1, "momentum": -1.0}, "momentum is -1.0"),
            ("FusedAdam", {"lr": -0.1}, "lr is -0.1"),
            ("FusedAdam", {"betas": (0.9, 1.0)}, "betas"),
            ("FusedAdagrad", {"eps": math.nan}, "eps is nan"),
            ("FusedLAMB", {"max_grad_norm": 0.0}, "max_grad_norm is 0.0.*math.inf"),
            ("FusedLAMB", {"weight_decay": -1.0}, "weight_decay is -1.0"),
            ("FusedNovoGrad", {"norm_type": 1}, "norm_type is 1"),
        ):
            with self.subTest(name, **options), self.assertRaisesRegex(ValueError, text):
                getattr(optimizers, name)(several, **options)

    def test_groups_of_sgd_may_have_learning_rates_of_their_own(self):
        several = parameters()
        optimizer = optimizers.FusedSGD(
            [{"params": several[:2], "lr": 0.0}, {"params": several[2:], "lr": 1.0}]
        )
        before = [p.detach().clone() for p in several]
        set_gradients(several, 0)
        optimizer.step()
        self.check(several[:2], before[:2], rtol=0, atol=0)
        self.check(several[2:], [b - p.grad for b, p in zip(before[2:], several[2:])])


class MasterWeightsTest(unittest.TestCase):
    def test_small_steps_add_up(self):
        """In bfloat16, 1 - 1e-3 rounds to 1, so steps are lost without master weights."""
        for has_masters in (False, True):
            one = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
            optimizer = optimizers.FusedAdam([one], lr=1e-3, master_weights=has_masters)
            for _ in range(20):
                one.grad = torch.ones_like(one)
                optimizer.step()
            expected = 0.98 if has_masters else 1.0
            torch.testing.assert_close(
                one.detach().float(), torch.full((3,), expected), rtol=0, atol=2**-8
            )
