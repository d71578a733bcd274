# SPDX-License-Identifier: Apache-2.0

"""Tests when a DistributedOptimizer's gradients are complete between backward() and step(), and
which changes to them are allowed.
"""

import copy
import unittest

import ronda.torch as hvd
import torch
from ronda.torch._hooks import HAS_POST_ACCUMULATE_HOOKS
from torch.utils.checkpoint import checkpoint
from torch_cases import (
    TrainingCase,
    batch,
    loss_of,
    loss_of_all,
    make_model,
    needs_other_ranks,
    pair,
    setUpModule,  # noqa: F401
    tearDownModule,  # noqa: F401
    weights,
)

STEPS = 7  # the schedule is locked after four


def gradients_of_all(model, step):
    """Computes the average of all ranks' gradients on this rank alone, from `model`."""
    alone = copy.deepcopy(model)
    alone.zero_grad(set_to_none=True)
    for rank in range(hvd.size()):
        (loss_of(alone, rank, step) / hvd.size()).backward()
    return [each.grad for each in alone.parameters()]


class Doubling(hvd.mpi_ops.Compressor):
    """A compressor that a user's program could define."""

    @staticmethod
    def compress(tensor):
        return tensor.to(torch.float64), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.to(ctx)


class WithExtra(torch.nn.Module):
    """A network with an extra parameter that only some losses use."""

    def __init__(self):
        super().__init__()
        self.net = make_model()
        self.extra = torch.nn.Parameter(torch.ones(3))

    def forward(self, data, uses_extra=False):
        out = self.net(data)
        return out + self.extra if uses_extra else out


class ReducingInBackward(torch.autograd.Function):
    """The identity. Its backward pass waits until all earlier gradients are reduced."""

    @staticmethod
    def forward(ctx, tensor):
        return tensor.clone()

    @staticmethod
    def backward(ctx, gradient):
        hvd.allreduce(torch.ones(1), name="later than earlier gradients")
        return gradient.clone()


class WithPositions(torch.nn.Module):
    """Adds positions to a batch of one, so that autograd computes the gradient of `positions` as a
    view of a tensor that it reads again later. If the sum has several uses, autograd computes that
    tensor by additions in place.
    """

    def __init__(self, uses=1):
        super().__init__()
        self.uses = uses
        self.tokens = torch.nn.Parameter(torch.zeros(1, 2, 3))
        self.positions = torch.nn.Parameter(torch.zeros(2, 3))
        self.others = torch.nn.Parameter(torch.zeros(3, 2))

    def forward(self, factor):
        # Backward runs later operations first: it computes the gradient of `tokens` last.
        tokens = ReducingInBackward.apply(self.tokens)
        whole = tokens + (self.positions.unsqueeze(0) + self.others.view(1, 2, 3))
        return sum((whole * factor).sum() for _ in range(self.uses)) / self.uses


