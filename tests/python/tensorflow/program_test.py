# SPDX-License-Identifier: Apache-2.0

"""Whole programs of TensorFlow: the example, and a job that loses a rank in a tf.function."""

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

    def test_a_call_before_init_says_so(self):
        done = ronda_test.run(
            """
            import ronda.tensorflow as hvd
            try:
                hvd.allreduce([1.0])
            except ValueError as error:
                print(error)
            """
        )
        self.assertIn("init", done.out, done.err)


if __name__ == "__main__":
    unittest.main()
