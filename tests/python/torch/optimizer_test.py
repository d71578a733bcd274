# SPDX-License-Identifier: Apache-2.0

"""Compares DistributedOptimizer with one process that has the data of all ranks."""

import copy
import inspect
import unittest
import warnings

import ronda.torch as hvd
import torch
from ronda._library import native
from torch_cases import (
    TrainingCase,
    batch,
    loss_of,
    make_model,
    pair,
    parameters_for,
    setUpModule,  # noqa: F401
    sgd,
    tearDownModule,  # noqa: F401
    weights,
)

STEPS = 7  # the schedule is locked after four


def train_alone(steps=STEPS, passes=1, factor=None, clip=None, model=None):
    """Returns the expected model; `factor` scales the sum of all ranks' gradients."""
    model = make_model() if model is None else model
    optimizer = sgd(model)
    for step in range(steps):
        optimizer.zero_grad()
        for each in range(passes):
            for rank in range(hvd.size()):
                loss = loss_of(model, rank, step * passes + each)
                (loss * (1 / hvd.size() if factor is None else factor)).backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return weights(model)


class Case(TrainingCase):
    def train(self, model, optimizer, steps=STEPS, passes=1):
        for step in range(steps):
            optimizer.zero_grad(set_to_none=step % 3 == 1)  # gradients move, or stay
            for each in range(passes):
                loss_of(model, hvd.rank(), step * passes + each).backward()
            optimizer.step()
        self.assert_same_on_all_ranks(model)
        return weights(model)