class WholeTest(TrainingCase):
    def check(self, model, expected):
        for parameter, each in zip(model.parameters(), expected):
            torch.testing.assert_close(parameter.grad, each)

    def test_when_backward_returns(self):
        for options in (
            {},
            {"groups": 2},
            {"compression": Doubling},
            {"compression": Doubling, "groups": 2},
            {"op": hvd.Sum},
        ):
            model = make_model()
            optimizer = self.wrap(model, **options)
            for step in range(STEPS):
                optimizer.zero_grad(set_to_none=step % 2 == 0)
                expected = gradients_of_all(model, step)
                loss_of(model, hvd.rank(), step).backward()
                factor = hvd.size() if options.get("op") == hvd.Sum else 1
                self.check(model, [each * factor for each in expected])
                optimizer.step()
            self.assert_same_on_all_ranks(model)

    def test_of_parameters_whose_gradients_share_memory(self):
        for passes, uses in ((1, 1), (2, 1), (1, 2)):
            model = WithPositions(uses)
            optimizer = self.wrap(model, op=hvd.Sum, backward_passes_per_step=passes)
            expected = float(passes * sum(range(hvd.size() + 1)))
            for _ in range(STEPS):
                optimizer.zero_grad(set_to_none=True)
                for _ in range(passes):
                    model(torch.full((1, 2, 3), hvd.rank() + 1.0)).backward()
                for name, parameter in model.named_parameters():
                    with self.subTest(passes=passes, uses=uses, parameter=name):
                        self.assertEqual(set(parameter.grad.flatten().tolist()), {expected})
                optimizer.step()

    def test_in_memory_of_the_program(self):
        kinds = [lambda part: part.data]
        if HAS_POST_ACCUMULATE_HOOKS:  # older versions of torch do not tell that memory is shared
            kinds.append(lambda part: part)
        for part_of in kinds:
            model = make_model()
            optimizer = self.wrap(model)
            sizes = [each.numel() for each in model.parameters()]
            flat = torch.zeros(sum(sizes))
            for parameter, part in zip(model.parameters(), flat.split(sizes)):
                parameter.grad = part_of(part.view_as(parameter))
            for step in range(STEPS):
                flat.zero_()
                expected = gradients_of_all(model, step)
                loss_of(model, hvd.rank(), step).backward()
                for part, each in zip(flat.split(sizes), expected):
                    torch.testing.assert_close(part.view_as(each), each)
                optimizer.step()

    def test_after_the_last_of_several_passes(self):
        model = make_model()
        optimizer = self.wrap(model, backward_passes_per_step=2)
        for step in range(STEPS):
            optimizer.zero_grad()
            expected = gradients_of_all(model, 2 * step)
            loss_of(model, hvd.rank(), 2 * step).backward()
            expected = [a + b for a, b in zip(expected, gradients_of_all(model, 2 * step + 1))]
            loss_of(model, hvd.rank(), 2 * step + 1).backward()
            self.check(model, expected)
            optimizer.step()

    def test_so_clipping_needs_no_synchronize(self):
        model = make_model()
        optimizer, whole, alone = pair(model, lambda p: torch.optim.SGD(p, 0.5, momentum=0.9))
        for step in range(STEPS):
            optimizer.zero_grad(), alone.zero_grad()
            loss_of(model, hvd.rank(), step).backward()
            loss_of_all(whole, step).backward()
            for each, its in ((model, optimizer), (whole, alone)):
                torch.nn.utils.clip_grad_norm_(each.parameters(), 0.05)
                its.step()
        torch.testing.assert_close(weights(model), weights(whole))
        self.assert_same_on_all_ranks(model)

    def test_so_a_grad_scaler_needs_no_synchronize(self):
        if not hasattr(torch.amp, "GradScaler"):
            self.skipTest("this torch has no GradScaler for CPUs")
        model = make_model()
        optimizer, whole, alone = pair(model, lambda p: torch.optim.SGD(p, 0.5))
        scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0) for _ in range(2)]
        for step in range(STEPS):
            overflow = float("inf") if step == 3 else 1.0  # of the last rank's data
            losses = [
                loss_of(model, hvd.rank(), step)
                * (overflow if hvd.rank() == hvd.size() - 1 else 1.0),
                loss_of_all(whole, step) * overflow,
            ]
            for loss, its, scaler in zip(losses, (optimizer, alone), scalers):
                its.zero_grad()
                scaler.scale(loss).backward()
                scaler.step(its)
                scaler.update()
        torch.testing.assert_close(weights(model), weights(whole))
        self.assertEqual(scalers[0].get_scale(), scalers[1].get_scale())

    def test_gradient_that_a_rank_lacks_is_complete_at_step(self):
        for options in ({}, {"groups": 2}):
            model = WithExtra()
            optimizer = self.wrap(model, **options)
            for step in range(2 * STEPS):
                optimizer.zero_grad(set_to_none=True)
                uses = [rank == step % hvd.size() for rank in range(hvd.size())]
                whole = copy.deepcopy(model)
                for rank, each in enumerate(uses):
                    loss = whole(batch(rank, step), each).square().mean()
                    (loss / hvd.size()).backward()
                own = uses[hvd.rank()]
                model(batch(hvd.rank(), step), own).square().mean().backward()
                # Some ranks may call this allreduce while other ranks are still in backward().
                hvd.allreduce(torch.ones(1), name="between")
                if not options:
                    self.check(model.net, [each.grad for each in whole.net.parameters()])
                self.assertEqual(model.extra.grad is not None, own)
                optimizer.step()
                self.check(model, [each.grad for each in whole.parameters()])
                self.assert_same_on_all_ranks(model)

    def test_of_passes_through_different_parameters(self):
        halves = torch.nn.ModuleList([torch.nn.Linear(4, 3), torch.nn.Linear(4, 2)])
        hvd.broadcast_parameters(halves.state_dict(), 0)
        optimizer, whole, alone = pair(halves, lambda p: torch.optim.SGD(p, 0.5))
        for step in range(STEPS):
            optimizer.zero_grad(), alone.zero_grad()
            order = (0, 1) if hvd.rank() % 2 == 0 or step % 2 == 0 else (1, 0)
            for i in order:
                halves[i](batch(hvd.rank(), step)).square().mean().backward()
                for rank in range(hvd.size()):
                    (whole[i](batch(rank, step)).square().mean() / hvd.size()).backward()
            optimizer.step(), alone.step()
            torch.testing.assert_close(weights(halves), weights(whole))

    def test_of_a_rank_without_a_backward_pass(self):
        model = make_model()
        optimizer = self.wrap(model)
        for step in range(STEPS):
            optimizer.zero_grad(set_to_none=True)
            if hvd.rank() != step % hvd.size():
                loss_of(model, hvd.rank(), step).backward()
            optimizer.step()
            self.assert_same_on_all_ranks(model)

    def test_of_checkpointed_segments(self):
        model = make_model()
        optimizer, whole, alone = pair(model, lambda p: torch.optim.SGD(p, 0.5))
        for step in range(STEPS):
            optimizer.zero_grad(), alone.zero_grad()
            data = batch(hvd.rank(), step).requires_grad_()
            hidden = checkpoint(model[:2], data, use_reentrant=True)
            loss = checkpoint(model[2:], hidden, use_reentrant=True).square().mean()
            expected = gradients_of_all(model, step)
            loss.backward()
            self.check(model, expected)
            loss_of_all(whole, step).backward()
            optimizer.step(), alone.step()
        torch.testing.assert_close(weights(model), weights(whole))

    def test_of_a_checkpointed_model_with_an_unused_parameter(self):
        model = WithExtra()
        optimizer = self.wrap(model)
        for step in range(STEPS):
            optimizer.zero_grad()
            expected = gradients_of_all(model.net, step)
            data = batch(hvd.rank(), step).requires_grad_()
            checkpoint(model, data, use_reentrant=True).square().mean().backward()
            self.check(model.net, expected)
            optimizer.step()

    def test_a_step_may_be_left_out(self):
        for drop in (
            lambda model, optimizer: optimizer.zero_grad(),
            lambda model, optimizer: model.zero_grad(set_to_none=True),
        ):
            model = make_model()
            optimizer, whole, alone = pair(model, lambda p: torch.optim.SGD(p, 0.5))
            for step in range(STEPS):
                drop(model, optimizer), alone.zero_grad()
                loss_of(model, hvd.rank(), step).backward()
                if step % 3 != 1:
                    loss_of_all(whole, step).backward()
                    optimizer.step(), alone.step()
            torch.testing.assert_close(weights(model), weights(whole))

    def test_closures_see_one_loss(self):
        """The loss determines how often LBFGS calls the closure, so all ranks must see the same
        loss.
        """
        for search in (None, "strong_wolfe"):
            model = make_model()
            optimizer = hvd.DistributedOptimizer(
                torch.optim.LBFGS(
                    model.parameters(),
                    0.5,
                    max_iter=9,
                    tolerance_change=1e-2,
                    line_search_fn=search,
                ),
                model.named_parameters(),
            )
            losses = []

            def closure(optimizer=optimizer, model=model, losses=losses):
                optimizer.zero_grad()
                loss = loss_of(model, hvd.rank(), 0) * (1 + 9 * hvd.rank())
                loss.backward()
                losses.append(loss.item())
                return loss

            for _ in range(3):
                returned = optimizer.step(closure)
            self.assert_same_on_all_ranks(model)
            counts = hvd.allgather(torch.tensor([len(losses)]))
            self.assertEqual(len(set(counts.tolist())), 1)
            self.assertEqual(len(set(hvd.allgather(returned.view(1)).tolist())), 1)

        def number():
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), 0).backward()
            return float(hvd.rank())

        self.assertAlmostEqual(self.wrap(model := make_model()).step(number), (hvd.size() - 1) / 2)

    def test_closures_that_use_no_parameter_on_some_ranks(self):
        model = torch.nn.Linear(2, 1, bias=False)
        optimizer = self.wrap(model)
        before = model.weight.detach().clone()
        constant = torch.ones((), requires_grad=True)

        def closure():
            optimizer.zero_grad()
            loss = model.weight.sum() if hvd.rank() == 0 else constant * 3
            loss.backward()
            return loss

        optimizer.step(closure)
        gradient = torch.full_like(before, 1 / hvd.size())
        torch.testing.assert_close(model.weight.detach(), before - 0.5 * gradient)

    def test_closures_without_a_backward_pass_leave_gradients_alone(self):
        model = torch.nn.Linear(2, 1, bias=False)
        optimizer = self.wrap(model, op=hvd.Sum)
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step(lambda: 1.0)
        self.assertEqual(model.weight.grad.tolist(), [[1.0, 1.0]])


