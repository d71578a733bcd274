# SPDX-License-Identifier: Apache-2.0

"""Tests that the gradients of ronda.tensorflow's collectives equal Horovod's gradients."""

import unittest
from unittest import mock

import numpy as np
import ronda.tensorflow as hvd
import tensorflow as tf
from ronda.tensorflow import gradient_tape
from tf_cases import RANK, SIZE, Case

WEIGHTS = tf.range(1.0, 4.0)[:, None] * [[1.0, 2.0]]  # of a rank's loss


def gradient_of(operation, tensor, weight):
    """Returns the gradient of a weighted sum of the operation's result."""
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        loss = tf.reduce_sum(operation(tensor) * weight)
    return tape.gradient(loss, tensor)


class GradientTest(Case):
    def check(self, operation, tensor, weight, expected):
        for mode in self.modes():
            found = mode(lambda x, w: gradient_of(operation, x, w))(tensor, weight)
            self.assertValues(found, expected, rtol=1e-6)

    def test_allreduce_is_reduced_in_the_same_way(self):
        weight = WEIGHTS * (RANK + 1)
        mean = WEIGHTS * (SIZE + 1) / 2
        ones = tf.ones([3, 2])
        self.check(lambda x: hvd.allreduce(x, op=hvd.Sum), ones, weight, mean * SIZE)
        self.check(lambda x: hvd.allreduce(x), ones, weight, mean)
        self.check(lambda x: hvd.grouped_allreduce([x, x])[1], ones, weight, mean)

    def test_a_maximum_has_no_gradient(self):
        with self.assertRaisesRegex(NotImplementedError, "MAX has no gradient"):
            gradient_of(lambda x: hvd.allreduce(x, op=hvd.Max), tf.ones([3, 2]), WEIGHTS)

    def test_allgather_averages_a_ranks_rows(self):
        rows = sum(range(1, SIZE + 1))
        weight = tf.range(float(rows))[:, None] * (RANK + 1)
        first = sum(range(1, RANK + 1))
        mean = np.arange(first, first + RANK + 1)[:, None] * (SIZE + 1) / 2
        self.check(lambda x: hvd.allgather(x), tf.ones([RANK + 1, 1]), weight, mean)

    def test_broadcast_is_for_the_root(self):
        mean = WEIGHTS * (SIZE + 1) / 2
        expected = mean if RANK == 1 else tf.zeros_like(mean)
        weight = WEIGHTS * (RANK + 1)
        self.check(lambda x: hvd.broadcast(x, 1), tf.ones([3, 2]), weight, expected)

    def test_alltoall_returns_the_rows(self):
        splits = tf.range(SIZE) + 1  # one row is left out
        rows = int(tf.reduce_sum(splits)) + 1
        received = (RANK + 1) * SIZE
        weight = tf.fill([received, 1], float(RANK + 1))
        expected = np.append(np.repeat(np.arange(1, SIZE + 1), splits.numpy()), 0)[:, None]
        tensor = tf.ones([rows, 1])
        self.check(lambda x: hvd.alltoall(x[:-1], splits)[0], tensor, weight, expected)

    def test_reducescatter_gathers(self):
        weight = tf.fill([1, 2], float(RANK + 1))
        expected = np.repeat(np.arange(1, SIZE + 1)[:, None], 2, axis=1)
        ones = tf.ones([SIZE, 2])
        self.check(lambda x: hvd.reducescatter(x), ones, weight, expected)
        self.check(lambda x: hvd.reducescatter(x, op=hvd.Sum), ones, weight, expected * SIZE)


class TapeTest(Case):
    def test_gradients_are_averaged_and_none_stays(self):
        used, unused = tf.Variable([1.0, 2.0]), tf.Variable(1.0)
        for mode in self.modes():

            @mode
            def gradients():
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(used) * (RANK + 1)
                return hvd.DistributedGradientTape(tape).gradient(
                    loss, {"used": used, "unused": unused}
                )

            found = gradients()
            self.assertValues(found["used"], [(SIZE + 1) / 2] * 2)
            self.assertIsNone(found["unused"])

    def test_the_wrapped_tape_may_record(self):
        variable = tf.Variable(1.0)
        with hvd.DistributedGradientTape(tf.GradientTape(persistent=True), op=hvd.Sum) as tape:
            loss = variable * (RANK + 1)
        for _ in range(2):
            self.assertValues(tape.gradient(loss, variable), SIZE * (SIZE + 1) / 2)
        self.assertIsInstance(tape, tf.GradientTape)

    def test_sparse_gradients(self):
        table = tf.Variable(tf.ones([4, 2]))
        for dense in (False, True):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(table, [RANK, 3]))
            tape = hvd.DistributedGradientTape(tape, sparse_as_dense=dense)
            gradient = tape.gradient(loss, table)
            self.assertEqual(isinstance(gradient, tf.IndexedSlices), not dense)
            expected = np.zeros((4, 2))
            expected[:SIZE] = 1 / SIZE
            expected[3] += 1
            self.assertValues(tf.convert_to_tensor(gradient), expected)

    def test_gradients_of_a_group_travel_together(self):
        variables = [tf.Variable([float(i)] * 2) for i in range(4)]
        reduce = gradient_tape.reduce_gradients
        for options, sizes in (
            ({}, [4]),
            ({"groups": 3}, [1, 1, 2]),
            ({"groups": [[variables[3], variables[0]]]}, [2, 1, 1]),
        ):
            for mode in self.modes():

                @mode
                def gradients(options=options):
                    with tf.GradientTape() as tape:
                        loss = tf.add_n([tf.reduce_sum(v) for v in variables]) * (RANK + 1)
                    return hvd.DistributedGradientTape(tape, **options).gradient(loss, variables)

                with mock.patch.object(
                    gradient_tape, "reduce_gradients", side_effect=reduce
                ) as spy:
                    found = gradients()
                self.assertEqual([len(call.args[2]) for call in spy.call_args_list], sizes)
                for gradient in found:
                    self.assertValues(gradient, [(SIZE + 1) / 2] * 2)

    def test_groups_are_lists_of_variables(self):
        variable, other = tf.Variable(1.0), tf.Variable(1.0)
        for groups, words in (
            (-2, "a non-negative integer, or lists of variables"),
            ([[variable], [variable]], "can only appear once in groups"),
            ([[other]], "groups has no variable of the 1 whose gradients are reduced"),
        ):
            with tf.GradientTape() as tape:
                loss = variable * 2
            with self.assertRaisesRegex(ValueError, words):
                hvd.DistributedGradientTape(tape, groups=groups).gradient(loss, variable)

    def test_the_predivisor_is_for_averages(self):
        variable = tf.Variable(1.0)
        with tf.GradientTape() as tape:
            loss = variable * (RANK + 1)
        wrapped = hvd.DistributedGradientTape(tape, gradient_predivide_factor=SIZE)
        self.assertValues(wrapped.gradient(loss, variable), (SIZE + 1) / 2)
        with self.assertRaisesRegex(ValueError, "gradient_predivide_factor is for op=Average"):
            hvd.DistributedGradientTape(tape, op=hvd.Sum, gradient_predivide_factor=2.0)


if __name__ == "__main__":
    unittest.main()
