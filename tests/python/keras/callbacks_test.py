# SPDX-License-Identifier: Apache-2.0

"""Tests the callbacks of ronda.keras on the backend that KERAS_BACKEND names."""

import unittest

import keras
import numpy as np
import ronda
import ronda.keras as hvd
from keras_cases import INPUTS, LABELS, RANK, SHARE, SIZE, STEPS, fit, model_of, own, weights_of


class Rates(keras.callbacks.Callback):
    """Records the learning rate and the momentum of each batch."""

    def __init__(self):
        super().__init__()
        self.rates, self.momenta = [], []

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self.model.optimizer
        self.rates.append(float(keras.ops.convert_to_numpy(optimizer.learning_rate)))
        self.momenta.append(float(optimizer.momentum))


class BroadcastTest(unittest.TestCase):
    def test_the_root_decides_from_the_first_batch_on(self):
        model = model_of(keras.optimizers.Adam(0.0), seed=7 + RANK)
        fit(model, own(), callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(1)])
        np.testing.assert_array_equal(weights_of(model), weights_of(model_of("sgd", seed=8)))

    def test_a_model_that_gets_its_variables_later(self):
        keras.utils.set_random_seed(7 + RANK)
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.0), "mse")
        fit(model, own(), callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback()])
        for other in ronda.allgather_object(weights_of(model)):
            np.testing.assert_array_equal(weights_of(model), other)


class MetricTest(unittest.TestCase):
    def test_later_callbacks_see_the_average(self):
        seen = []

        class Last(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                seen.append(dict(logs))

        model = model_of(keras.optimizers.SGD(0.0), metrics=["mae"])
        average = hvd.callbacks.MetricAverageCallback()
        data = own()
        history = fit(model, data, callbacks=[average, Last()], validation_data=data)
        whole = model.evaluate(INPUTS, LABELS, verbose=0, return_dict=True)
        for name in ("loss", "mae", "val_loss", "val_mae"):
            expected = whole[name.removeprefix("val_")]
            self.assertAlmostEqual(seen[0][name], expected, places=4)
            self.assertAlmostEqual(history[name][0], expected, places=4)

    def test_metrics_may_be_arrays(self):
        logs = {"loss": float(RANK), "f1": keras.ops.convert_to_tensor([RANK, 1.0])}
        hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
        self.assertEqual(logs["loss"], (SIZE - 1) / 2)
        np.testing.assert_allclose(logs["f1"], [(SIZE - 1) / 2, 1])


class LearningRateTest(unittest.TestCase):
    def rates(self, *callbacks, epochs):
        record = Rates()
        model = model_of(keras.optimizers.SGD(0.5, momentum=0.8))
        history = fit(model, own(), callbacks=[*callbacks, record], epochs=epochs)
        return record, history

    def test_the_warm_up_rises_to_the_whole_rate(self):
        warm_up = hvd.callbacks.LearningRateWarmupCallback(0.5, warmup_epochs=2)
        record, history = self.rates(warm_up, epochs=3)
        steps = np.arange(1, 2 * STEPS + 1) / (2 * STEPS)
        expected = 0.5 / SIZE * (1 + (SIZE - 1) * steps)
        np.testing.assert_allclose(record.rates, [*expected, *[0.5] * STEPS], rtol=1e-6)
        np.testing.assert_allclose(history["lr"], record.rates[STEPS - 1 :: STEPS], rtol=1e-6)

    def test_stairs_and_their_limits(self):
        halve = hvd.callbacks.LearningRateScheduleCallback(
            None, lambda epoch: 0.5**epoch, start_epoch=1, end_epoch=3
        )
        record, _ = self.rates(halve, epochs=4)
        expected = np.repeat([0.5, 0.25, 0.125, 0.125], STEPS)
        np.testing.assert_allclose(record.rates, expected, rtol=1e-6)

    def test_a_constant_multiplier_acts_once_an_epoch(self):
        schedule = hvd.callbacks.LearningRateScheduleCallback
        record, _ = self.rates(schedule(0.2, 3.0), epochs=3)
        np.testing.assert_allclose(record.rates, np.repeat([0.2, 0.6, 1.8], STEPS), rtol=1e-6)
        record, _ = self.rates(schedule(0.2, 4.0, staircase=False), epochs=1)
        np.testing.assert_allclose(record.rates, 0.2 * 4 ** (np.arange(STEPS) / STEPS), rtol=1e-6)

    def test_the_momentum_follows_the_rate_where_it_can(self):
        halve = hvd.callbacks.LearningRateScheduleCallback(0.5, lambda epoch: 0.5)
        during = Rates()
        model = model_of(keras.optimizers.SGD(0.5, momentum=0.8))
        fit(model, own(), callbacks=[during, halve])  # sees the momentum before it is restored
        corrected = 0.4 if hvd.backend_name() == "torch" else 0.8
        np.testing.assert_allclose(during.momenta, [corrected] + [0.8] * (STEPS - 1))
        self.assertEqual(model.optimizer.momentum, 0.8)

    def test_an_unknown_number_of_batches_is_asked_for(self):
        warm_up = hvd.callbacks.LearningRateWarmupCallback(0.5)
        warm_up.set_params({"steps": None})
        with self.assertRaisesRegex(ValueError, "pass steps_per_epoch"):
            warm_up.on_train_begin()


class JoinTest(unittest.TestCase):
    def test_ranks_may_have_different_numbers_of_batches(self):
        rows = SHARE * (STEPS + RANK)  # the last rank has the most
        data = np.resize(INPUTS, (rows, 4)), np.resize(LABELS, (rows, 1))
        model = model_of(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)))
        fit(model, data, callbacks=[hvd.callbacks.JoinCallback()], epochs=2)
        self.assertEqual(int(model.optimizer.iterations), 2 * (STEPS + SIZE - 1))
        for other in ronda.allgather_object(weights_of(model)):
            np.testing.assert_array_equal(weights_of(model), other)


if __name__ == "__main__":
    unittest.main()
