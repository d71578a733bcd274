# SPDX-License-Identifier: Apache-2.0

"""Compares ronda.paddle.fleet on several ranks with one process."""

import os
import sys
import time
import unittest

import numpy as np
import paddle
import paddle.nn.functional as F
import ronda
from paddle.io import DistributedBatchSampler
from ronda._library import native
from ronda.errors import MismatchError
from ronda.paddle import fleet

sys.path.insert(0, "examples")
import paddle_mnist  # noqa: E402

paddle.set_device("cpu")
fleet.init(is_collective=True)

SHARE = 8  # images per rank and step


def batches(indices: "list[list[int]]") -> "list[tuple[paddle.Tensor, paddle.Tensor]]":
    """Returns batches of digits of the training set."""
    images, labels = paddle_mnist.load_digits("train").tensors
    return [(images[paddle.to_tensor(each)], labels[paddle.to_tensor(each)]) for each in indices]


def same_lenet() -> paddle_mnist.LeNet:
    """Returns a LeNet, with the same parameters at each call."""
    paddle.seed(7)
    return paddle_mnist.LeNet()


def momentum(model: paddle.nn.Layer, **options: object) -> paddle.optimizer.Optimizer:
    """SGD with momentum."""
    return paddle.optimizer.Momentum(0.05, 0.9, parameters=model.parameters(), **options)


def train(model, optimizer, data) -> None:
    """Makes one step for each of the batches."""
    for images, labels in data:
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.clear_grad()


def parameters(model: paddle.nn.Layer) -> np.ndarray:
    """Returns all parameters in one array."""
    return np.concatenate([each.numpy().ravel() for each in model.parameters()])


def own_and_all(steps: int) -> "tuple[list[list[int]], list[list[int]]]":
    """Returns the indices of this rank's batches, and of all ranks' batches together."""
    size, rank = fleet.worker_num(), fleet.worker_index()
    step = [list(range(i * size * SHARE, (i + 1) * size * SHARE)) for i in range(steps)]
    return [each[rank * SHARE : (rank + 1) * SHARE] for each in step], step


class AwaitTensors(paddle.autograd.PyLayer):
    """An identity function whose backward pass waits until the rank has reduced `count` more
    tensors.
    """

    @staticmethod
    def forward(ctx, value, count):
        ctx.count = native.statistics()["tensors"] + count
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        while native.statistics()["tensors"] < ctx.count:
            time.sleep(0)
        return gradient


