# SPDX-License-Identifier: Apache-2.0

"""Runs the tests as if TensorFlow had no C API for kernels. The link flags name libc instead of
TensorFlow's library, so Ronda does not find the API.
"""

import unittest
import unittest.mock

import tensorflow as tf

_FLAGS = ["-L/lib/x86_64-linux-gnu", "-l:libc.so.6"]
with unittest.mock.patch.object(tf.sysconfig, "get_link_flags", return_value=_FLAGS):
    import ronda.tensorflow as hvd

from gradients_test import *  # noqa: E402, F403
from operations_test import *  # noqa: E402, F403
from training_test import *  # noqa: E402, F403


class WithoutKernelsTest(unittest.TestCase):
    def test_reductions_run_in_python(self):
        self.assertFalse(hvd.native_ops_built())
        reduce = tf.function(lambda tensor: hvd.allreduce(tensor))
        operations = reduce.get_concrete_function(tf.ones(3)).graph.get_operations()
        self.assertIn("PyFunc", [each.type for each in operations])


if __name__ == "__main__":
    unittest.main()