class ReductionTest(Case):
    def test_hooks_of_a_step_run_once(self):
        def load(optimizer):
            optimizer.load_state_dict(optimizer.state_dict())
            return optimizer

        for op in (hvd.Average, hvd.Adasum):
            model = torch.nn.Linear(2, 1)
            optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), op=op)
            for change in (lambda each: each, load, copy.deepcopy, load):
                optimizer, calls = change(optimizer), []
                optimizer._optimizer_step_code = lambda calls=calls: calls.append("code")
                if hasattr(optimizer, "register_step_post_hook"):  # from torch 2.0 on
                    optimizer.register_step_pre_hook(lambda *_, calls=calls: calls.append("before"))
                    optimizer.register_step_post_hook(lambda *_, calls=calls: calls.append("after"))
                    expected = ["before", "code", "after"]
                else:
                    expected = ["code"]
                optimizer.step()
                self.assertEqual(calls, expected)

    def test_is_the_programs_optimizer(self):
        model = make_model()
        own = sgd(model)
        optimizer = hvd.DistributedOptimizer(own)
        self.assertIsInstance(optimizer, torch.optim.SGD)
        self.assertEqual(type(optimizer).__name__, "SGD")
        self.assertIs(optimizer.param_groups, own.param_groups)
        self.assertEqual(optimizer.defaults["momentum"], 0.9)
        torch.testing.assert_close(self.train(model, optimizer), train_alone())

    def test_a_step_that_repeats_needs_no_control_messages(self):
        model = make_model()
        optimizer = self.wrap(model)
        self.train(model, optimizer, steps=10)
        before = native.statistics()["buckets_agreed"]
        for step in range(5):
            optimizer.zero_grad(set_to_none=True)
            loss_of(model, hvd.rank(), step).backward()
            optimizer.step()
        self.assertLessEqual(native.statistics()["buckets_agreed"] - before, 8)

    def test_operations_and_factors(self):
        size = hvd.size()
        for options, factor in (
            ({"op": hvd.Average}, 1 / size),
            ({"op": hvd.Sum}, 1.0),
            ({"gradient_predivide_factor": float(size)}, 1 / size),
        ):
            model = make_model()
            trained = self.train(model, self.wrap(model, **options))
            torch.testing.assert_close(trained, train_alone(factor=factor))

    def test_compression(self):
        class Halving(hvd.mpi_ops.Compressor):
            """A compressor that a user's program could define."""

            @staticmethod
            def compress(tensor):
                return tensor.to(torch.float64) / 2, tensor.dtype

            @staticmethod
            def decompress(tensor, ctx):
                return (tensor * 2).to(ctx)

        compression = hvd.Compression
        want = train_alone()
        for each, tolerance in (
            (compression.fp16, 5e-3), (compression.bf16, 5e-2), (compression.fp8, 0.2),
            (Halving, 1e-5),
        ):  # fmt: skip
            model = make_model()
            trained = self.train(model, self.wrap(model, compression=each))
            torch.testing.assert_close(trained, want, rtol=tolerance, atol=tolerance)
            self.assertTrue(each is Halving or not torch.equal(trained, want))

    def test_groups(self):
        for make in (
            lambda model: {"groups": 2},
            lambda model: {"groups": [list(model[0].parameters()), [model[2].bias]]},
        ):
            model = make_model()
            trained = self.train(model, self.wrap(model, **make(model)))
            torch.testing.assert_close(trained, train_alone())
        model = make_model()
        with self.assertWarns(DeprecationWarning):
            self.train(model, self.wrap(model, num_groups=3))

    def test_accumulation(self):
        model = make_model()
        optimizer = self.wrap(model, backward_passes_per_step=2)
        torch.testing.assert_close(self.train(model, optimizer, passes=2), train_alone(passes=2))
        optimizer.set_backward_passes_per_step(1)
        self.assertEqual(optimizer.backward_passes_per_step, 1)
        self.train(model, optimizer)

    def test_clipping(self):
        model = make_model()
        optimizer = self.wrap(model)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), step).backward()
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            with optimizer.skip_synchronize():
                optimizer.step()
        torch.testing.assert_close(weights(model), train_alone(clip=0.05))

    def test_closures(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.LBFGS(model.parameters(), max_iter=3, line_search_fn="strong_wolfe")
        )

        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, hvd.rank(), 0)
            loss.backward()
            return hvd.allreduce(loss.detach(), name="loss")

        losses = [float(optimizer.step(closure)) for _ in range(4)]
        self.assertLess(losses[-1], losses[0] / 2)
        self.assert_same_on_all_ranks(model)

    def test_every_optimizer_can_be_wrapped(self):
        found = [each for _, each in inspect.getmembers(torch.optim, inspect.isclass)]
        kinds = [each for each in found if issubclass(each, torch.optim.Optimizer)]
        for kind in kinds:
            if kind is torch.optim.Optimizer:
                continue
            sparse = kind is torch.optim.SparseAdam
            model = torch.nn.Embedding(6, 2, sparse=True) if sparse else make_model()
            hvd.broadcast_parameters(model.state_dict(), 0)
            optimizer = hvd.DistributedOptimizer(kind(parameters_for(kind, model), lr=0.01))
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
            before = weights(model)
            for step in range(3):

                def closure(model=model, optimizer=optimizer, step=step, sparse=sparse):
                    optimizer.zero_grad()
                    if sparse:
                        loss = model(torch.tensor([hvd.rank() % 6, step])).square().sum()
                    else:
                        loss = loss_of(model, hvd.rank(), step)
                    loss.backward()
                    return loss.detach()

                optimizer.step(closure)
                schedule.step()
            with self.subTest(kind=kind.__name__):
                self.assert_same_on_all_ranks(model)
                self.assertFalse(torch.equal(weights(model), before))
                self.assertEqual(optimizer.param_groups[0]["lr"], 0.01 / 8)

    def test_adasum_combines_changes(self):
        model = make_model()
        optimizer = self.wrap(model, op=hvd.Adasum)
        before = weights(model)
        for step in range(4):
            optimizer.zero_grad()
            loss_of(model, 0, step).backward()  # all ranks agree: the change equals that of one
            optimizer.step()
        self.assert_same_on_all_ranks(model)
        alone = make_model()
        own = sgd(alone)
        for step in range(4):
            own.zero_grad()
            loss_of(alone, 0, step).backward()
            own.step()
        torch.testing.assert_close(weights(model), weights(alone))
        self.assertFalse(torch.equal(weights(model), before))
        optimizer.synchronize()
        with self.assertRaisesRegex(AssertionError, "Adasum"):
            with optimizer.skip_synchronize():
                pass

    def test_process_sets(self):
        others = hvd.add_process_set(list(range(1, hvd.size())))
        model = make_model()
        optimizer = self.wrap(model, process_set=others)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), step).backward()
            optimizer.step()
        own = weights(model)
        all = hvd.allgather(own.unsqueeze(0))
        for each in all[1:]:
            self.assertTrue(torch.equal(each, all[1]))
        self.assertFalse(torch.equal(all[0], all[1]), "rank 0 has trained by itself")
        hvd.remove_process_set(others)


