# SPDX-License-Identifier: Apache-2.0

"""Tests a DistributedOptimizer's parameters when they are changed, copied or shared, and the
arguments of step().
"""

import copy
import pickle
import unittest

import ronda.torch as hvd
import torch
from torch_cases import (
    TrainingCase,
    batch,
    loss_of,
    make_model,
    needs_other_ranks,
    pair,
    setUpModule,  # noqa: F401
    tearDownModule,  # noqa: F401
    weights,
)

STEPS = 7  # the schedule is locked after four


class ParameterTest(TrainingCase):
    def train_beside_one_process(self, change, kind=torch.optim.SGD, steps=9, **options):
        model = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)])
        hvd.broadcast_parameters(model.state_dict(), 0)
        optimizer, whole, alone = pair(model, lambda p: kind(p, lr=0.1, **options))

        def loss(its, rank, step):
            data = batch(rank, step).to(its[0].weight.dtype)
            return its[1](torch.tanh(its[0](data))).square().mean()

        for step in range(steps):
            for its, opt in ((model, optimizer), (whole, alone)):
                change(its, opt, step)
                opt.zero_grad(set_to_none=True)
            loss(model, hvd.rank(), step).backward()
            (sum(loss(whole, each, step) for each in range(hvd.size())) / hvd.size()).backward()
            optimizer.step(), alone.step()
            for ours, theirs in zip(model.parameters(), whole.parameters()):
                torch.testing.assert_close(ours, theirs)
        self.assert_same_on_all_ranks(model)

    def test_frozen_later(self):
        def freeze(model, optimizer, step):
            if step == 5:
                model[0].requires_grad_(False)

        for kind, options in (
            (torch.optim.SGD, {"momentum": 0.9}),
            (torch.optim.SGD, {"weight_decay": 0.1}),
            (torch.optim.Adam, {}),
        ):
            self.train_beside_one_process(freeze, kind, **options)

    def test_unfrozen_later(self):
        def thaw(model, optimizer, step):
            model[0].requires_grad_(step >= 5)

        self.train_beside_one_process(thaw)

    def test_added_while_they_are_frozen(self):
        head = torch.nn.Linear(4, 1)
        hvd.broadcast_parameters(head.state_dict(), 0)
        head.requires_grad_(False)
        model = make_model()
        optimizer = self.wrap(model)
        optimizer.add_param_group({"params": head.parameters(), "lr": 0.1})
        for step in range(STEPS):
            head.requires_grad_(step >= 3)
            optimizer.zero_grad()
            (loss_of(model, hvd.rank(), step) + head(batch(hvd.rank(), step)).sum()).backward()
            optimizer.step()
            self.assert_same_on_all_ranks(head)

    def test_of_another_shape_later(self):
        for rows in (3, 9):

            def change(model, optimizer, step, rows=rows):
                if step == 5:
                    layers = (model[0].weight, model[0].bias, model[1].weight)
                    for parameter, shape in zip(layers, ((rows, 4), (rows,), (2, rows))):
                        parameter.grad = None
                        parameter.data = torch.full(shape, 0.1)

            self.train_beside_one_process(change)

    def test_of_another_dtype_later(self):
        def change(model, optimizer, step):
            if step == 5:
                model.double()

        self.train_beside_one_process(change)

    def test_of_another_shape_on_one_rank(self):
        needs_other_ranks(self)
        parameter = torch.nn.Parameter(torch.ones(6, 4))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], 0.1), [("w", parameter)])
        for step in range(6):
            optimizer.zero_grad(set_to_none=True)
            if step == 5 and hvd.rank() == 0:
                parameter.data = torch.ones(3, 4)
                optimizer.zero_grad(set_to_none=True)
            loss = parameter.square().sum()
            if step == 5:
                self.assertRaisesRegex(hvd.HorovodInternalError, "'w'.*shape", loss.backward)
            else:
                loss.backward()
                optimizer.step()
            del loss  # its graph contains the shape

    def test_of_another_order_of_memory_on_one_rank(self):
        needs_other_ranks(self)
        for when in (0, 5):
            torch.manual_seed(3)
            model = torch.nn.Conv2d(3, 4, 3)
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), 0.1), model.named_parameters()
            )
            for step in range(when + 1):
                if step == when and hvd.rank() == 0:
                    model.to(memory_format=torch.channels_last)
                optimizer.zero_grad(set_to_none=True)
                loss = model(torch.ones(2, 3, 4, 4)).square().sum()
                if step == when:
                    with self.assertRaisesRegex(
                        hvd.HorovodInternalError, "'weight'.*same memory format"
                    ):
                        loss.backward()
                else:
                    loss.backward()
                    optimizer.step()

    def test_of_orders_of_memory_that_differ_between_ranks(self):
        # In each of these orders, the shape in memory is the same.
        for orders in [((1, 2, 0), (2, 1, 0)), ((2, 0, 1), (0, 1, 2))]:
            torch.manual_seed(3)
            weight = torch.nn.Parameter(torch.zeros(3, 3, 3).permute(orders[hvd.rank() % 2]))
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], 0.1), [("w", weight)])
            values = torch.arange(27.0).view(3, 3, 3)
            for _ in range(4):
                optimizer.zero_grad(set_to_none=True)
                (weight * values * (1 + hvd.rank())).sum().backward()
                optimizer.synchronize()
                mean = values * ((hvd.size() + 1) / 2)
                torch.testing.assert_close(weight.grad, mean)

    def test_of_another_order_of_memory_later(self):
        torch.manual_seed(3)
        model = torch.nn.Conv2d(3, 4, 3)
        whole = copy.deepcopy(model)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), 0.001), model.named_parameters()
        )
        alone = torch.optim.SGD(whole.parameters(), 0.001)
        data = torch.randn(2, 3, 4, 4)
        for step in range(9):
            if step == 4:
                model.to(memory_format=torch.channels_last)
            optimizer.zero_grad(set_to_none=True), alone.zero_grad(set_to_none=True)
            (model(data) * (1 + hvd.rank())).square().sum().backward()
            factor = sum((1 + rank) ** 2 for rank in range(hvd.size())) / hvd.size()
            (whole(data).square().sum() * factor).backward()
            optimizer.step(), alone.step()
            torch.testing.assert_close(model.weight.contiguous(), whole.weight)


