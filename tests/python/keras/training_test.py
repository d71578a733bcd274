# SPDX-License-Identifier: Apache-2.0

"""Tests DistributedOptimizer and the functions of ronda.keras, on the backend in KERAS_BACKEND."""

import contextlib
import pathlib
import tempfile
import unittest
from unittest import mock

import keras
import numpy as np
import ronda
import ronda.keras as hvd
from keras_cases import (
    RANK,
    SHARE,
    SIZE,
    STEPS,
    fit,
    model_of,
    own,
    weights_alone,
    weights_of,
)
from ronda.keras import _backends

BROADCAST = hvd.callbacks.BroadcastGlobalVariablesCallback


def apply(optimizer, gradient, variable):
    """Applies one gradient as fit() does: on JAX, through a function without side effects."""
    if hvd.backend_name() != "jax":
        optimizer.apply([gradient], [variable])
        return
    state = [each.value for each in optimizer.variables]
    (value,), state = optimizer.stateless_apply(state, [gradient], [variable.value])
    variable.assign(value)
    for each, new in zip(optimizer.variables, state):
        each.assign(new)


@contextlib.contextmanager
def recorded_groups():
    """Yields a set that collects the name and the size of each reduced group of gradients."""
    found = set()
    reduce = _backends._BACKENDS[hvd.backend_name()]

    def record(how, name, gradients):
        found.add((name, len(gradients)))
        return reduce(how, name, gradients)

    with mock.patch.dict(_backends._BACKENDS, {hvd.backend_name(): record}):
        yield found


