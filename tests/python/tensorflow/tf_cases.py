# SPDX-License-Identifier: Apache-2.0

"""Helpers for tests of ronda.tensorflow."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import ronda.tensorflow as hvd
import tensorflow as tf

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()

# The classes of Ronda's errors, in eager mode and in tf.function.
ERRORS = (hvd.HorovodInternalError, tf.errors.OpError)


class Case(unittest.TestCase):
    """A test that runs functions eagerly and in tf.function."""

    def modes(self) -> Iterator[Callable[[Callable[..., Any]], Callable[..., Any]]]:
        """Yields two decorators: one that changes nothing, and one that makes a tf.function."""
        for name, mode in (("eager", lambda function: function), ("function", tf.function)):
            with self.subTest(mode=name):
                yield mode

    def assertValues(self, tensor: Any, expected: Any, **tolerance: float) -> None:
        """Compares the values of a tensor with `expected`."""
        wide = tf.cast(tensor, tf.float64).numpy()
        np.testing.assert_allclose(wide, np.asarray(expected, np.float64), **tolerance)
