# SPDX-License-Identifier: Apache-2.0

"""Tests which values JaxState keeps and sends, in a job that neither loses nor gains ranks."""

import collections
import typing

import jax
import jax.numpy as jnp
import numpy as np
import ronda
from jax_cases import Case
from ronda.jax import elastic


class Pair(typing.NamedTuple):
    """A class that JAX treats as a tree."""

    w: object
    bias: object


def tree(seed):
    """Returns a tree with every kind of leaf."""
    return {
        "pair": Pair(jnp.full((2, 3), seed, jnp.bfloat16), jnp.full(4, seed, "float8_e4m3fn")),
        "none": None,
        "weak": jnp.asarray(float(seed)),
        "weak_vector": jnp.full(2, seed),
        "strong": jnp.float32(seed),
        "int4": jnp.full(3, seed, "int4"),
        "complex": jnp.full(2, seed + 1j),
        "bool": jnp.asarray([seed % 2 == 0]),
        "empty": jnp.ones((0, 3)),
        "key": jax.random.key(seed),
        "keys": jax.random.split(jax.random.key(seed, impl="rbg"), 2),
        "old_key": jax.random.PRNGKey(seed),
        "numpy": np.arange(3, dtype=np.float64) + seed,
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3) + seed),
        "objects": np.array([{"seed": seed}], object),
        "numpy_scalar": np.float16(seed),
        "python": [seed, f"seed {seed}"],
    }


def described(leaf):
    """Returns the properties of a leaf that must not change."""
    if not isinstance(leaf, (jax.Array, np.ndarray)):
        return type(leaf), leaf
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    values = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
    is_jax = isinstance(leaf, jax.Array)
    weak = getattr(leaf, "weak_type", False)
    devices = leaf.devices() if is_jax else None
    return is_jax, str(leaf.dtype), weak, devices, leaf.shape, values.tolist()


class StateTest(Case):
    def assert_equal(self, found, expected):
        leaves, structure = jax.tree_util.tree_flatten(found)
        others, expected_structure = jax.tree_util.tree_flatten(expected)
        self.assertEqual(structure, expected_structure)
        for leaf, other in zip(leaves, others):
            self.assertEqual(described(leaf), described(other))

    def test_sync_brings_every_kind_of_leaf(self):
        state = elastic.JaxState(tree=tree(2 + self.rank), epoch=self.rank, log=["x"] * self.rank)
        state.sync()
        self.assert_equal(state.tree, tree(2))
        self.assertEqual((state.epoch, state.log), (0, []))

    def test_arrays_may_have_another_shape_on_a_new_rank(self):
        state = elastic.JaxState(w=[jnp.full(3 if self.rank == 0 else 1, self.rank)], n=0)
        state.sync()
        self.assert_equal(state.w, [jnp.full(3, 0)])

    def test_restore_returns_to_the_commit(self):
        state = elastic.JaxState(tree=tree(2), step=0, log=[])
        state.commit()
        state.tree["numpy"] += 1
        state.tree["python"].append(7)
        state.tree["pair"] = Pair(jnp.zeros(1), jnp.zeros(1))
        state.log.append("x")
        state.step = 5
        state.restore()
        self.assert_equal(state.tree, tree(2))
        self.assertEqual((state.step, state.log), (0, []))
        state.tree["numpy"] += 1  # the commit has arrays of its own
        state.restore()
        self.assert_equal(state.tree, tree(2))

    def test_changes_of_leaves_in_place_last_only_if_they_are_committed(self):
        counts = collections.Counter(seen=1)  # a leaf, because JAX does not know the class
        state = elastic.JaxState(tree={"counts": counts, "w": jnp.zeros(1)})
        state.tree["counts"]["seen"] = 2
        state.restore()
        self.assertEqual(state.tree["counts"]["seen"], 1)

    def test_programs_may_donate_the_arrays_of_the_state(self):
        step = jax.jit(lambda w: w + 1, donate_argnums=0)
        state = elastic.JaxState(w=jnp.zeros(3))
        for _ in range(2):
            state.w = step(state.w)
            state.commit()
        for _ in range(2):
            state.w = step(state.w)
            state.restore()
            self.assert_equal(state.w, jnp.zeros(3) + 2)

    def test_programs_are_compiled_again_for_another_number_of_ranks(self):
        traced = []
        program = jax.jit(lambda x: traced.append(1) or x)
        state = elastic.JaxState(step=0)
        state.sync()
        for place, traces in ((state._place, 1), ((self.rank, self.size + 1), 2)):
            program(1)
            state._place = place  # as of the last sync()
            state.reset()
            program(1)
            self.assertEqual(len(traced), traces)

    def test_a_donated_array_is_named(self):
        state = elastic.JaxState(params={"w": jnp.zeros(3)})
        jax.jit(lambda w: w + 1, donate_argnums=0)(state.params["w"])
        with self.assertRaisesRegex(
            ronda.InvalidArgumentError,
            r"the array params\['w'\] was donated .* assign the program's result to state.params",
        ):
            state.commit()

    def test_a_failed_program_leaves_the_last_commit(self):
        def fail(_):
            raise ValueError("no result")

        state = elastic.JaxState(w=jnp.ones(3))
        state.commit()

        def broken(w):
            return jax.pure_callback(fail, jax.ShapeDtypeStruct((3,), "float32"), w)

        with self.assertRaisesRegex(jax.errors.JaxRuntimeError, "no result"):
            state.w = jax.jit(broken)(state.w)
            state.commit()
        state.restore()
        self.assert_equal(state.w, jnp.ones(3))


class DisagreementTest(Case):
    def test_every_rank_gets_the_difference(self):
        if self.size == 1:
            return
        one = {"tree": {"a": jnp.ones(1)}}
        for other, words in (
            (
                {"tree": {"a": jnp.ones(1), "b": 1}},
                r"tree has 2 leaves on rank \d and 1 on rank 0,",
            ),
            ({"tree": {"c": jnp.ones(1)}}, r"only one of them has tree\['a'\]: build it in the"),
            ({"tree": 3}, r"tree has 0 leaves on rank \d and 1 on"),
            ({**one, "more": 1}, r"\['more', 'tree'\] on rank \d, and \['tree'\] on rank 0"),
        ):
            state = elastic.JaxState(**(other if self.rank else one))
            error = ronda.InvalidArgumentError if self.rank else ronda.MismatchError
            with self.subTest(words), self.assertRaisesRegex(error, words):
                state.sync()
