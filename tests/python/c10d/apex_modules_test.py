# SPDX-License-Identifier: Apache-2.0

"""Tests ronda.apex.fp16_utils, multi_tensor_apply and amp_C, in one process."""

from __future__ import annotations

import copy
import io
import math
import subprocess
import sys
import unittest

import torch
from apex_cases import OptimizerCase, parameters, set_gradients, setUpModule  # noqa: F401
from ronda import apex
from ronda.apex import amp_C, fp16_utils, optimizers
from ronda.apex.multi_tensor_apply import multi_tensor_applier
from torch import nn

IS_NEW = int(torch.__version__.split(".")[0]) >= 2  # computes with float16 on CPUs


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
        """Returns a network in bfloat16, except for its batch normalization."""
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
        """Adds the gradients of two losses. Gradients of parameters without a master copy may
        already have been divided by the loss scale.
        """
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
