# SPDX-License-Identifier: Apache-2.0

"""Tests how all ranks get equal state, the elastic API, and SyncBatchNorm."""

import collections
import copy
import dataclasses
import inspect
import threading
import unittest

import ronda
import ronda.torch as hvd
import torch
from ronda.torch.elastic.state import get_handler_registry
from torch_cases import parameters_for, setUpModule, tearDownModule  # noqa: F401

Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Own:
    number: float
    tensor: torch.Tensor


def optimizer_classes():
    """Returns all optimizers in torch.optim."""
    found = [each for _, each in inspect.getmembers(torch.optim, inspect.isclass)]
    base = torch.optim.Optimizer
    return [each for each in found if issubclass(each, base) and each is not base]


def flat(value):
    """Returns the leaves of nested dicts and sequences. Tensors become lists."""
    if isinstance(value, torch.Tensor):
        return [(str(value.dtype), tuple(value.shape), value.flatten().tolist())]
    if isinstance(value, dict):
        return [leaf for key in value for leaf in [str(key), *flat(value[key])]]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *(leaf for each in value for leaf in flat(each))]
    return [value]


class BroadcastTest(unittest.TestCase):
    def test_parameters_in_every_form(self):
        root = hvd.size() - 1
        forms = (
            lambda model: model.state_dict(),
            lambda model: list(model.named_parameters()),
            lambda model: list(model.parameters()),
            lambda model: model.named_parameters(),
        )
        for form in forms:
            torch.manual_seed(hvd.rank())
            model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
            model = model.to(memory_format=torch.channels_last)
            torch.manual_seed(root)
            want = torch.nn.Conv2d(3, 4, 3)
            hvd.broadcast_parameters(form(model), root)
            self.assertTrue(torch.equal(model[0].weight, want.weight))
            self.assertTrue(torch.equal(model[0].bias, want.bias))
        for wrong in (None, 7, "model", torch.ones(2), [7]):
            with self.assertRaisesRegex(ValueError, "invalid params"):
                hvd.broadcast_parameters(wrong, 0)

    def test_state_of_every_optimizer(self):
        classes = optimizer_classes()
        self.assertGreater(len(classes), 8)
        for kind in classes:
            with self.subTest(kind=kind.__name__):
                self._check_state(kind)

    def _check_state(self, kind):
        root, is_root = 0, hvd.rank() == 0
        torch.manual_seed(hvd.rank())
        layer = torch.nn.Linear(3, 3)
        optimizer = kind(parameters_for(kind, layer), lr=0.01 if is_root else 0.5)

        def closure():
            loss = layer(torch.ones(1, 3)).square().sum()
            optimizer.zero_grad()
            loss.backward()
            if kind is torch.optim.SparseAdam:
                for each in layer.parameters():
                    each.grad = each.grad.to_sparse()
            return loss

        # The root has made three steps. The other ranks have made a different number of steps, or
        # none.
        for _ in range(3 if is_root else hvd.rank() - 1):
            optimizer.step(closure)
        before = [each.detach().clone() for each in layer.parameters()]
        hvd.broadcast_optimizer_state(optimizer, root)
        for each, was in zip(layer.parameters(), before):
            self.assertTrue(torch.equal(each, was), "parameters stay")
        own = flat(optimizer.state_dict())
        for each in hvd.allgather_object(own):
            self.assertEqual(each, own)
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.01)
        hvd.broadcast_parameters(layer.state_dict(), root)
        optimizer.step(closure)
        for each in hvd.allgather_object(flat(layer.state_dict())):
            self.assertEqual(each, flat(layer.state_dict()), "training goes on alike")

    def test_state_in_containers_of_every_kind(self):
        rank = float(hvd.rank())
        layer = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        optimizer.state[layer.weight] = {
            "pair": Pair(torch.full((2,), rank), [rank]),
            "ordered": collections.OrderedDict(b=torch.tensor(rank), a=(rank,)),
            "own": Own(rank, torch.tensor(rank)),
            "counts": collections.Counter(steps=1 + hvd.rank()),
        }
        optimizer.param_groups[0]["betas"] = Pair(rank, 0.5)
        hvd.broadcast_optimizer_state(optimizer, hvd.size() - 1)
        state, last = optimizer.state[layer.weight], float(hvd.size() - 1)
        self.assertIs(type(state["pair"]), Pair)
        self.assertEqual((state["pair"].a.tolist(), state["pair"].b), ([last] * 2, [last]))
        self.assertIs(type(state["ordered"]), collections.OrderedDict)
        self.assertEqual(list(state["ordered"]), ["b", "a"])
        self.assertEqual((state["ordered"]["b"].item(), state["ordered"]["a"]), (last, (last,)))
        self.assertEqual((state["own"].number, state["own"].tensor.item()), (last, last))
        self.assertEqual(state["counts"], collections.Counter(steps=hvd.size()))
        self.assertEqual(optimizer.param_groups[0]["betas"], Pair(last, 0.5))

    def test_optimizers_that_differ(self):
        layer = torch.nn.Linear(3, 3)
        used = list(layer.parameters())[: 1 + (hvd.rank() == 0)]
        optimizer = torch.optim.Adam(used)
        if hvd.rank() == 0:
            hvd.broadcast_optimizer_state(optimizer, 0)
        else:
            with self.assertRaisesRegex(ValueError, r"groups of \[1\] parameters.*\[2\]"):
                hvd.broadcast_optimizer_state(optimizer, 0)

    def test_a_resumed_training_is_the_same(self):
        """Tests resuming a training run from a checkpoint that only rank 0 has."""

        def train(model, optimizer, steps):
            for step in steps:
                optimizer.zero_grad()
                torch.manual_seed(10 * step + hvd.rank())
                model(torch.randn(4, 3)).square().mean().backward()
                optimizer.step()

        def make(seed):
            torch.manual_seed(seed)
            model = torch.nn.Linear(3, 3)
            hvd.broadcast_parameters(model.state_dict(), 0)
            return model, torch.optim.Adam(model.parameters(), lr=0.1)

        model, optimizer = make(1)
        distributed = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        train(model, distributed, range(6))
        checkpoint = copy.deepcopy((model.state_dict(), distributed.state_dict()))
        train(model, distributed, range(6, 12))

        resumed, optimizer = make(2)
        if hvd.rank() == 0:
            resumed.load_state_dict(checkpoint[0])
            optimizer.load_state_dict(checkpoint[1])
        hvd.broadcast_parameters(resumed.state_dict(), 0)
        hvd.broadcast_optimizer_state(optimizer, 0)
        distributed = hvd.DistributedOptimizer(optimizer, resumed.named_parameters())
        train(resumed, distributed, range(6, 12))
        self.assertEqual(flat(resumed.state_dict()), flat(model.state_dict()))


