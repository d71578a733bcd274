# SPDX-License-Identifier: Apache-2.0

"""Tests Ronda's operation in TensorFlow graphs, which runs without Python, on two ranks."""

import tempfile
import unittest

import ronda.tensorflow as hvd
import tensorflow as tf
from tf_cases import RANK, SIZE, Case


def operations_of(function, *arguments):
    """Returns the types of the operations in the graph of a function."""
    graph = tf.function(function).get_concrete_function(*arguments).graph
    return [each.type for each in graph.get_operations()]


class KernelTest(Case):
    def test_reductions_run_without_python(self):
        self.assertTrue(hvd.native_ops_built())
        variable = tf.Variable([1.0, 2.0])

        def step(tensor):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(variable * hvd.allreduce(tensor))
            return hvd.DistributedGradientTape(tape).gradient(loss, [variable])

        types = operations_of(step, tf.ones(2))
        self.assertEqual(types.count("RondaAllreduce"), 2)
        self.assertNotIn("PyFunc", types)

    def test_operations_of_any_graph_run_in_the_order_of_the_program(self):
        # In a graph outside of a tf.function, TensorFlow does not order the operations, so Ronda
        # orders them.
        with tf.Graph().as_default() as graph:
            hvd.allreduce(tf.ones(3))
            hvd.allgather(tf.ones(3))
            hvd.allreduce(tf.ones(3))
        kinds = ("RondaAllreduce", "PyFunc")
        calls = [each for each in graph.get_operations() if each.type in kinds]
        self.assertEqual(len(calls), 3)
        for before, after in zip(calls, calls[1:]):
            self.assertIn(before, after.control_inputs)

    def test_a_process_set_needs_python(self):
        # An operation on a process set needs Python, because an elastic program keeps its graphs
        # for the next job, in which the process set has a different id.
        ranks = hvd.add_process_set([1])
        self.addCleanup(hvd.remove_process_set, ranks)
        types = operations_of(lambda tensor: hvd.allreduce(tensor, process_set=ranks), tf.ones(2))
        self.assertIn("PyFunc", types)
        self.assertNotIn("RondaAllreduce", types)

    def test_a_saved_model_keeps_the_reduction(self):
        module = tf.Module()
        module.reduce = tf.function(
            lambda tensor: hvd.allreduce(tensor, op=hvd.Sum),
            input_signature=[tf.TensorSpec([None, 2])],
        )
        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(module, folder)
            loaded = tf.saved_model.load(folder)
        total = loaded.reduce(tf.ones([3, 2]))
        self.assertEqual(total.shape, (3, 2))
        self.assertValues(total, tf.fill([3, 2], SIZE))

    def test_a_result_that_nothing_uses_is_still_reduced(self):
        @tf.function
        def reduce_twice(tensor):
            hvd.allreduce(tensor, name="unused")
            return hvd.allreduce(tensor, op=hvd.Sum, name="used")

        if RANK == 0:
            hvd.allreduce(tf.ones(3), name="unused")  # waits for the function of the other rank
            hvd.allreduce(tf.ones(3), op=hvd.Sum, name="used")
        else:
            self.assertValues(reduce_twice(tf.ones(3)), [SIZE] * 3)


if __name__ == "__main__":
    unittest.main()
