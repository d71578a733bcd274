# SPDX-License-Identifier: Apache-2.0

"""Tests which calls are rejected, and the errors of ranks whose calls differ."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import ronda
import ronda.jax as rj
from jax_cases import Case, numbers


class RefusalsTest(Case):
    def refused(self, words, function, *args):
        """Expects the error outside of jit and under jit."""
        for call in (function, jax.jit(function)):
            with self.assertRaisesRegex(ronda.InvalidArgumentError, words):
                call(*args)

    def test_an_average_of_integers(self):
        self.refused(
            r"allreduce: the array \['n'\] is int32, .* use op=Sum",
            lambda x: rj.allreduce({"n": x}),
            jnp.arange(3),
        )

    def test_dtypes_that_jax_would_round(self):
        with self.assertRaisesRegex(
            ValueError, "float64, which JAX would round to float32: .*enable_x64"
        ):
            rj.allreduce(np.ones(2))
        with self.assertRaisesRegex(ValueError, r"int64, which .* to int32: .*astype\('int32'\)"):
            jax.jit(lambda: rj.broadcast(np.arange(2)))()

    def test_types_in_which_ronda_does_not_add(self):
        self.refused(
            "float8_e5m2, in which Ronda does not add", rj.allreduce, jnp.ones(2, "float8_e5m2")
        )
        smallest = lambda x: rj.allreduce(x, rj.Min)  # noqa: E731
        self.refused("complex64, .* have no MIN: use", smallest, jnp.ones(2, "complex64"))

    def test_results_in_an_array_of_jax(self):
        array = jnp.zeros(3)
        with self.assertRaisesRegex(ronda.InvalidArgumentError, "out cannot be written to"):
            ronda.allreduce(np.ones(3, "float32"), out=array)
        self.assertEqual(array.tolist(), [0, 0, 0])

    def test_keys(self):
        self.refused(r"key<fry>, .* pass jax.random.key_data", rj.broadcast, jax.random.key(0))

    def test_leaves_that_are_no_arrays(self):
        words = r"broadcast: the array \['act'\] is %s, and neither numbers nor an array of numbers"
        for leaf, kind in ((jnp.tanh, "ufunc|function|jit"), ("float32", "str"), (object(), "obj")):
            tree = {"act": leaf, "w": jnp.ones(2)}
            with self.assertRaisesRegex(ronda.InvalidArgumentError, words % f"[^ ]*({kind})[^ ]*"):
                rj.broadcast_parameters(tree)
        with self.assertRaisesRegex(ronda.InvalidArgumentError, "is <U1, and neither"):
            rj.allreduce(np.array(["a"]))
        with self.assertRaisesRegex(ronda.InvalidArgumentError, "recv: an array is str"):
            rj.recv("float32", 0)

    def test_rows_that_are_not_there(self):
        self.refused("allgather: the array is a scalar", rj.allgather, jnp.float32(1))
        if self.size > 1:
            self.refused(
                f"alltoall: 1 rows cannot be distributed equally to {self.size} ranks",
                rj.alltoall,
                jnp.ones(1),
            )

    def test_splits(self):
        n, x = self.size, jnp.ones(3 * self.size)
        for splits, received, words in (
            ([3] * (n + 1), [3] * n, rf"splits is \[3, .*\]: pass {n} numbers of rows"),
            ([3] * n, [-1] * n, r"received_splits is \[-1.*\]: pass \d numbers of rows"),
            ([3] * n, [3.5] * n, r"received_splits is \[3.5.*\]: pass a sequence of integers"),
            ([2] * n, [3] * n, rf"splits is .*, {2 * n} rows together, but the array has {3 * n}"),
            (None, [3] * n, "received_splits is for splits"),
        ):
            self.refused(words, lambda x: rj.alltoall(x, splits, received_splits=received), x)  # noqa: B023
        with self.assertRaisesRegex(
            ValueError, r"splits is .*Trace.*: pass .*, which under jit are"
        ):
            jax.jit(lambda x, splits: rj.alltoall(x, splits))(x, jnp.full(n, 3))
        for wrap in (jax.jit, jax.grad):
            with self.assertRaisesRegex(ValueError, "the shape .* be known: pass received_splits"):
                wrap(lambda x: rj.alltoall(x, [3] * n)[0].sum())(x)

    def test_error_feedback_of_a_group(self):
        with self.assertRaisesRegex(ValueError, "error_feedback is for arrays that are not groupe"):
            rj.allreduce([jnp.ones(2)], grouped=True, error_feedback=True)

    def test_names(self):
        for name in ("", "two\nlines", "ronda/x"):
            self.refused("allreduce: the name", lambda x: rj.allreduce(x, name=name), jnp.ones(2))  # noqa: B023

    def test_programs_for_other_devices(self):
        traced = jax.jit(rj.allreduce).trace(jnp.ones(2))
        with self.assertRaisesRegex(
            ValueError, "for tpu: ronda.jax is for arrays on CPUs and on NVIDIA's GPUs"
        ):
            traced.lower(lowering_platforms=("tpu",))

    def test_a_barrier_in_a_program_for_a_gpu(self):
        traced = jax.jit(rj.barrier).trace(jnp.ones(2))
        with self.assertRaisesRegex(
            ValueError, r"barrier at errors_test.py:\d+: .* call barrier\(tree\) outside of jit"
        ):
            traced.lower(lowering_platforms=("cuda",))

    def test_value_that_is_no_optimizer(self):
        with self.assertRaisesRegex(ValueError, "float is not a GradientTransformation of Optax"):
            rj.DistributedOptimizer(0.1)


class OneRankTest(Case):
    """Rank 0 passes wrong arguments, and the others do not wait for it."""

    def fails_on_all(self, words, call, wrong, right):
        """Expects the error of `call` on all ranks, outside of jit."""
        with self.assertRaisesRegex((ValueError, ronda.RondaError), words):
            call(wrong if self.rank == 0 else right)
        self.assert_same(rj.allreduce(jnp.ones(2)), np.ones(2))  # the job goes on

    def test_arrays(self):
        words, wrong, right = "average of integers", jnp.arange(3), jnp.ones(3)
        self.fails_on_all(words, rj.allreduce, wrong, right)
        self.fails_on_all(words, lambda x: rj.allreduce({"a": x}, name="one"), wrong, right)
        group = lambda x: rj.allreduce([x, x], name="group", grouped=True)  # noqa: E731
        self.fails_on_all(words, group, wrong, right)
        words = "allgather: the array .* is a scalar"
        self.fails_on_all(words, lambda x: rj.allgather([x, x]), jnp.float32(1), jnp.ones(1))

    def test_options(self):
        words = "77 is not a valid ReduceOp"
        self.fails_on_all(words, lambda op: rj.allreduce(jnp.ones(2), op), 77, rj.Sum)
        self.fails_on_all(
            "could not convert",
            lambda factor: rj.allreduce(jnp.ones(2), name="two", prescale=factor),
            "twice",
            2,
        )

    def test_splits_of_a_tree(self):
        n = self.size
        exchange = lambda x: rj.alltoall({"a": x}, [1] * n, received_splits=[1] * n, name="s")  # noqa: E731
        self.fails_on_all("rows together", exchange, jnp.ones(n + 1), jnp.ones(n))

    def test_a_message(self):
        if self.size == 1:
            return
        words = "complex64|key<fry>"
        if self.rank == 0:
            with self.assertRaisesRegex(ValueError, words):
                rj.send(jax.random.key(0), 1, tag=7)
        elif self.rank == 1:
            with self.assertRaisesRegex(ronda.RondaError, words):
                rj.recv(jnp.ones(2), 0, tag=7)

    def test_a_program_in_which_the_call_has_a_name(self):
        program = jax.jit(lambda x: rj.allreduce(x, name="jitted"))
        words = "average of integers"
        with self.assertRaisesRegex((ValueError, jax.errors.JaxRuntimeError), words):
            program(jnp.arange(3) if self.rank == 0 else jnp.ones(3)).block_until_ready()


class MismatchTest(Case):
    def disagreement(self, *functions_of_ranks):
        """Yields the errors of a call in which rank 0 differs, outside of jit and under jit."""
        for wrap in (lambda f: f, jax.jit):
            function, *args = functions_of_ranks[self.rank != 0]
            with self.assertRaises((ronda.MismatchError, jax.errors.JaxRuntimeError)) as caught:
                jax.block_until_ready(wrap(function)(*args))
            error = rj.error_of(caught.exception)
            self.assertIsInstance(error, ronda.MismatchError)
            yield str(error), wrap is jax.jit

    def test_shapes_of_two_ranks(self):
        if self.size == 1:
            return
        reduce = lambda x: rj.allreduce(x, name="grads")  # noqa: E731
        for text, is_jit in self.disagreement((reduce, jnp.ones(3)), (reduce, jnp.ones(4))):
            self.assertRegex(text, r"tensor 'grads': rank \d .* says .*, rank \d .* says ")
            self.assertRegex(text, r"rank 0 [^,]*, pid \d+\) says shape \[3\]")
            self.assertRegex(text, r"rank [12] [^,]*, pid \d+\) says shape \[4\]")
            if is_jit:
                self.assertRegex(text, r"\[allreduce at errors_test.py:\d+\]")
        self.assert_same(reduce(jnp.ones(2)), np.ones(2))  # the job goes on

    def test_rows_that_a_rank_does_not_expect(self):
        if self.size == 1:
            return
        n = self.size
        sent = "have sent " + re.escape(str([1] * n))
        for wrong, words in (
            ([2] + [1] * (n - 2) + [0], sent + r" rows, but received_splits is \[2, .*0\]: pass"),
            ([1] * (n - 1) + [2], sent),
            ([0] * n, f"{sent}|more rows, but this rank's program expects 0: pass received_splits"),
        ):
            received = wrong if self.rank == 0 else [1] * n
            for wrap in (lambda f: f, jax.jit):
                program = wrap(lambda x: rj.alltoall(x, [1] * n, received_splits=received)[0])  # noqa: B023
                if self.rank > 0:
                    self.assert_same(program(jnp.ones(n)), np.ones(n))
                    continue
                with self.assertRaisesRegex(Exception, words) as caught:
                    jax.block_until_ready(program(jnp.ones(n)))
                self.assertIsInstance(rj.error_of(caught.exception), ronda.MismatchError)

    def test_a_group_on_one_rank_alone(self):
        if self.size == 1:
            return
        reduce = lambda grouped: lambda x: rj.allreduce([x], name="g", grouped=grouped)  # noqa: E731
        with self.assertRaisesRegex(
            jax.errors.JaxRuntimeError, r"'g\[0\]': rank . .* says group 'g\[0\]', .* group none"
        ):
            jax.block_until_ready(jax.jit(reduce(self.rank == 0))(jnp.ones(2)))

    def test_another_operation_at_the_same_place(self):
        if self.size == 1:
            return

        def step(x):
            return rj.allreduce(x) if self.rank == 0 else rj.broadcast(x)

        for text, is_jit in self.disagreement((step, jnp.ones(3)), (step, jnp.ones(3))):
            self.assertRegex(text, "allreduce.*broadcast|broadcast.*allreduce")
            if is_jit:
                where = "allreduce" if self.rank == 0 else "broadcast"
                self.assertRegex(
                    text, rf"'jit_step@errors_test.py:\d+/0'.*\[{where} at errors_test.py:\d+\]"
                )

    def test_rows_that_differ_under_jit(self):
        if self.size == 1:
            return
        gather = jax.jit(lambda x: rj.allgather(x, name="rows"))
        rows = 2 if self.rank == 0 else 3
        with self.assertRaisesRegex(jax.errors.JaxRuntimeError, "rows"):
            gather(numbers(self.rank, (rows, 2))).block_until_ready()

    def test_errors_of_others_have_no_error_of_ronda(self):
        self.assertIsNone(rj.error_of(ValueError("KeyError: x")))
        error = ronda.PeerFailedError("gone")
        self.assertIs(rj.error_of(error), error)