class ParametersTest(Case):
    def test_parameters_that_a_rank_does_not_use(self):
        model = make_model()
        extra = torch.nn.Parameter(torch.ones(3))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([*model.parameters(), extra], lr=1.0),
            [*model.named_parameters(), ("extra", extra)],
        )
        start = 1.0
        for step in range(STEPS):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(model, hvd.rank(), step)
            if hvd.rank() == step % hvd.size():
                loss = loss + extra.sum()
            loss.backward()
            optimizer.step()
            start -= 1 / hvd.size()
            torch.testing.assert_close(extra.detach(), torch.full((3,), start))

    def test_their_names_are_where_horovod_has_them(self):
        for op in (hvd.Average, hvd.Adasum):
            first, second = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD([first], lr=1.0), [("first", first)], op=op
            )
            self.assertEqual(optimizer._parameter_names, {first: "first"})
            optimizer.add_param_group({"params": [second]})
            self.assertEqual(optimizer._parameter_names[second], "allreduce.noname.1.0")
            first.grad, second.grad = torch.ones(1), torch.ones(1)
            optimizer.step()
            self.assertEqual(second.item(), 0.0)

    def test_parameters_that_no_rank_uses_have_no_gradient(self):
        for groups in (None, 1):
            model = make_model()
            unused = torch.nn.Parameter(torch.ones(2))
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD([*model.parameters(), unused], lr=1.0, weight_decay=0.1),
                groups=groups,
            )
            for step in range(2 * STEPS):
                optimizer.zero_grad(set_to_none=True)
                loss = loss_of(model, hvd.rank(), step)
                used = STEPS // 2 <= step < STEPS  # it joins a group, and leaves it
                before = unused.tolist()
                (loss + unused.sum() if used else loss).backward()
                optimizer.step()
                self.assertEqual(unused.grad is not None, used)
                self.assertEqual(unused.tolist() != before, used)
            self.assert_same_on_all_ranks(model)

    def test_parameters_in_another_order_of_memory(self):
        torch.manual_seed(3)
        model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        for step in range(STEPS):
            optimizer.zero_grad(set_to_none=True)
            gradient = torch.arange(108.0).view(4, 3, 3, 3) * (hvd.rank() + 1)
            # Only in every other step does the gradient have the parameter's memory layout.
            layout = torch.channels_last if step % 2 else torch.contiguous_format
            model.weight.grad = None
            (model.weight * gradient.contiguous(memory_format=layout)).sum().backward()
            optimizer.synchronize()
            mean = torch.arange(108.0).view(4, 3, 3, 3) * ((hvd.size() + 1) / 2)
            torch.testing.assert_close(model.weight.grad, mean)
        self.assert_same_on_all_ranks(model)

    def test_parameters_with_sparse_gradients(self):
        for as_dense in (False, True):
            torch.manual_seed(4)
            table = torch.nn.Embedding(10, 3, sparse=True)
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SparseAdam(list(table.parameters()), lr=0.1), sparse_as_dense=as_dense
            )
            for step in range(STEPS):
                optimizer.zero_grad(set_to_none=True)
                rows = torch.tensor([hvd.rank(), (step + 2) % 10])
                table(rows).sum().backward()
                optimizer.synchronize()
                self.assertTrue(table.weight.grad.is_sparse)
                want = torch.zeros(10, 3)
                for rank in range(hvd.size()):
                    want[rank] += 1
                    want[(step + 2) % 10] += 1
                torch.testing.assert_close(table.weight.grad.to_dense(), want / hvd.size())
                with optimizer.skip_synchronize():
                    optimizer.step()
            self.assert_same_on_all_ranks(table)

    def test_sparse_gradients_in_groups_with_dense_gradients(self):
        for groups in (1, 2):
            model = torch.nn.Sequential(
                torch.nn.Embedding(6, 3, sparse=True), torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)
            )
            hvd.broadcast_parameters(model.state_dict(), 0)
            optimizer, whole, alone = pair(
                model, lambda p: torch.optim.SGD(p, lr=0.1), groups=groups
            )
            for step in range(3):
                optimizer.zero_grad(), alone.zero_grad()
                model(torch.tensor([hvd.rank(), step])).square().sum().backward()
                for rank in range(hvd.size()):
                    loss = whole(torch.tensor([rank, step])).square().sum()
                    (loss / hvd.size()).backward()
                for ours, expected in zip(model.parameters(), whole.parameters()):
                    torch.testing.assert_close(ours.grad.to_dense(), expected.grad.to_dense())
                optimizer.step(), alone.step()
            torch.testing.assert_close(weights(model), weights(whole))

    def test_parameters_with_empty_sparse_gradients(self):
        """The gradient is empty on a rank without rows or backward pass, or after zero_grad()."""
        for to_none in (False, True):
            table = torch.nn.Embedding(10, 3, sparse=True)
            torch.nn.init.ones_(table.weight)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0))
            want = torch.ones(10, 3)
            for step in range(STEPS):
                optimizer.zero_grad(set_to_none=to_none)
                rows = [1, 2 + step] if hvd.rank() == step % 2 else []
                if rows or step % 3 != 1:
                    table(torch.tensor(rows, dtype=torch.int64)).sum().backward()
                optimizer.step()
                want[[1, 2 + step]] -= 1 / hvd.size()
                torch.testing.assert_close(table.weight.detach(), want)

    def test_parameters_that_are_frozen_now_and_then(self):
        """Freezes each half in turn, as programs do with a generator and a discriminator that have
        two optimizers.
        """
        halves = [torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)]
        for half in halves:
            hvd.broadcast_parameters(half.state_dict(), 0)
        optimizers = [
            hvd.DistributedOptimizer(
                torch.optim.SGD(half.parameters(), lr=0.1),
                [(f"{i}.{name}", each) for name, each in half.named_parameters()],
            )
            for i, half in enumerate(halves)
        ]
        for step in range(2 * STEPS):
            for i, half in enumerate(halves):
                half.requires_grad_(i == step % 2)
                optimizers[i].zero_grad()
            frozen = weights(halves[1 - step % 2])
            data = torch.full((2, 3), 0.1 * (hvd.rank() + step))
            halves[1](halves[0](data)).square().sum().backward()
            optimizers[step % 2].step()
            self.assertTrue(torch.equal(weights(halves[1 - step % 2]), frozen))
            self.assert_same_on_all_ranks(halves[step % 2])

    def test_parameters_that_come_later(self):
        model, head = make_model(), torch.nn.Linear(3, 2)
        hvd.broadcast_parameters(head.state_dict(), 0)
        optimizer = self.wrap(model)
        self.train(model, optimizer, steps=3)
        optimizer.add_param_group({"params": head.parameters(), "lr": 0.1})
        for step in range(3):
            optimizer.zero_grad()
            head(model(batch(hvd.rank(), step))).square().mean().backward()
            optimizer.step()
        self.assert_same_on_all_ranks(model)
        self.assert_same_on_all_ranks(head)

    def test_a_second_optimizer_in_place_of_the_first(self):
        model = make_model()
        optimizer = self.wrap(model)
        self.train(model, optimizer, steps=3)
        del optimizer
        optimizer = self.wrap(model)
        self.train(model, optimizer, steps=3)


