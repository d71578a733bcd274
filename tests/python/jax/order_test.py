# SPDX-License-Identifier: Apache-2.0

"""Tests the order in which ranks run collectives, and the names by which collectives are
matched.
"""

import concurrent.futures
import re

import jax
import jax.export
import jax.numpy as jnp
import ronda.jax as rj
from jax._src.lib import xla_client  # there is no public name
from jax_cases import Case, numbers


def names_in(function, *args) -> "list[str]":
    """Returns the names of the arrays in the program of a function."""
    return re.findall(r'names = "([^"]*)"', jax.jit(function).lower(*args).as_text())


def calls_in(function, *args, platform) -> "list[str]":
    """Returns Ronda's calls in the program that JAX makes of a function for a platform."""
    text = jax.jit(function).trace(*args).lower(lowering_platforms=(platform,)).as_text()
    return [line for line in text.splitlines() if "@ronda_collective" in line]


class PlatformsTest(Case):
    def step(self, x):
        return rj.allreduce(x), rj.broadcast(x), rj.allgather(x), rj.reducescatter(x)

    def test_programs_for_gpus_make_the_same_calls(self):
        found = [calls_in(self.step, jnp.ones(6), platform=each) for each in ("cuda", "cpu")]
        self.assertEqual(len(found[0]), 4)
        self.assertEqual(*found)

    def test_the_handler_is_registered_for_gpus(self):
        # JAX keeps the handler's registration pending until a plugin for the platform is loaded.
        waiting = xla_client._custom_callback["CUDA"]
        self.assertIn("ronda_collective", [name for name, *_ in waiting])

    def test_results_take_the_place_of_arguments(self):
        # Each call returns its ticket in the memory of its ticket argument. A broadcast also
        # returns its array in the memory of its argument.
        found = calls_in(self.step, jnp.ones(6), platform="cpu")
        self.assertEqual([each.count("operand_index") for each in found], [1, 2, 1, 1])
        program = jax.jit(lambda x: (rj.broadcast(x), x))
        x = numbers(self.rank)
        self.assert_same(program(x), (numbers(0), numbers(self.rank)))
        self.assert_same(x, numbers(self.rank))


class OrderTest(Case):
    def total(self, shape):
        return sum(numbers(rank, shape) for rank in range(self.size))

    def run_in_different_orders(self, first, second):
        """Runs two programs on two threads of rank 0. The other ranks run the second one first."""
        x = numbers(self.rank)
        if self.rank == 0:
            with concurrent.futures.ThreadPoolExecutor(1) as thread:
                waiting = thread.submit(first, x)
                found = second(x)  # the other ranks only go on to the first once this has run
                waited = waiting.result()
        else:
            found = second(x).block_until_ready()
            waited = first(x)
        return waited, found

    def test_a_program_that_waits_on_a_thread_does_not_keep_others_from_running(self):
        first = jax.jit(lambda x: rj.allreduce(x, rj.Sum, name="first"))
        second = jax.jit(lambda x: rj.allreduce(x, rj.Sum, name="second"))
        found = self.run_in_different_orders(first, second)
        self.assert_same(found, (self.total((6, 2)),) * 2)

    def test_functions_of_the_same_name_run_on_two_threads(self):
        first = jax.jit(lambda x: rj.allreduce(x, rj.Sum))
        second = jax.jit(lambda x: rj.allreduce(x * 100, rj.Sum))
        found = self.run_in_different_orders(first, second)
        self.assert_same(found, (self.total((6, 2)), self.total((6, 2)) * 100))

    def test_ranks_may_make_a_call_at_different_lines_of_a_function(self):
        @jax.jit
        def step(x):
            if self.rank == 0:
                return rj.broadcast(x + 1)
            return rj.broadcast(x)

        self.assert_same(step(numbers(self.rank)), numbers(1))

    def test_independent_calls_of_a_program_run_in_its_order(self):
        # XLA may put the calls in any order. If two ranks ran the calls in different orders, they
        # would wait for each other forever.
        root = self.size - 1

        def step(x):
            return [
                rj.allgather(x),
                rj.reducescatter(x, rj.Sum),
                rj.broadcast(x, root),
                rj.barrier(x),
                rj.allreduce(jnp.sort(x, 0), rj.Sum),
                rj.alltoall(x),
                *[rj.allreduce(x * i, rj.Sum) for i in range(8)],
            ]

        for repeat in range(3):
            found = jax.jit(lambda x, repeat=repeat: step(x + repeat))(numbers(self.rank))
            expected = sum(numbers(rank) + repeat for rank in range(self.size))
            for i in range(8):
                self.assert_same(found[6 + i], expected * i)

    def test_programs_that_differ_around_the_calls(self):
        @jax.jit
        def step(x):
            late = x
            for _ in range(4 if self.rank == 0 else 0):
                late = jnp.sort(late[::-1], 0)
            return rj.allreduce(late.sum(), rj.Sum), rj.allreduce(x, rj.Sum)

        found = step(numbers(self.rank, (100_000,)))
        self.assert_same(found, (self.total((100_000,)).sum(), self.total((100_000,))), rtol=1e-3)

    def test_an_exported_program_runs(self):
        check = jax.export.DisabledSafetyCheck.custom_call("ronda_collective")
        program = jax.jit(lambda x: rj.allreduce(x, rj.Sum))
        exported = jax.export.export(program, disabled_checks=[check])(numbers(self.rank))
        self.assert_same(jax.jit(exported.call)(numbers(self.rank)), self.total((6, 2)))
        for effect in exported.unordered_effects:  # serialize() needs effects that it can make
            self.assertEqual(type(effect)(), effect)

    def test_names_are_positions_in_the_program(self):
        def train_step(x):
            y = rj.allreduce(x)
            return rj.allreduce({"w": y, "b": [x]}), rj.broadcast(x, name="mine")

        names = names_in(train_step, jnp.ones(2))
        place = f"jit_train_step@order_test.py:{train_step.__code__.co_firstlineno}"
        self.assertEqual(names[0], f"{place}/0")
        self.assertEqual(names[1].replace("\\0A", "\n"), f"{place}/1['b'][0]\n{place}/1['w']")
        self.assertEqual(names[2], "mine")
        self.assertEqual(names_in(train_step, jnp.ones(3)), names)

    def test_a_name_that_is_used_twice_is_told_apart(self):
        def step(x):
            return rj.allreduce(x, rj.Sum, name="twice"), rj.allreduce(x * 2, rj.Sum, name="twice")

        self.assertEqual(names_in(step, jnp.ones(2)), ["twice", "twice#2"])
        total = self.total((6, 2))
        self.assert_same(jax.jit(step)(numbers(self.rank)), (total, total * 2))

    def test_equal_calls_are_neither_merged_nor_removed(self):
        def step(x):
            rj.allreduce(x)
            return rj.allreduce(x) + rj.allreduce(x)

        compiled = jax.jit(step).lower(jnp.ones(2)).compile().as_text()
        self.assertEqual(compiled.count('custom_call_target="ronda_collective"'), 3)