class OptimizerTest(unittest.TestCase):
    def test_learns_as_one_process(self):
        for make in (
            lambda: keras.optimizers.SGD(0.05, momentum=0.9),
            lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.1),
        ):
            model = model_of(hvd.DistributedOptimizer(make()), seed=7 + RANK)
            fit(model, own(), callbacks=[BROADCAST()], epochs=2)
            alone = weights_alone(make(), epochs=2)
            np.testing.assert_allclose(weights_of(model), alone, atol=1e-5)
            for other in ronda.allgather_object(weights_of(model)):
                np.testing.assert_array_equal(weights_of(model), other)

    def test_16_bits_are_close(self):
        optimizer = keras.optimizers.SGD(0.05)
        model = model_of(hvd.DistributedOptimizer(optimizer, compression=hvd.Compression.fp16))
        fit(model, own())
        alone = weights_alone(keras.optimizers.SGD(0.05))
        np.testing.assert_allclose(weights_of(model), alone, atol=1e-3)
        self.assertGreater(np.abs(weights_of(model) - alone).max(), 0)

    def test_gradients_of_several_passes_travel_once(self):
        for averages in (True, False):
            rate = 0.05 if averages else 0.05 / 2
            optimizer = hvd.DistributedOptimizer(
                keras.optimizers.SGD(rate),
                backward_passes_per_step=2,
                average_aggregated_gradients=averages,
            )
            model = model_of(optimizer)
            fit(model, own(2 * SHARE))
            alone = weights_alone(keras.optimizers.SGD(0.05), 2 * SHARE * SIZE)
            np.testing.assert_allclose(weights_of(model), alone, atol=1e-5)

    def test_gradients_of_a_group_travel_together(self):
        name = "DistributedOptimizer"
        listed = {(f"{name}.0", 2), (f"{name}.1", 1), (f"{name}.2", 1)}
        for expected, options in (
            ({(name, 4)}, lambda variables: {"groups": 0}),
            ({(f"{name}.{i}", 2) for i in range(2)}, lambda variables: {"groups": 2}),
            ({(f"{name}.{i}", 1) for i in range(4)}, lambda variables: {"groups": 9}),
            (listed, lambda variables: {"groups": [variables[::2]], "backward_passes_per_step": 2}),
        ):
            model = model_of("sgd")
            chosen = options(model.trainable_variables)
            passes = chosen.get("backward_passes_per_step", 1)
            sgd = keras.optimizers.SGD(0.05 / passes)
            model.compile(hvd.DistributedOptimizer(sgd, **chosen), "mse")
            with recorded_groups() as found:
                fit(model, own(passes * SHARE), SHARE)
            self.assertEqual(found, expected)
            alone = weights_alone(keras.optimizers.SGD(0.05), passes * SHARE * SIZE)
            np.testing.assert_allclose(weights_of(model), alone, atol=1e-5)

    def test_num_groups_is_the_old_name(self):
        variable = keras.Variable(np.zeros(2, np.float32))
        with self.assertWarnsRegex(DeprecationWarning, "num_groups is deprecated: use groups"):
            optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), num_groups=3)
        with recorded_groups() as found:
            optimizer.apply([keras.ops.ones(2)], [variable])
        self.assertEqual(found, {("DistributedOptimizer.0", 1)})

    def test_groups_of_other_variables_are_refused(self):
        ours, other = (keras.Variable(np.zeros(2, np.float32)) for _ in range(2))
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), groups=[[other]])
        with self.assertRaisesRegex(ValueError, "groups has no variable of the 1 whose gradients"):
            optimizer.apply([keras.ops.ones(2)], [ours])

    def test_the_sum_of_gradients(self):
        variable = keras.Variable(np.zeros(2, np.float32))
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum)
        gradient = keras.ops.full((2,), RANK + 1.0)
        optimizer.apply([gradient], [variable])
        total = SIZE * (SIZE + 1) / 2
        np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), [-total] * 2)

    def test_a_process_set(self):
        alone = hvd.add_process_set([RANK] if SIZE == 1 else [1])
        self.addCleanup(hvd.remove_process_set, alone)
        if RANK == 1:
            optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=alone)
            variable = keras.Variable(np.zeros(2, np.float32))
            optimizer.apply([keras.ops.full((2,), 3.0)], [variable])
            np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), [-3.0] * 2)
        hvd.barrier()

    def test_all_ranks_skip_a_step_with_infinities(self):
        scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=1.0)
        optimizer = hvd.DistributedOptimizer(scaled)
        variable = keras.Variable(np.zeros(1, np.float32))
        optimizer.build([variable])
        values = [keras.ops.full((1,), np.inf if RANK == 0 else 1.0), keras.ops.full((1,), 4.0)]
        for value in values:
            apply(optimizer, value, variable)
        # The first step halves the loss scale, so the second step divides by 0.5.
        np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), [-8.0])

    def test_mixed_precision_gets_a_loss_scale(self):
        policy = keras.config.dtype_policy()
        keras.config.set_dtype_policy("mixed_float16")
        self.addCleanup(keras.config.set_dtype_policy, policy)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05))
        self.assertIsInstance(optimizer, keras.optimizers.LossScaleOptimizer)
        model = model_of(optimizer)
        self.assertIs(model.optimizer, optimizer)

    def test_wrong_arguments(self):
        for words, call in {
            "is a DistributedOptimizer already: wrap it once": lambda: hvd.DistributedOptimizer(
                hvd.DistributedOptimizer(keras.optimizers.SGD())
            ),
            "float is no optimizer of Keras": lambda: hvd.DistributedOptimizer(0.1),
            "must be at least 1": lambda: hvd.DistributedOptimizer(
                keras.optimizers.SGD(), backward_passes_per_step=0
            ),
            "groups should be a non-negative integer, or lists of": lambda: (
                hvd.DistributedOptimizer(keras.optimizers.SGD(), groups=-1)
            ),
            "groups must consist of variables, not str": lambda: hvd.DistributedOptimizer(
                keras.optimizers.SGD(), groups=[["kernel"]]
            ),
            "gradient_predivide_factor is for op=Average": lambda: hvd.DistributedOptimizer(
                keras.optimizers.SGD(), op=hvd.Sum, gradient_predivide_factor=2.0
            ),
        }.items():
            with self.assertRaisesRegex(ValueError, words):
                call()
        if hvd.backend_name() != "tensorflow":  # which also calls the program's own compressors
            with self.assertRaisesRegex(ValueError, "it must be Compression.none, .fp16 or .bf16"):
                hvd.DistributedOptimizer(keras.optimizers.SGD(), compression=object())

    def test_a_loss_scale_optimizer_outside_is_refused(self):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD())
        words = r"pass DistributedOptimizer\(LossScaleOptimizer\(optimizer\)\)"
        with self.assertRaisesRegex(ValueError, words):
            keras.optimizers.LossScaleOptimizer(optimizer)
        policy = keras.config.dtype_policy()
        keras.config.set_dtype_policy("mixed_float16")
        try:
            with self.assertRaisesRegex(ValueError, words):
                model_of(optimizer)
        finally:
            keras.config.set_dtype_policy(policy)
        optimizer.loss_scale_factor = 2.0
        again = type(optimizer).from_config(optimizer.get_config())
        self.assertEqual(again.loss_scale_factor, 2.0)

    def test_other_models_name_both_ranks(self):
        variable = keras.Variable(np.zeros(RANK + 1, np.float32))
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
        with self.assertRaisesRegex(
            RuntimeError, r"(?s)rank 0 .*shape \[1\], rank 1 .*shape \[2\]"
        ):
            optimizer.apply([keras.ops.ones(RANK + 1)], [variable])