class ChangedTest(TrainingCase):
    def changes(self, factor):
        """Yields functions that multiply a gradient, each in a different way."""

        def swap(p):
            p.grad.data = p.grad.data * factor

        def set_(p):
            p.grad.set_(p.grad.detach() * factor)

        def replace(p):
            p.grad = p.grad * factor

        return (lambda p: p.grad.mul_(factor), swap, set_, replace)

    def test_alike_between_backward_and_step(self):
        for change in self.changes(0.5):
            model = make_model()
            optimizer, whole, alone = pair(model, lambda p: torch.optim.SGD(p, 0.5))
            for step in range(STEPS):
                optimizer.zero_grad(), alone.zero_grad()
                loss_of(model, hvd.rank(), step).backward()
                loss_of_all(whole, step).backward()
                for parameter in [*model.parameters(), *whole.parameters()]:
                    change(parameter)
                optimizer.step(), alone.step()
            torch.testing.assert_close(weights(model), weights(whole))

    def test_differently_between_backward_and_step(self):
        """If ranks change gradients differently, step() averages them again."""
        for change in self.changes(1.0 + hvd.rank()):
            model = make_model()
            optimizer, whole, alone = pair(model, lambda p: torch.optim.SGD(p, 0.5))
            for step in range(STEPS):
                optimizer.zero_grad(), alone.zero_grad()
                loss_of(model, hvd.rank(), step).backward()
                (loss_of_all(whole, step) * (hvd.size() + 1) / 2).backward()
                for parameter in model.parameters():
                    change(parameter)
                optimizer.step(), alone.step()
            torch.testing.assert_close(weights(model), weights(whole))
            self.assert_same_on_all_ranks(model)

    def test_each_rank_another_element(self):
        """Rank r changes element r of its gradient. So the gradients of all ranks have the same
        values, at different positions.
        """
        for dtype in (torch.float16, torch.float32, torch.float64):
            for change in (torch.Tensor.neg_, torch.Tensor.zero_, lambda each: each.add_(0.5)):
                parameter = torch.nn.Parameter(torch.ones(5, dtype=dtype))
                optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], 0.5))
                optimizer.zero_grad()
                parameter.sum().backward()
                change(parameter.grad[hvd.rank()])
                optimizer.step()
                expected = torch.ones(5, dtype=dtype)
                own = change(torch.ones((), dtype=dtype))
                expected[: hvd.size()] += (own - 1) / hvd.size()
                torch.testing.assert_close(parameter.grad, expected)

    def test_dropped_on_one_rank(self):
        needs_other_ranks(self)
        model = make_model()
        optimizer = self.wrap(model)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), step).backward()
            parameter = model[2].weight
            parameter.grad = None if hvd.rank() == 0 else parameter.grad * 2
            with self.assertRaisesRegex(ValueError, "'2.weight' was changed.*in another way"):
                optimizer.step()
        self.assert_same_on_all_ranks(model)

    def test_differently_where_there_is_no_average(self):
        model = make_model()
        optimizer = self.wrap(model, op=hvd.Sum)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), step).backward()
            model[2].weight.grad.mul_(1.0 + hvd.rank())
            with self.assertRaisesRegex(ValueError, "'2.weight' was changed.*in another way"):
                optimizer.step()
        self.assert_same_on_all_ranks(model)

    def test_in_flight(self):
        """A hook on one rank changes a gradient in flight. After such a change every rank raises an
        error.
        """
        for change in self.changes(2.0):
            model = make_model()
            optimizer = self.wrap(model)

            bad_steps = []

            def hook(_, model=model, change=change, bad_steps=bad_steps):
                # When this hook of the first layer runs, Ronda has already submitted the gradients
                # of the last layer.
                if hvd.rank() == 0 and bad_steps and bad_steps[-1]:
                    change(model[2].weight)

            model[0].weight.register_hook(hook)
            for step in range(2 * STEPS):
                is_bad = step % 5 == 3
                bad_steps.append(is_bad)
                optimizer.zero_grad(set_to_none=True)
                loss = loss_of(model, hvd.rank(), step)
                if is_bad:
                    with self.assertRaisesRegex(ValueError, "'2.weight' was changed while"):
                        loss.backward()
                    continue
                loss.backward()
                optimizer.step()
            self.assert_same_on_all_ranks(model)

    def test_while_another_rank_lacks_it(self):
        needs_other_ranks(self)
        model = WithExtra()
        optimizer = self.wrap(model)
        for step in range(2):
            optimizer.zero_grad(set_to_none=True)
            model(batch(hvd.rank(), step), hvd.rank() == 0).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            with self.assertRaisesRegex(ValueError, "'extra' was changed while"):
                optimizer.step()
        for step in range(3):  # the solution that the error text names
            optimizer.zero_grad(set_to_none=True)
            model(batch(hvd.rank(), step), hvd.rank() == 0).square().mean().backward()
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            with optimizer.skip_synchronize():
                optimizer.step()
        self.assert_same_on_all_ranks(model)

    def test_while_a_neighbour_in_its_group_is_lacking(self):
        needs_other_ranks(self)
        model = WithExtra()
        optimizer = self.wrap(model, groups=1)
        for step in range(2):
            optimizer.zero_grad(set_to_none=True)
            model(batch(hvd.rank(), step), hvd.rank() == 0).square().mean().backward()
            if hvd.rank() != 0:
                model.net[0].weight.grad.mul_(0.5)
            with self.assertRaisesRegex(ValueError, "'net.0.weight' was changed while"):
                optimizer.step()
        self.assert_same_on_all_ranks(model)