class FleetTest(unittest.TestCase):
    def test_knows_the_ranks(self):
        self.assertEqual(fleet.worker_num(), ronda._binding.size())
        self.assertEqual(fleet.worker_index(), ronda._binding.rank())
        self.assertEqual(fleet.is_first_worker(), fleet.worker_index() == 0)
        fleet.init(is_collective=True)
        fleet.barrier_worker()

    def test_the_sampler_deals_the_data_out(self):
        dataset = paddle.io.TensorDataset([paddle.arange(24)])
        own = [each for batch in DistributedBatchSampler(dataset, 2) for each in batch]
        self.assertEqual(len(own), -(-24 // fleet.worker_num()))
        everyone = sum(ronda.allgather_object(own), [])
        self.assertEqual(set(everyone), set(range(24)))

    def test_the_model_is_that_of_rank_0(self):
        paddle.seed(100 + fleet.worker_index())
        norm = paddle.nn.BatchNorm1D(3)
        norm._mean.set_value(paddle.full([3], float(fleet.worker_index())))
        model = fleet.distributed_model(paddle.nn.Sequential(paddle.nn.Linear(3, 3), norm))
        for own in (parameters(model), norm._mean.numpy()):
            for other in ronda.allgather_object(own):
                np.testing.assert_array_equal(own, other)
        np.testing.assert_array_equal(norm._mean.numpy(), np.zeros(3))

    def test_lenet_learns_as_in_one_process(self):
        own, everyone = own_and_all(steps=20)
        model = fleet.distributed_model(same_lenet())
        before = parameters(model)
        train(model, fleet.distributed_optimizer(momentum(model)), batches(own))
        alone = same_lenet()
        train(alone, momentum(alone), batches(everyone))
        self.assertGreater(np.abs(parameters(alone) - before).max(), 0.01)
        np.testing.assert_allclose(parameters(model), parameters(alone), atol=2e-5)
        for other in ronda.allgather_object(parameters(model)):
            np.testing.assert_array_equal(parameters(model), other)

    def test_gradients_in_16_bits_are_close(self):
        own, everyone = own_and_all(steps=5)
        strategy = fleet.DistributedStrategy()
        strategy.fp16_allreduce = True
        model = fleet.distributed_model(same_lenet())
        train(model, fleet.distributed_optimizer(momentum(model), strategy), batches(own))
        alone = same_lenet()
        train(alone, momentum(alone), batches(everyone))
        np.testing.assert_allclose(parameters(model), parameters(alone), atol=1e-3)

    def test_gradient_merge_adds_passes_up(self):
        own, everyone = own_and_all(steps=6)
        strategy = fleet.DistributedStrategy()
        strategy.gradient_merge = True
        strategy.gradient_merge_configs = {"k_steps": 3}
        model = fleet.distributed_model(same_lenet())
        train(model, fleet.distributed_optimizer(momentum(model), strategy), batches(own))
        alone = same_lenet()
        merged = [sum(everyone[:3], []), sum(everyone[3:], [])]
        train(alone, momentum(alone), batches(merged))
        np.testing.assert_allclose(parameters(model), parameters(alone), atol=2e-5)

    def test_the_sum_of_gradients(self):
        strategy = fleet.DistributedStrategy()
        strategy.gradient_scale_configs = {"scale_strategy": "sum"}
        layer = fleet.distributed_model(paddle.nn.Linear(2, 1))
        before = layer.weight.numpy()
        sgd = paddle.optimizer.SGD(1.0, parameters=layer.parameters())
        optimizer = fleet.distributed_optimizer(sgd, strategy)
        layer(paddle.full([1, 2], 1.0 + fleet.worker_index())).sum().backward()
        optimizer.minimize(None)
        size = fleet.worker_num()
        np.testing.assert_allclose(layer.weight.numpy(), before - size * (size + 1) / 2, rtol=1e-5)

    def test_clipping_sees_the_reduced_gradients(self):
        own, everyone = own_and_all(steps=4)
        clip = {"grad_clip": paddle.nn.ClipGradByGlobalNorm(0.1)}
        model = fleet.distributed_model(same_lenet())
        train(model, fleet.distributed_optimizer(momentum(model, **clip)), batches(own))
        alone = same_lenet()
        train(alone, momentum(alone, **clip), batches(everyone))
        np.testing.assert_allclose(parameters(model), parameters(alone), atol=2e-5)

    def test_a_parameter_that_one_rank_does_not_use_takes_part(self):
        used, other = paddle.nn.Linear(2, 1), paddle.nn.Linear(2, 1)
        model = fleet.distributed_model(paddle.nn.LayerList([used, other]))
        before = other.weight.numpy()
        sgd = paddle.optimizer.SGD(1.0, parameters=model.parameters())
        optimizer = fleet.distributed_optimizer(sgd)
        ones = paddle.ones([1, 2])
        loss = used(ones).sum()
        if fleet.worker_index() == 0:
            loss = loss + other(ones).sum()
        loss.backward()
        optimizer.step()
        expected = before - 1 / fleet.worker_num()
        np.testing.assert_allclose(other.weight.numpy(), expected, rtol=1e-5)

    def test_a_parameter_that_no_rank_uses_stays_as_it_is(self):
        used, other = paddle.nn.Linear(2, 1), paddle.nn.Linear(2, 1)
        model = fleet.distributed_model(paddle.nn.LayerList([used, other]))
        before = other.weight.numpy()
        adam = paddle.optimizer.AdamW(0.1, parameters=model.parameters(), weight_decay=0.5)
        optimizer = fleet.distributed_optimizer(adam)
        for _ in range(2):
            used(paddle.ones([1, 2])).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
        self.assertIsNone(other.weight.grad)
        np.testing.assert_array_equal(other.weight.numpy(), before)

    def test_a_parameter_that_is_frozen_on_one_rank_is_reported(self):
        if fleet.worker_num() == 1:
            self.skipTest("needs two ranks")
        layer = fleet.distributed_model(paddle.nn.Linear(2, 1))
        layer.bias.stop_gradient = fleet.worker_index() == 0
        sgd = paddle.optimizer.SGD(1.0, parameters=layer.parameters())
        optimizer = fleet.distributed_optimizer(sgd)
        layer(paddle.ones([1, 2])).sum().backward()
        with self.assertRaisesRegex(Exception, "frozen .stop_gradient. on rank 0"):
            optimizer.step()

    def test_another_number_of_parameters_is_reported(self):
        if fleet.worker_num() == 1:
            self.skipTest("needs two ranks")
        layer = paddle.nn.Linear(2, 1)
        parameters = layer.parameters() + (
            paddle.nn.Linear(2, 1).parameters() if fleet.worker_index() == 0 else []
        )
        sgd = paddle.optimizer.SGD(1.0, parameters=parameters)
        optimizer = fleet.distributed_optimizer(sgd)
        layer(paddle.ones([1, 2])).sum().backward()
        with self.assertRaisesRegex(MismatchError, "same parameters in the same order"):
            optimizer.step()

    def heads(self):
        """Returns two layers and their optimizer, which has already made one step."""
        heads = [paddle.nn.Linear(2, 1), paddle.nn.Linear(2, 1)]
        model = fleet.distributed_model(paddle.nn.LayerList(heads))
        sgd = paddle.optimizer.SGD(1.0, parameters=model.parameters())
        optimizer = fleet.distributed_optimizer(sgd)
        sum(head(paddle.ones([1, 2])).sum() for head in heads).backward()
        optimizer.step()
        optimizer.clear_grad()
        return heads, optimizer

    def test_ranks_may_use_different_parameters_in_each_step(self):
        heads, optimizer = self.heads()
        size, rank = fleet.worker_num(), fleet.worker_index()
        for step in range(3):
            before = [head.weight.numpy() for head in heads]
            heads[(rank + step) % 2](paddle.ones([1, 2])).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
            for i, head in enumerate(heads):
                share = sum((each + step) % 2 == i for each in range(size)) / size
                np.testing.assert_allclose(head.weight.numpy(), before[i] - share, rtol=1e-5)

    def test_a_gradient_that_is_changed_in_flight_is_an_error(self):
        heads, optimizer = self.heads()
        heads[0](paddle.ones([1, 2])).sum().backward()
        with paddle.no_grad():
            heads[0].weight.grad.scale_(2.0)
        with self.assertRaisesRegex(ValueError, "was changed after backward.*reduce_gradients"):
            optimizer.step()
        optimizer.clear_grad()
        sum(head(paddle.ones([1, 2])).sum() for head in heads).backward()
        before = heads[1].weight.numpy()
        optimizer.step()  # the next step is not affected
        np.testing.assert_allclose(heads[1].weight.numpy(), before - 1, rtol=1e-5)

    def test_ranks_may_create_their_layers_in_different_orders(self):
        zeros = paddle.nn.initializer.Constant(0.0)
        layers = {}
        for name in sorted(("first", "second"), reverse=fleet.worker_index() % 2 == 1):
            layers[name] = paddle.nn.Linear(1, 1, weight_attr=zeros, bias_attr=False)
        first, second = layers["first"], layers["second"]
        sgd = paddle.optimizer.SGD(1.0, parameters=[first.weight, second.weight])
        optimizer = fleet.distributed_optimizer(sgd)
        one = paddle.ones([1, 1])
        for step in range(1, 3):  # hooks submit the gradients of the second step
            (first(one) + 100 * second(one)).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
            self.assertEqual([first.weight.item(), second.weight.item()], [-step, -100 * step])

    def test_a_rank_may_create_more_layers_and_optimizers_than_others(self):
        if fleet.worker_index() == 0:
            unused = paddle.nn.Linear(2, 2)
            fleet.distributed_optimizer(momentum(unused))
        layer = fleet.distributed_model(paddle.nn.Linear(2, 1))
        before = layer.bias.item()
        optimizer = fleet.distributed_optimizer(
            paddle.optimizer.SGD(1.0, parameters=layer.parameters())
        )
        layer(paddle.ones([1, 2])).sum().backward()
        optimizer.step()
        self.assertAlmostEqual(layer.bias.item(), before - 1, places=5)

    def test_parameters_in_another_order_are_reported(self):
        if fleet.worker_num() == 1:
            self.skipTest("needs two ranks")
        layer = paddle.nn.Linear(2, 1)
        parameters = layer.parameters()
        if fleet.worker_index() == 0:
            parameters.reverse()
        sgd = paddle.optimizer.SGD(1.0, parameters=parameters)
        optimizer = fleet.distributed_optimizer(sgd)
        layer(paddle.ones([1, 2])).sum().backward()
        with self.assertRaisesRegex(MismatchError, "same parameters in the same order"):
            optimizer.step()

    def test_gradients_travel_while_backward_goes_on(self):
        first, last = paddle.nn.Linear(3, 3), paddle.nn.Linear(3, 1)
        model = fleet.distributed_model(paddle.nn.LayerList([first, last]))
        sgd = paddle.optimizer.SGD(1.0, parameters=model.parameters())
        optimizer = fleet.distributed_optimizer(sgd)
        ones = paddle.ones([1, 3])
        last(first(ones)).sum().backward()  # from here on the optimizer knows the step
        optimizer.step()
        optimizer.clear_grad()
        weight = last.weight.numpy()
        hidden = first(ones)
        # The backward pass reaches the layer `first` only after both gradients of the layer `last`
        # have been reduced.
        last(AwaitTensors.apply(hidden, 2)).sum().backward()
        average = sum(ronda.allgather_object(hidden.numpy())) / fleet.worker_num()
        np.testing.assert_allclose(last.weight.grad.numpy(), average.T, rtol=1e-5)
        optimizer.step()
        np.testing.assert_allclose(last.weight.numpy(), weight - average.T, rtol=1e-4, atol=1e-5)

    def test_several_backward_passes_add_up_before_they_travel(self):
        own, everyone = own_and_all(steps=6)
        model = fleet.distributed_model(same_lenet())
        optimizer = fleet.distributed_optimizer(momentum(model))
        alone = same_lenet()
        reference = momentum(alone)
        for of, by, indices in ((model, optimizer, own), (alone, reference, everyone)):
            data = batches(indices)
            for step in range(3):
                for images, labels in data[2 * step : 2 * step + 2]:
                    F.cross_entropy(of(images), labels).backward()
                by.step()
                by.clear_grad()
        np.testing.assert_allclose(parameters(model), parameters(alone), atol=2e-5)

    def test_a_gradient_that_was_reduced_is_not_added_to(self):
        layer = fleet.distributed_model(paddle.nn.Linear(2, 1))
        sgd = paddle.optimizer.SGD(1.0, parameters=layer.parameters())
        optimizer = fleet.distributed_optimizer(sgd)
        loss = lambda: layer(paddle.ones([1, 2])).sum()  # noqa: E731
        loss().backward()
        optimizer.step()
        optimizer.clear_grad()
        loss().backward()
        optimizer.clear_grad()  # the program leaves this pass out
        before = layer.bias.numpy()
        loss().backward()
        loss().backward()
        with self.assertRaisesRegex(ValueError, "by more than 1 backward passes.*clear_grad"):
            optimizer.step()
        np.testing.assert_array_equal(layer.bias.numpy(), before)
        optimizer.clear_grad()
        loss().backward()
        loss().backward()
        optimizer.step()  # the optimizer knows now that two passes may come
        np.testing.assert_allclose(layer.bias.numpy(), before - 2, rtol=1e-5)

    def test_the_optimizer_is_paddles_otherwise(self):
        layer = paddle.nn.Linear(2, 2)
        optimizer = fleet.distributed_optimizer(momentum(layer))
        optimizer.set_lr(0.25)
        self.assertEqual(optimizer.get_lr(), 0.25)

    def test_sparse_gradients_are_refused_by_name(self):
        layer = paddle.nn.Embedding(5, 2, sparse=True)
        optimizer = fleet.distributed_optimizer(
            paddle.optimizer.SGD(0.1, parameters=layer.parameters())
        )
        layer(paddle.to_tensor([1])).sum().backward()
        with self.assertRaisesRegex(ValueError, f"gradient of {layer.weight.name} is sparse"):
            optimizer.step()

    def test_parameter_servers_are_refused(self):
        with self.assertRaisesRegex(ValueError, "only collective training"):
            fleet.init()

    def test_other_users_of_the_environment_see_the_ranks(self):
        self.assertEqual(os.environ["PADDLE_TRAINER_ID"], str(fleet.worker_index()))
        self.assertEqual(paddle.distributed.ParallelEnv().world_size, fleet.worker_num())


if __name__ == "__main__":
    unittest.main()
