"""ronda.apex.optimizers, fp16_utils, multi_tensor_apply and amp_C, in one process."""

from __future__ import annotations

import copy
import io
import math
import subprocess
import sys
import unittest

import torch
from ronda import apex
from ronda.apex import amp_C, fp16_utils, optimizers
from ronda.apex.multi_tensor_apply import multi_tensor_applier
from torch import nn

IS_NEW = int(torch.__version__.split(".")[0]) >= 2  # computes with float16 on CPUs


def setUpModule() -> None:
    torch.set_num_threads(1)


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    """Of several shapes."""
    generator = torch.Generator().manual_seed(3)
    shapes = ((4, 3), (7,), (), (2, 3, 4, 5))
    values = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return [nn.Parameter(value) for value in values]


def set_gradients(several: list[nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for parameter in several:
        gradient = torch.randn(parameter.shape, generator=generator)
        parameter.grad = gradient.to(parameter.dtype)


def trained(make, dtype: torch.dtype = torch.float32, steps: int = 5) -> list[nn.Parameter]:
    """Parameters after some steps of the optimizer that `make` makes over them."""
    several = parameters(dtype)
    optimizer = make(several)
    for step in range(steps):
        set_gradients(several, step)
        optimizer.step()
    return several


class OptimizerCase(unittest.TestCase):
    def check(self, found, expected, **tolerance) -> None:
        tolerance = tolerance or {"rtol": 1e-5, "atol": 1e-6}
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(
                ours.detach(), theirs.detach(), check_dtype=False, check_stride=False, **tolerance
            )


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
        """torch's fused kernels for CPUs take one for the other."""

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
        """One parameter at a time, by the formula of the class's docstring."""
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


# A way to make each optimizer.
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
                optimizer.step()  # of none
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
        """A step of 1e-3 is lost in a bfloat16 of 1."""
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


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    return fp16_utils.convert_network(model, dtype)


class Fp16UtilsTest(OptimizerCase):
    def test_conversion_leaves_batch_normalization_out(self):
        half = fp16_utils.network_to_half(network())
        self.assertIsInstance(half[0], fp16_utils.tofp16)
        self.assertIs(half[0](torch.ones(2)).dtype, torch.float16)
        for converted in (half[1], fp16_utils.FP16Model(network()).network):
            self.assertIs(converted[0].weight.dtype, torch.float16)
            self.assertIs(converted[1].weight.dtype, torch.float32)
            self.assertIs(converted[1].running_mean.dtype, torch.float32)

    def test_conversion_takes_gradients_along(self):
        model = network()
        model(torch.ones(2, 6)).sum().backward()
        fp16_utils.convert_network(model, torch.bfloat16)
        self.assertIs(model[3].weight.grad.dtype, torch.bfloat16)
        self.assertIs(model[1].weight.grad.dtype, torch.float32)
        self.assertIs(model[1].num_batches_tracked.dtype, torch.int64)

    @unittest.skipUnless(IS_NEW, "torch 1 computes nothing with float16 on a CPU")
    def test_converted_networks_compute(self):
        data = torch.randn(4, 6)
        expected = network()(data)
        for model in (fp16_utils.network_to_half(network()), fp16_utils.FP16Model(network())):
            found = model(data)
            self.assertIs(found.dtype, torch.float16)
            torch.testing.assert_close(found.float(), expected, rtol=0.01, atol=0.01)

    def test_masters_train_a_model(self):
        for flat in (False, True):
            with self.subTest(flat_master=flat):
                model = network()
                plain = copy.deepcopy(model)
                model.to(torch.bfloat16)
                for ours, theirs in zip(model.parameters(), plain.parameters()):
                    theirs.data = ours.detach().float()
                model_params, masters = fp16_utils.prep_param_lists(model, flat_master=flat)
                self.assertEqual(len(masters), 1 if flat else 6)
                ours = torch.optim.SGD(masters, 0.1, momentum=0.9)
                theirs = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9)
                for step in range(3):
                    set_gradients(model_params, step)
                    for mine, other in zip(model_params, plain.parameters()):
                        other.grad = mine.grad.float()
                    fp16_utils.model_grads_to_master_grads(model_params, masters, flat)
                    ours.step()
                    theirs.step()
                    fp16_utils.master_params_to_model_params(model_params, masters, flat)
                expected = [p.to(torch.bfloat16) for p in plain.parameters()]
                self.check(model_params, expected, rtol=0, atol=0)

    def test_masters_of_parameters_without_gradients(self):
        model_params, masters = fp16_utils.prep_param_lists(network())
        set_gradients(model_params, 0)
        model_params[2].grad = None
        fp16_utils.model_grads_to_master_grads(model_params, masters)
        self.assertIsNone(masters[2].grad)
        self.assertIsNotNone(masters[3].grad)
        flat_params, flat = fp16_utils.prep_param_lists(network(), flat_master=True)
        set_gradients(flat_params, 0)
        flat_params[2].grad = None
        with self.assertRaisesRegex(ValueError, r"parameters \[2\].*flat_master=False"):
            fp16_utils.model_grads_to_master_grads(flat_params, flat, flat_master=True)

    def test_flat_master_of_several_dtypes_is_refused(self):
        with self.assertRaisesRegex(ValueError, "torch.bfloat16, torch.float32.*flat_master"):
            fp16_utils.prep_param_lists(network(torch.bfloat16), flat_master=True)

    def test_to_python_float(self):
        self.assertEqual(fp16_utils.to_python_float(torch.tensor(1.5)), 1.5)
        self.assertEqual(fp16_utils.to_python_float([2.5]), 2.5)


class LossScalerTest(unittest.TestCase):
    def test_static_scale_stays(self):
        scaler = fp16_utils.LossScaler(128.0)
        weight = nn.Parameter(torch.ones(2))
        scaler.backward(weight.sum())
        torch.testing.assert_close(weight.grad, torch.full((2,), 128.0))
        weight.grad.fill_(math.inf)
        self.assertFalse(scaler.has_overflow([weight]))
        scaler.update_scale(True)
        self.assertEqual(scaler.loss_scale, 128.0)
        self.assertEqual(scaler.scale_gradient(None, (torch.tensor(2.0),), None)[0].item(), 256.0)

    def test_dynamic_scale_falls_and_rises(self):
        scaler = fp16_utils.DynamicLossScaler(init_scale=64.0, scale_factor=4.0, scale_window=3)
        weight = nn.Parameter(torch.ones(2))
        self.assertFalse(scaler.has_overflow([weight]))  # it has no gradient
        weight.grad = torch.tensor([1.0, math.nan])
        self.assertTrue(scaler.has_overflow([weight]))
        found = []
        for overflow in (True, False, False, False, False, True, True, True):
            scaler.update_scale(overflow)
            found.append(scaler.loss_scale)
        self.assertEqual(found, [16.0, 16.0, 16.0, 64.0, 64.0, 16.0, 4.0, 1.0])
        scaler.update_scale(True)
        self.assertEqual(scaler.loss_scale, 1.0)


class Fp16OptimizerTest(OptimizerCase):
    def model(self) -> nn.Module:
        """Of bfloat16, but for batch normalization."""
        return network(torch.bfloat16)

    def forward(self, model: nn.Module, seed: int = 0) -> torch.Tensor:
        data = torch.randn(8, 6, generator=torch.Generator().manual_seed(seed))
        hidden = model[1](model[0](data.to(model[0].weight.dtype)).float())
        return model[3](hidden.tanh().to(model[3].weight.dtype)).float().square().mean()

    def test_scales_do_not_change_the_steps(self):
        def train(**options):
            model = self.model()
            optimizer = fp16_utils.FP16_Optimizer(
                torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), **options
            )
            for step in range(5):
                optimizer.zero_grad()
                optimizer.backward(self.forward(model, step))
                optimizer.step()
            return list(model.parameters()), optimizer

        plain, _ = train()
        for options in ({"static_loss_scale": 128.0}, {"dynamic_loss_scale": True}):
            with self.subTest(**options):
                found, optimizer = train(**options)
                self.check(found, plain, rtol=0, atol=0)
                self.assertEqual([len(each) for each in optimizer.fp16_groups], [4])
                self.assertEqual([len(each) for each in optimizer.fp32_from_fp32_groups], [2])
                self.assertIs(optimizer.fp32_from_fp16_groups[0][0].dtype, torch.float32)

    def test_masters_keep_small_steps(self):
        weight = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
        optimizer = fp16_utils.FP16_Optimizer(torch.optim.SGD([weight], 1e-3))
        for _ in range(20):
            optimizer.zero_grad(set_grads_to_None=True)
            optimizer.backward(weight.sum())
            optimizer.step()
        torch.testing.assert_close(
            weight.detach().float(), torch.full((3,), 0.98), rtol=0, atol=2**-8
        )

    def test_gradients_of_several_losses_add_up(self):
        """Also those of parameters without a copy, which have been divided by the scale."""
        for is_late in (False, True):
            with self.subTest(is_late=is_late):
                model = self.model()
                optimizer = fp16_utils.FP16_Optimizer(
                    torch.optim.SGD(model.parameters(), 0.1), static_loss_scale=64.0
                )
                optimizer.backward(self.forward(model, 1), update_master_grads=not is_late)
                optimizer.backward(self.forward(model, 2), update_master_grads=not is_late)
                if is_late:
                    optimizer.update_master_grads()
                plain = self.model()
                self.forward(plain, 1).backward()
                self.forward(plain, 2).backward()
                expected = [p.grad for p in plain.parameters()]
                (found,) = optimizer.inspect_master_grad_data()
                self.check(found, expected, rtol=1e-2, atol=1e-3)

    def test_overflow_skips_a_step(self):
        model = self.model()
        optimizer = fp16_utils.FP16_Optimizer(
            torch.optim.SGD(model.parameters(), 0.1),
            dynamic_loss_scale=True,
            dynamic_loss_args={"init_scale": 256.0},
        )
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.backward(self.forward(model) * math.inf)
        self.assertTrue(optimizer.overflow)
        self.assertEqual(optimizer.clip_master_grads(1.0), -1)
        self.assertIsNone(optimizer.inspect_master_grad_data())
        optimizer.step()
        self.check(model.parameters(), before, rtol=0, atol=0)
        self.assertEqual(optimizer.loss_scale, 128.0)
        optimizer.zero_grad()
        optimizer.backward(self.forward(model))
        self.assertFalse(optimizer.overflow)
        optimizer.step()
        self.assertFalse(torch.equal(model[3].weight, before[4]))

    def test_clipping(self):
        model = self.model()
        optimizer = fp16_utils.FP16_Optimizer(
            torch.optim.SGD(model.parameters(), 1.0), static_loss_scale=64.0
        )
        optimizer.backward(self.forward(model) * 100)
        before = float(optimizer.clip_master_grads(0.5))
        self.assertGreater(before, 0.5)
        (gradients,) = optimizer.inspect_master_grad_data()
        norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
        self.assertAlmostEqual(norm, 0.5, places=3)

    def test_closure(self):
        model = self.model()
        optimizer = fp16_utils.FP16_Optimizer(
            torch.optim.LBFGS(model.parameters(), 0.1, max_iter=4), static_loss_scale=16.0
        )

        def closure():
            optimizer.zero_grad()
            loss = self.forward(model)
            optimizer.backward(loss)
            return loss

        first = optimizer.step(closure).item()
        self.assertLess(self.forward(model).item(), first)
        optimizer = fp16_utils.FP16_Optimizer(
            torch.optim.SGD(model.parameters(), 0.1), dynamic_loss_scale=True
        )
        with self.assertRaisesRegex(TypeError, "static"):
            optimizer.step(closure)

    def test_saved_state_goes_on_as_if_nothing_had_happened(self):
        def make(model):
            return fp16_utils.FP16_Optimizer(
                optimizers.FusedAdam(model.parameters(), 0.01), dynamic_loss_scale=True
            )

        def step(model, optimizer):
            optimizer.zero_grad()
            optimizer.backward(self.forward(model))
            optimizer.step()

        model = self.model()
        optimizer = make(model)
        step(model, optimizer)
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        other = copy.deepcopy(model)
        restored = make(other)
        restored.load_state_dict(torch.load(file))
        for each in ((model, optimizer), (other, restored)):
            step(*each)
            step(*each)
        self.check(other.parameters(), model.parameters(), rtol=0, atol=0)
        self.check(
            restored.fp32_from_fp16_groups[0], optimizer.fp32_from_fp16_groups[0], rtol=0, atol=0
        )
        static = fp16_utils.FP16_Optimizer(torch.optim.SGD(self.model().parameters(), 0.1))
        with self.assertRaisesRegex(ValueError, "dynamic_loss_scale=True"):
            static.load_state_dict(optimizer.state_dict())

    def test_state_of_an_optimizer_that_has_stepped_is_kept(self):
        weight = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
        inner = torch.optim.SGD([weight], 1.0, momentum=0.5)
        weight.grad = torch.ones_like(weight)
        inner.step()  # to 0, with a momentum of 1
        optimizer = fp16_utils.FP16_Optimizer(inner)
        optimizer.zero_grad()
        optimizer.backward(weight.sum() * 0)
        optimizer.step()
        torch.testing.assert_close(weight.detach().float(), torch.full((3,), -0.5))
        (state,) = optimizer.state.values()
        self.assertIs(state["momentum_buffer"].dtype, torch.float32)

    def test_other_dtypes_are_refused(self):
        weight = nn.Parameter(torch.ones(3, dtype=torch.float64))
        with self.assertRaisesRegex(TypeError, r"\(3,\) is of torch.float64"):
            fp16_utils.FP16_Optimizer(torch.optim.SGD([weight], 0.1))