class SeveralTest(TrainingCase):
    """Tests several optimizers whose gradients come from one backward pass."""

    def check(self, forward):
        """`forward` gets the layers, a rank's data and the step."""
        torch.manual_seed(2)
        layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)])
        whole = copy.deepcopy(layers)
        optimizers = [
            hvd.DistributedOptimizer(
                torch.optim.SGD(layer.parameters(), 0.5),
                [(f"{i}.{name}", each) for name, each in layer.named_parameters()],
            )
            for i, layer in enumerate(layers)
        ]
        alone = torch.optim.SGD(whole.parameters(), 0.5)
        for step in range(STEPS):
            for each in (*optimizers, alone):
                each.zero_grad()
            for rank in range(hvd.size()):
                loss = forward(whole, rank, step)(batch(rank, step)).square().mean()
                (loss / hvd.size()).backward()
            forward(layers, hvd.rank(), step)(batch(hvd.rank(), step)).square().mean().backward()
            for each in (*optimizers, alone):
                each.step()
        torch.testing.assert_close(weights(layers), weights(whole))

    def test_in_another_order_on_each_rank(self):
        self.check(
            lambda layers, rank, step: torch.nn.Sequential(*(layers if rank % 2 else layers[::-1]))
        )

    def test_of_which_a_rank_needs_one(self):
        def forward(layers, rank, step):
            needs_both = step == STEPS - 1 or rank == 0
            return torch.nn.Sequential(layers[1], layers[0]) if needs_both else layers[1]

        self.check(forward)


