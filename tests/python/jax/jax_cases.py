# SPDX-License-Identifier: Apache-2.0

"""Helpers that all tests of ronda.jax share."""

import unittest
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import ronda.jax as rj

jax.config.update("jax_platforms", "cpu")


class Case(unittest.TestCase):
    """A test case that runs on all ranks of a job."""

    @classmethod
    def setUpClass(cls) -> None:
        rj.init()
        cls.rank, cls.size = rj.rank(), rj.size()

    def assert_same(self, found: Any, expected: Any, **tolerance: float) -> None:
        """Compares the structure of two trees, and their leaves in float64."""
        leaves, structure = jax.tree_util.tree_flatten(found)
        others, expected_structure = jax.tree_util.tree_flatten(expected)
        self.assertEqual(structure, expected_structure)
        for leaf, other in zip(leaves, others):
            self.assertEqual(np.shape(leaf), np.shape(other))
            np.testing.assert_allclose(
                np.asarray(leaf).astype(np.float64),
                np.asarray(other).astype(np.float64),
                **{"rtol": 1e-6, **tolerance},
            )


def both(function: Callable[..., Any], *args: Any) -> "list[Any]":
    """Returns the function's results outside of jit and under jit."""
    return [function(*args), jax.jit(function)(*args)]


def numbers(rank: int, shape: "tuple[int, ...]" = (6, 2), dtype: Any = jnp.float32) -> jax.Array:
    """Returns the array of a rank, whose small whole numbers are exact in every type."""
    count = int(np.prod(shape))
    return ((jnp.arange(count) % 3).reshape(shape) + rank).astype(dtype)
