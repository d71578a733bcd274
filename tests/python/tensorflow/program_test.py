# SPDX-License-Identifier: Apache-2.0

"""Tests TensorFlow programs: the example, and a job that loses a rank in a tf.function."""

import re
import subprocess
import sys
import unittest

import ronda_test


class ProgramTest(unittest.TestCase):
    def test_the_example(self):
        done = subprocess.run(
            [ronda_test.RONDARUN, "-np", "2", sys.executable, "examples/tensorflow_mnist.py"],
            capture_output=True,
            text=True,
            env=ronda_test.environment(),
        )
        accuracies = re.findall(r"epoch \d: accuracy (0\.\d+)", done.stdout)
        self.assertTrue(done.returncode == 0 and accuracies, done.stdout + done.stderr)
        self.assertGreaterEqual(float(accuracies[-1]), 0.97)

    def test_a_killed_rank_is_named_by_the_others(self):
        done = ronda_test.run(
            """
            import os, signal
            import tensorflow as tf
            import ronda.tensorflow as hvd
            hvd.init()
            reduce = tf.function(lambda tensor: hvd.allreduce(tensor))
            reduce(tf.ones(3))
            if hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                reduce(tf.ones(3))
            except tf.errors.OpError as error:
                print(f"raised {error}", flush=True)
                raise SystemExit(3)
            """,
            ranks=2,
        )
        self.assertNotEqual(done.code, 0)
        self.assertRegex(done.out, r"raised (?s:.*)PeerFailedError(?s:.*)rank 1")

    def test_one_thread_for_operations_is_enough(self):
        done = ronda_test.run(
            """
            import tensorflow as tf
            import ronda.tensorflow as hvd
            hvd.init()
            # TensorFlow itself orders the operations in the graph of a tf.function.
            graph = tf.Graph()
            with graph.as_default():
                given = tf.compat.v1.placeholder(tf.float32, [3])
                tensors = [given]  # each is there later than the one before it
                for _ in range(40):
                    tensors.append(tf.sin(tf.sin(tf.sin(tensors[-1]))))
                if hvd.rank() == 0:
                    tensors.reverse()
                reduced = [hvd.allreduce(each, name=f"{i}") for i, each in enumerate(tensors)]
            config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1)
            with tf.compat.v1.Session(graph=graph, config=config) as session:
                session.run(reduced, {given: [1.0] * 3})
            print("reduced", flush=True)
            """,
            ranks=2,
        )
        self.assertEqual(done.out.count("reduced"), 2, done.err)

    def test_a_call_before_init_says_so(self):
        done = ronda_test.run(
            """
            import tensorflow as tf
            import ronda.tensorflow as hvd
            try:
                hvd.allreduce([1.0])
            except ValueError as error:
                print("eager", error)
            try:
                tf.function(lambda: hvd.allreduce([1.0]))()
            except tf.errors.OpError as error:
                print("function", error)
            """
        )
        self.assertRegex(
            done.out, "(?s)eager.*ronda_init.*function.*NotInitializedError.*ronda_init"
        )


if __name__ == "__main__":
    unittest.main()
