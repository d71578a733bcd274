# SPDX-License-Identifier: Apache-2.0

"""Compares training over ronda.tensorflow with training in one process."""

import unittest

import keras
import numpy as np
import ronda.tensorflow as hvd
import ronda.tensorflow.keras as hvd_keras
import tensorflow as tf
from ronda import _carried_errors
from ronda.tensorflow import elastic
from tf_cases import RANK, SIZE, Case

RNG = np.random.default_rng(3)
INPUTS = RNG.normal(3.0, 2.0, (4 * SIZE, 5)).astype(np.float32)
OWN = INPUTS[4 * RANK : 4 * RANK + 4]


class BatchNormalizationTest(Case):
    def test_equals_one_batch_of_all_ranks(self):
        for mode in self.modes():
            together, alone = hvd.SyncBatchNormalization(), keras.layers.BatchNormalization()
            outputs, gradient = self.outputs_and_gradient(mode, together, OWN)
            whole, whole_gradient = self.outputs_and_gradient(mode, alone, INPUTS)
            own = slice(4 * RANK, 4 * RANK + 4)
            self.assertValues(outputs, whole[own], atol=1e-5)
            self.assertValues(gradient, whole_gradient[own], atol=1e-4)
            self.assertValues(together.moving_mean, alone.moving_mean, rtol=1e-5)
            self.assertValues(together.moving_variance, alone.moving_variance, rtol=1e-5)

    def outputs_and_gradient(self, mode, layer, inputs):
        layer.build(inputs.shape)

        @mode
        def run(inputs):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = layer(inputs, training=True)
                loss = tf.reduce_sum(outputs**3)
            return outputs, tape.gradient(loss, inputs)

        return run(tf.constant(inputs))

    def test_keras_does_not_compile_its_model(self):
        self.assertFalse(hvd.SyncBatchNormalization().supports_jit)


class OptimizerTest(Case):
    def test_horovods_name_wraps_keras_optimizers(self):
        variable = keras.Variable(np.zeros(2, np.float32))
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum)
        optimizer.apply([tf.fill([2], RANK + 1.0)], [variable])
        self.assertValues(variable, [-SIZE * (SIZE + 1) / 2] * 2)
        self.assertIs(
            hvd_keras.DistributedOptimizer, __import__("ronda.keras").keras.DistributedOptimizer
        )

    def test_a_compiled_model_is_refused_with_the_remedy(self):
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD()), "mse", jit_compile=True)
        with self.assertRaisesRegex(ValueError, r"model.compile\(..., jit_compile=False\)"):
            model.fit(OWN, OWN[:, :1], verbose=0)
        # With the broadcast callback there is no error, because it turns jit_compile off before the
        # first step.
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD()), "mse", jit_compile=True)
        broadcast = hvd_keras.callbacks.BroadcastGlobalVariablesCallback()
        model.fit(OWN, OWN[:, :1], verbose=0, callbacks=[broadcast])

    def test_embeddings_send_their_slices(self):
        inputs = np.array([[RANK], [3]])

        def train(distribute, inputs):
            keras.utils.set_random_seed(5)
            model = keras.Sequential(
                [
                    keras.Input((1,), dtype="int32"),
                    keras.layers.Embedding(4, 2),
                    keras.layers.Flatten(),
                ]
            )
            model.compile(distribute(keras.optimizers.SGD(0.5)), "mse")
            model.fit(inputs, np.ones((len(inputs), 2)), batch_size=len(inputs), verbose=0)
            return model.get_weights()[0]

        everyone = np.concatenate([[[rank], [3]] for rank in range(SIZE)])
        alone = train(lambda optimizer: optimizer, everyone)
        np.testing.assert_allclose(train(hvd.DistributedOptimizer, inputs), alone, atol=1e-6)


class ElasticTest(Case):
    def test_variables_return_to_the_commit(self):
        variable = tf.Variable(float(RANK))
        state = elastic.TensorFlowState([variable], step=RANK)
        state.sync()
        self.assertEqual((float(variable), state.step), (0.0, 0))
        variable.assign(5.0)
        state.step = 5
        state.commit()
        variable.assign(7.0)
        state.step = 7
        state.restore()
        self.assertEqual((float(variable), state.step), (5.0, 5))

    def test_a_planned_change_keeps_steps_that_are_not_committed(self):
        variable, seen = tf.Variable(0.0), []

        @elastic.run
        def train(state):
            seen.append((float(variable), state.step))
            if len(seen) == 1:
                variable.assign(3.0)
                state.step = 3
                raise elastic.HostsUpdatedInterrupt

        state = elastic.TensorFlowState([variable], step=0)
        train(state)
        self.assertEqual(seen, [(0.0, 0), (3.0, 3)])
        state.restore()
        self.assertEqual((float(variable), state.step), (3.0, 3))

    def test_training_goes_on_after_an_error_inside_a_function(self):
        variable, attempts = tf.Variable(1.0), []

        @tf.function(reduce_retracing=True)
        def reduce(tensor):
            return hvd.allreduce(tensor, op=hvd.Sum, name="attempt")

        @elastic.run
        def train(state):
            attempts.append(float(variable))
            variable.assign_add(10.0)
            length = RANK + 1 if len(attempts) == 1 else 2
            variable.assign(reduce(tf.fill([length], 1.0))[0])

        train(elastic.TensorFlowState([variable]))
        self.assertEqual(attempts, [1.0, 1.0])
        self.assertEqual(float(variable), SIZE)

    def test_an_error_of_another_kind_is_not_rondas(self):
        self.assertIsNone(_carried_errors.original_of(RuntimeError("other")))


if __name__ == "__main__":
    unittest.main()