class CopyTest(TrainingCase):
    def test_of_model_and_optimizer_trains_as_the_original(self):
        model = make_model()
        optimizer = self.wrap(model)
        for step in range(5):
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), step).backward()
            optimizer.step()
        both, found = (model, optimizer), []
        for other, its in (copy.deepcopy(both), pickle.loads(pickle.dumps(both)), both):
            self.assertIsInstance(its, torch.optim.SGD)
            for step in range(5, 12):
                its.zero_grad()
                loss_of(other, hvd.rank(), step).backward()
                its.step()
            self.assert_same_on_all_ranks(other)
            found.append(weights(other))
        for each in found:
            torch.testing.assert_close(each, found[0])

    def test_with_adasum(self):
        model = make_model()
        copied, optimizer = copy.deepcopy((model, self.wrap(model, op=hvd.Adasum)))
        for step in range(3):
            optimizer.zero_grad()
            loss_of(copied, hvd.rank(), step).backward()
            optimizer.step()
        self.assert_same_on_all_ranks(copied)

    def test_an_optimizer_is_wrapped_once(self):
        optimizer = self.wrap(make_model())
        with self.assertRaisesRegex(ValueError, "SGD is a DistributedOptimizer already.*0.weight"):
            hvd.DistributedOptimizer(optimizer)

    def test_the_last_optimizer_of_a_parameter_reduces_it(self):
        model = make_model()
        first = self.wrap(model)
        for optimizer in (first, self.wrap(model)):
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), 0).backward()
            if optimizer is first:
                with self.assertRaisesRegex(ValueError, "0.bias' is also.*to one Distributed"):
                    optimizer.step()
            else:
                optimizer.step()
        del optimizer
        for step in range(5):  # no other set is left
            first.zero_grad()
            loss_of(model, hvd.rank(), step).backward()
            first.step()
        self.assert_same_on_all_ranks(model)

    def test_a_generators_pass_fills_the_discriminators_gradients(self):
        torch.manual_seed(1)
        halves = [torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)]
        generator, discriminator = halves
        own, other = (
            hvd.DistributedOptimizer(
                torch.optim.SGD(half.parameters(), 0.1),
                [(f"{i}.{name}", each) for name, each in half.named_parameters()],
            )
            for i, half in enumerate(halves)
        )
        for step in range(STEPS):
            data = batch(hvd.rank(), step)
            other.zero_grad()
            (discriminator(generator(data).detach()) - discriminator(data)).mean().backward()
            other.step()
            own.zero_grad()
            discriminator(generator(data)).mean().backward()
            own.step()
            for half in halves:
                self.assert_same_on_all_ranks(half)
        with self.assertRaisesRegex(AssertionError, "'1.[a-z]*' was.*requires_grad_"):
            for _ in range(2):
                discriminator(data).mean().backward()


class StepTest(TrainingCase):
    def test_hands_its_arguments_on(self):
        class Scaled(torch.optim.SGD):
            def step(self, closure=None, *, scale=1.0):
                self.scale = scale
                return super().step(closure)

        for op in (hvd.Average, hvd.Adasum):
            model = make_model()
            optimizer = hvd.DistributedOptimizer(Scaled(model.parameters(), 0.1), op=op)

            def closure(model=model, optimizer=optimizer):
                optimizer.zero_grad()
                loss = loss_of(model, hvd.rank(), 0)
                loss.backward()
                return loss

            for arguments, options in (((), {}), ((closure,), {}), ((), {"closure": closure})):
                loss = optimizer.step(*arguments, scale=0.5, **options)
                self.assertEqual(optimizer.scale, 0.5)
                self.assertEqual(loss is None, not (arguments or options))
            self.assert_same_on_all_ranks(model)

    def test_with_an_argument_that_is_no_closure(self):
        class Scaled(torch.optim.SGD):
            def step(self, scale):
                super().step()

        model = make_model()
        optimizer = hvd.DistributedOptimizer(Scaled(model.parameters(), 0.1))
        for step in range(3):
            optimizer.zero_grad()
            if hvd.rank() == 0:  # the others learn of the gradients in step()
                loss_of(model, hvd.rank(), step).backward()
            optimizer.step(0.5)
        self.assert_same_on_all_ranks(model)


if __name__ == "__main__":
    unittest.main()