class SavedModelTest(unittest.TestCase):
    def test_a_model_is_loaded_with_and_without_ronda(self):
        path = pathlib.Path(tempfile.mkdtemp(), "model.keras")
        model = model_of(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
        fit(model, own())
        model.save(path)
        plain = keras.models.load_model(path)
        self.assertNotIn("ronda", type(plain.optimizer).__module__)
        self.assertEqual(type(plain.optimizer).__name__, "Adam")
        loaded = hvd.load_model(path)
        self.assertEqual(int(loaded.optimizer.iterations), STEPS)
        for both in (model, loaded):
            fit(both, own())
        np.testing.assert_allclose(weights_of(loaded), weights_of(model), atol=1e-6)
        for other in ronda.allgather_object(weights_of(loaded)):
            np.testing.assert_array_equal(weights_of(loaded), other)


class FunctionsTest(unittest.TestCase):
    def test_values(self):
        np.testing.assert_allclose(hvd.allreduce(RANK + 1.0), (SIZE + 1) / 2)
        tensor = keras.ops.full((1, 2), RANK + 1.0)
        np.testing.assert_allclose(hvd.allreduce(tensor, op=hvd.Max), [[SIZE] * 2])
        everyone = np.repeat(np.arange(1, SIZE + 1)[:, None], 2, 1)
        np.testing.assert_allclose(hvd.allgather(tensor), everyone)
        np.testing.assert_allclose(hvd.broadcast(tensor, 1), [[2, 2]])
        rows = keras.ops.ones((SIZE, 1))
        np.testing.assert_allclose(hvd.reducescatter(rows, op=hvd.Sum), [[SIZE]])
        self.assertEqual(hvd.broadcast_object(RANK, 1), 1)

    def test_wrong_arguments_of_one_rank_fail_on_all(self):
        with self.assertRaisesRegex((ValueError, ronda.RondaError), "77 is not a valid ReduceOp"):
            hvd.allreduce(1.0, op=77 if RANK == 0 else hvd.Sum)
        with self.assertRaises((ValueError, TypeError, ronda.RondaError)):
            hvd.broadcast(object() if RANK == 0 else 1.0, 1, name="wrong")
        self.assertEqual(hvd.allreduce(1.0, op=hvd.Sum), SIZE)

    def test_variables(self):
        counts = keras.Variable([RANK, RANK], dtype="int32", trainable=False)
        variables = [keras.Variable(float(RANK)), counts]
        hvd.broadcast_variables(variables, 1)
        self.assertEqual(
            [np.ravel(each)[0] for each in map(keras.ops.convert_to_numpy, variables)], [1, 1]
        )


class ElasticTest(unittest.TestCase):
    def test_fit_returns_to_the_commit_and_goes_on(self):
        model = model_of(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), seed=7 + RANK)
        state = hvd.elastic.KerasState(model, epoch=0, batch=0)
        to_come = ["a rank had died"]

        class Failing(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if state.epoch == 1 and batch == 1 and to_come:
                    raise hvd.HorovodInternalError(to_come.pop())

        @hvd.elastic.run
        def train(state):
            callbacks = [
                Failing(),
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.CommitStateCallback(state, batches_per_commit=0),
            ]
            fit(model, own(), epochs=2, initial_epoch=state.epoch, callbacks=callbacks)

        train(state)
        self.assertEqual(to_come, [])
        self.assertEqual((state.epoch, state.batch), (2, 0))
        alone = weights_alone(keras.optimizers.SGD(0.05), epochs=2)
        np.testing.assert_allclose(weights_of(model), alone, atol=1e-5)

    def test_a_planned_change_keeps_steps_that_are_not_committed(self):
        model, seen = model_of(keras.optimizers.SGD(0.05), seed=7 + RANK), []

        @hvd.elastic.run
        def train(state):
            seen.append(state.epoch)
            if len(seen) == 1:
                state.epoch = 3
                model.set_weights([np.full_like(each, 3) for each in model.get_weights()])
                raise hvd.elastic.HostsUpdatedInterrupt

        state = hvd.elastic.KerasState(model, epoch=0)
        train(state)
        self.assertEqual(seen, [0, 3])
        state.restore()
        self.assertEqual((state.epoch, {*weights_of(model)}), (3, {3.0}))

    def test_a_model_without_variables_is_refused(self):
        with self.assertRaisesRegex(ValueError, "has no variables yet: give it an Input"):
            hvd.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))


if __name__ == "__main__":
    unittest.main()