class MultiTensorTest(unittest.TestCase):
    def setUp(self) -> None:
        self.flag = torch.zeros(1, dtype=torch.int)

    def call(self, operation, lists, *args):
        self.assertTrue(multi_tensor_applier.available)
        return multi_tensor_applier(operation, self.flag, lists, *args)

    def test_scale(self):
        inputs = [torch.tensor([1.0, 2.0]).half(), torch.ones(2, 3), torch.ones(0)]
        outputs = [torch.zeros(2), torch.zeros(2, 3).half(), torch.ones(0)]
        self.call(amp_C.multi_tensor_scale, [inputs, outputs], 0.5)
        torch.testing.assert_close(outputs[0], torch.tensor([0.5, 1.0]))
        torch.testing.assert_close(outputs[1], torch.full((2, 3), 0.5).half())
        self.assertEqual(self.flag.item(), 0)
        inputs[1][0, 0] = math.inf
        self.call(amp_C.multi_tensor_scale, [inputs, inputs], 2.0)
        self.assertEqual(self.flag.item(), 1)
        torch.testing.assert_close(inputs[0], torch.tensor([2.0, 4.0]).half())

    def test_axpby(self):
        for checked, flag in ((0, 0), (1, 1), (-1, 1)):
            x, y = [torch.tensor([1.0, 2.0])], [torch.tensor([3.0, math.nan]).half()]
            self.flag.zero_()
            self.call(amp_C.multi_tensor_axpby, [x, y, x], 2.0, 10.0, checked)
            self.assertEqual(x[0][0].item(), 32.0)
            self.assertEqual(self.flag.item(), flag)
        with self.assertRaisesRegex(ValueError, "arg_to_check is 2"):
            self.call(amp_C.multi_tensor_axpby, [x, y, x], 2.0, 10.0, 2)

    def test_norm(self):
        tensors = [torch.tensor([3.0, 0.0]).half(), torch.tensor([[4.0]]).half()]
        norm, each = self.call(amp_C.multi_tensor_l2norm, [tensors], True)
        torch.testing.assert_close(norm, torch.tensor([5.0]))
        torch.testing.assert_close(each, torch.tensor([3.0, 4.0]))
        norm, each = self.call(amp_C.multi_tensor_l2norm, [tensors], False)
        self.assertEqual((norm.shape, each.shape), ((1,), (0,)))
        self.assertEqual(self.flag.item(), 0)
        self.call(amp_C.multi_tensor_l2norm, [[torch.tensor([math.nan])]])
        self.assertEqual(self.flag.item(), 1)

    def test_lists_that_do_not_match_are_refused(self):
        two, one = [torch.ones(1)] * 2, [torch.ones(1)]
        with self.assertRaisesRegex(ValueError, "lists of 2, 1 tensors.*inputs, outputs"):
            self.call(amp_C.multi_tensor_scale, [two, one], 1.0)
        with self.assertRaisesRegex(ValueError, "it must be 3"):
            self.call(amp_C.multi_tensor_axpby, [one, one], 1.0, 1.0)

    def test_other_operations_are_named(self):
        with self.assertRaisesRegex(AttributeError, "multi_tensor_lamb.*ronda.apex.optimizers"):
            _ = amp_C.multi_tensor_lamb


class ImportTest(unittest.TestCase):
    def test_modules_are_imported_when_named(self):
        program = """
import sys
from ronda import apex
names = ("amp", "amp_C", "fp16_utils", "multi_tensor_apply", "optimizers", "parallel")
assert set(names) <= set(dir(apex)), dir(apex)
loaded = [name for name in names if f"ronda.apex.{name}" in sys.modules]
assert not loaded and "torch" not in sys.modules, loaded
apex.optimizers.FusedAdam
assert "ronda.apex.parallel" not in sys.modules
for name in names:
    getattr(apex, name)
"""
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_unknown_name(self):
        with self.assertRaisesRegex(AttributeError, "'contrib'.*optimizers"):
            _ = apex.contrib