class MistakesTest(Case):
    def test_arguments(self):
        model = make_model()
        named = list(model.named_parameters())
        parameters = [parameter for _, parameter in named]
        for text, options in (
            ("tuples", {"named_parameters": parameters}),
            ("unique: a", {"named_parameters": [("a", each) for each in parameters]}),
            ("parameter 3 of group 0", {"named_parameters": named[:3]}),
            ("must be at least 1", {"backward_passes_per_step": 0}),
            ("op=Average", {"gradient_predivide_factor": 2.0, "op": hvd.Sum}),
            ("non-negative", {"groups": -1}),
            ("consist of torch.Tensor", {"groups": [["a"]]}),
            ("once in groups", {"groups": [parameters[:1], parameters[:1]]}),
        ):
            with self.assertRaisesRegex(ValueError, text):
                hvd.DistributedOptimizer(sgd(model), **options)

    def test_backward_twice(self):
        model = make_model()
        optimizer = self.wrap(model)
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), 0).backward()
            with self.assertRaisesRegex(AssertionError, "2.bias.*backward_passes_per_step"):
                loss_of(model, hvd.rank(), 0).backward()
            optimizer.step()

    def test_zero_grad_while_a_gradient_is_being_reduced(self):
        model = make_model()
        extra = torch.nn.Parameter(torch.ones(3))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([*model.parameters(), extra], lr=1.0),
            [*model.named_parameters(), ("extra", extra)],
        )
        loss = loss_of(model, hvd.rank(), 0)
        (loss + extra.sum() if hvd.rank() == 0 else loss).backward()
        self.assertRaisesRegex(AssertionError, "zero_grad.*'[0-2a-z.]*' is", optimizer.zero_grad)
        optimizer.step()
        optimizer.zero_grad()

    def test_step_after_synchronize_warns(self):
        model = make_model()
        optimizer = self.wrap(model)
        loss_of(model, hvd.rank(), 0).backward()
        optimizer.synchronize()
        with self.assertWarnsRegex(UserWarning, "skip_synchronize"):
            optimizer.step()
        loss_of(model, hvd.rank(), 0).backward()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.step()

    def test_ranks_that_disagree_fail_and_go_on(self):
        for groups in (None, 1):
            parameter = torch.nn.Parameter(torch.ones(2 + hvd.rank() % 2))
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD([parameter], lr=0.1), [("shape", parameter)], groups=groups
            )
            for _ in range(2):
                loss = parameter.sum()
                self.assertRaisesRegex(hvd.HorovodInternalError, "shape", loss.backward)
                optimizer.zero_grad()
        self.train(model := make_model(), self.wrap(model))

    def test_the_end_of_the_job_ends_the_group(self):
        model = make_model()
        optimizer = self.wrap(model)
        self.train(model, optimizer, steps=3)
        hvd.shutdown()
        hvd.init()
        self.train(model, optimizer, steps=3)


if __name__ == "__main__":
    unittest.main()