class StorageTest(unittest.TestCase):
    """Tests that memory of an operation in flight stays allocated. A freed block of this size
    returns to the system at once, and a later access to it raises SIGSEGV.
    """

    def operations(self):
        size = hvd.size()
        large = (size * (1 << 20),)
        yield lambda t: hvd.allreduce_async_(t, name="a", op=hvd.Sum), large, False
        yield lambda t: hvd.allreduce_async(t, name="b", op=hvd.Sum), large, True
        yield lambda t: hvd.grouped_allreduce_async_([t], name="c", op=hvd.Sum), large, False
        yield lambda t: hvd.allgather_async(t, name="d"), large, True
        yield lambda t: hvd.broadcast_async_(t, 0, name="e"), large, False
        yield lambda t: hvd.alltoall_async(t, name="f"), large, True
        yield lambda t: hvd.reducescatter_async(t, name="g", op=hvd.Sum), large, True

    def test_of_tensors_that_are_given_other_memory(self):
        for begin, shape, has_result in self.operations():
            for swap in (
                lambda t: setattr(t, "data", torch.zeros(1)),
                lambda t: t.set_(torch.zeros(1)),
            ):
                tensor = torch.ones(shape)
                if hvd.rank() == 0:
                    handle = begin(tensor)
                    swap(tensor)
                hvd.barrier()  # the others begin now
                if hvd.rank() != 0:
                    handle = begin(tensor)
                result = hvd.synchronize(handle)
                if has_result:
                    result = result[0] if isinstance(result, tuple) else result
                    self.assertEqual(len(set(result[:: 1 << 18].tolist())), 1)

    def test_of_gradients(self):
        """Only rank 0 has a gradient of `extra`. The program replaces the gradient's memory while
        the gradient is in flight.
        """
        model = WithExtra()
        model.extra = torch.nn.Parameter(torch.ones(1 << 20))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), 0.1), model.named_parameters()
        )
        for step in range(6):
            optimizer.zero_grad(set_to_none=True)
            uses = step % 2 == 1 and hvd.rank() == 0
            loss = loss_of(model.net, hvd.rank(), step)
            (loss + model.extra.sum() if uses else loss).backward()
            if uses:
                model.extra.grad.data = torch.zeros(1 << 20)
            if step % 2 == 1 and hvd.size() > 1:
                with self.assertRaisesRegex(ValueError, "'extra' was changed while"):
                    optimizer.step()
            elif hvd.size() > 1:
                optimizer.step()


if __name__ == "__main__":
    unittest.main()