class ElasticTest(unittest.TestCase):
    def make_state(self):
        torch.manual_seed(hvd.rank())
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (hvd.rank() + 1), momentum=0.9)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        sampler = hvd.elastic.ElasticSampler(range(20), seed=3)
        return hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=hvd.rank(), log=[])

    def test_a_function_is_run_again_from_the_last_commit(self):
        state, runs = self.make_state(), []
        resets = []
        state.register_reset_callbacks([lambda: resets.append(state.epoch)])

        @hvd.elastic.run
        def train(state, steps):
            runs.append(state.epoch)
            while state.epoch < steps:
                state.optimizer.zero_grad()
                state.model(torch.ones(1, 2)).sum().backward()
                state.optimizer.step()
                state.epoch += 1
                if state.epoch == 2:
                    state.commit()
                if state.epoch == 3 and len(runs) == 1:
                    raise hvd.HorovodInternalError("made up")
                if state.epoch == 4 and len(runs) == 2:
                    raise hvd.elastic.HostsUpdatedInterrupt(skip_sync=True)
            return state.model.weight.detach().clone()

        weight = train(state, 5)
        self.assertEqual(runs, [0, 2, 4])
        self.assertEqual(resets, [2, 4])
        for each in hvd.allgather(weight.unsqueeze(0)):
            self.assertTrue(torch.equal(each, weight))
        self.assertEqual(state.optimizer.param_groups[0]["lr"], 0.1)

    def test_a_failed_reset_is_repeated(self):
        state, runs, resets = self.make_state(), [], []

        def reset():
            resets.append(state.epoch)
            if len(resets) == 1:
                raise hvd.HorovodInternalError("made up")
            if len(resets) == 2:
                raise hvd.elastic.HostsUpdatedInterrupt(skip_sync=True)

        state.register_reset_callbacks([reset])

        @hvd.elastic.run
        def train(state):
            runs.append(state.epoch)
            state.epoch = 7 + hvd.rank()  # not committed
            if len(runs) == 1:
                raise hvd.HorovodInternalError("made up")

        train(state)
        self.assertEqual((runs, resets), ([0, 0], [0, 0, 0]))

    def test_a_planned_change_keeps_steps_that_are_not_committed(self):
        state, seen = self.make_state(), []
        state.epoch = 5 + hvd.rank()  # as from a checkpoint, after the state was made

        @hvd.elastic.run
        def train(state):
            seen.append((state.epoch, state.model.weight[0, 0].item(), state.sampler.epoch))
            if len(seen) == 1:
                state.epoch += 1
                with torch.no_grad():
                    state.model.weight.fill_(6.0)
                state.sampler.set_epoch(6)
                raise hvd.elastic.HostsUpdatedInterrupt

        train(state)
        self.assertEqual(seen[0][0], 5)
        self.assertEqual(seen[1], (6, 6.0, 6))
        state.restore()
        self.assertEqual((state.epoch, state.model.weight[0, 0].item()), (6, 6.0))

    def test_a_failed_sync_leaves_one_state(self):
        state = self.make_state()
        state.sync()
        state.epoch = 3
        with torch.no_grad():
            state.model.weight.fill_(3.0)

        def fail(value, *root):
            raise hvd.HorovodInternalError("made up")

        state._bcast_object = fail
        self.assertRaisesRegex(hvd.HorovodInternalError, "made up", state.sync)
        state.restore()
        self.assertEqual((state.epoch, state.model.weight[0, 0].item()), (3, 3.0))

    def test_errors_of_the_program_pass_through(self):
        @hvd.elastic.run
        def train(state):
            raise ValueError("a mistake")

        self.assertRaisesRegex(ValueError, "a mistake", train, self.make_state())

    def test_state(self):
        state = self.make_state()
        state.sync()
        self.assertEqual(state.epoch, 0)
        state.epoch, state.log = 5, ["x"]
        with torch.no_grad():
            state.model.weight.fill_(7)
        state.restore()
        self.assertEqual((state.epoch, state.log), (0, []))
        self.assertFalse((state.model.weight == 7).any())
        state.model = torch.nn.Linear(1, 1)
        state.commit()
        self.assertEqual(len(get_handler_registry()), 3)

    def test_changes_in_place_last_only_if_they_are_committed(self):
        for kind in (hvd.elastic.ObjectState, hvd.elastic.TorchState):
            state = kind(losses=[], tensor=torch.zeros(1), best={"loss": [9]})
            state.losses.append(0)
            state.restore()
            self.assertEqual(state.losses, [])
            for loss in (1, 2):
                state.losses.append(loss)
                state.tensor += 1
                state.best["loss"][0] -= 1
                if loss == 1:
                    state.save()
            for _ in range(2):
                state.restore()
                self.assertEqual((state.losses, state.best), ([1], {"loss": [8]}))
                self.assertEqual(state.tensor.item(), 1.0)
                state.losses.append(7)

    def test_a_schedule_stays_that_of_the_optimizer(self):
        optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=1.0)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        state = hvd.elastic.TorchState(optimizer=optimizer, schedule=schedule)
        optimizer.step()
        state.schedule.step()
        state.restore()
        self.assertIs(state.schedule.optimizer, optimizer)
        self.assertEqual((state.schedule.last_epoch, optimizer.param_groups[0]["lr"]), (0, 1.0))

    def test_an_attribute_that_cannot_be_copied_is_named(self):
        with self.assertRaisesRegex(
            ronda.InvalidArgumentError, "TorchState: the attribute lock cannot be copied .*: keep"
        ):
            hvd.elastic.TorchState(lock=threading.Lock())

    def test_sampler(self):
        size, rank = hvd.size(), hvd.rank()
        sampler = hvd.elastic.ElasticSampler(range(20), shuffle=False)
        self.assertEqual(list(sampler)[:2], [rank, rank + size])
        sampler.record_batch(0, 3)
        again = hvd.elastic.ElasticSampler(range(20), shuffle=False)
        again.load_state_dict(sampler.state_dict())
        self.assertEqual(list(again)[0], (3 * size + rank) % 20)
        self.assertEqual(len(list(again)), len(again))
        again.set_epoch(1)
        self.assertEqual(len(again), -(-20 // size))
        shuffled = hvd.elastic.ElasticSampler(range(20), seed=1)
        seen = sorted({each for all in hvd.allgather_object(list(shuffled)) for each in all})
        self.assertEqual(seen, list(range(20)))


class SyncBatchNormTest(unittest.TestCase):
    """Compares SyncBatchNorm with torch's BatchNorm in one process that has all ranks' batches."""

    def batches(self, dims, dtype):
        torch.manual_seed(5)
        # The ranks' batches have different sizes. The mean of their values is much larger than
        # their deviation.
        return [
            (torch.randn(2 + rank, 3, *[4] * dims) * (rank + 1) + 100).to(dtype)
            for rank in range(hvd.size())
        ]

    def check(self, dims, alone, shared, steps=2, dtype=torch.float64):
        all = self.batches(dims, dtype)
        for _ in range(steps):
            whole = torch.cat(all).requires_grad_()
            own = all[hvd.rank()].clone().requires_grad_()
            want, got = alone(whole), shared(own)
            first = sum(len(each) for each in all[: hvd.rank()])
            torch.testing.assert_close(got, want[first : first + len(own)])
            want.pow(3).sum().backward()
            got.pow(3).sum().backward()
            torch.testing.assert_close(own.grad, whole.grad[first : first + len(own)])
        for mine, want in zip(shared.parameters(), alone.parameters()):
            torch.testing.assert_close(hvd.allreduce(mine.grad, op=hvd.Sum), want.grad)
        for (name, mine), (_, want) in zip(shared.named_buffers(), alone.named_buffers()):
            torch.testing.assert_close(mine, want, msg=name)

    def test_every_number_of_dimensions(self):
        for dims, kind in enumerate((torch.nn.BatchNorm1d, torch.nn.BatchNorm1d,
                                     torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)):  # fmt: skip
            self.check(dims, kind(3).double(), hvd.SyncBatchNorm(3).double())

    def test_options(self):
        for options in (
            {"momentum": None}, {"affine": False}, {"track_running_stats": False}, {"eps": 0.1},
        ):  # fmt: skip
            with self.subTest(options=options):
                alone = torch.nn.BatchNorm2d(3, **options).double()
                self.check(2, alone, hvd.SyncBatchNorm(3, **options).double())

    def test_evaluation_is_local(self):
        layer = hvd.SyncBatchNorm(3).eval()
        if hvd.rank() == 0:  # no other rank takes part
            torch.testing.assert_close(layer(torch.ones(2, 3)), torch.ones(2, 3), atol=1e-4, rtol=0)
        self.assertRaisesRegex(ValueError, "at least 2D", layer, torch.ones(3))

    def test_an_empty_batch(self):
        layer, alone = hvd.SyncBatchNorm(3), torch.nn.BatchNorm1d(3)
        torch.manual_seed(6)
        data = torch.randn(6, 3)
        own = data if hvd.rank() == 0 else data[:0]
        want = alone(data)
        got = layer(own.clone().requires_grad_())
        got.sum().backward()
        torch.testing.assert_close(got, want if hvd.rank() == 0 else want[:0])
        torch.testing.assert_close(layer.running_var, alone.running_var)

    def test_the_batches_of_all_ranks_are_empty(self):
        for momentum in (0.1, None):
            layer = hvd.SyncBatchNorm(3, momentum=momentum)
            alone = torch.nn.BatchNorm2d(3, momentum=momentum)
            for rows in (0, 2, 0):
                own = torch.full((rows, 3, 2, 2), float(hvd.rank()))
                whole = [torch.full((rows, 3, 2, 2), float(rank)) for rank in range(hvd.size())]
                got = layer(own.requires_grad_())
                got.sum().backward()
                self.assertEqual(got.shape, own.shape)
                alone(torch.cat(whole))
            for (name, mine), (_, want) in zip(layer.named_buffers(), alone.named_buffers()):
                torch.testing.assert_close(mine, want, msg=name)


if __name__ == "__main__":
    unittest.main()
