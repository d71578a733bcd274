# SPDX-License-Identifier: Apache-2.0

"""Tests, on CPUs, that calls outside of jit can run as separate compiled programs, as they do on
GPUs.
"""

import concurrent.futures
import unittest.mock

import jax
import jax.numpy as jnp
import operations_test
import ronda
import ronda.jax as rj
from jax_cases import Case, numbers
from ronda._library import native
from ronda.jax import _eager


class _AsOnGpu(Case):
    def setUp(self):
        super().setUp()
        patch = unittest.mock.patch.object(_eager, "is_on_gpu", return_value=True)
        patch.start()
        self.addCleanup(patch.stop)


class OperationsTest(_AsOnGpu, operations_test.OperationsTest):
    def test_outside_of_jit_allgather_takes_different_numbers_of_rows(self):
        if self.size == 1:
            return
        rows = numbers(self.rank, (self.rank + 1, 2))
        with self.assertRaisesRegex(ronda.MismatchError, "ranks together have .* rows"):
            rj.allgather(rows)


class CallsTest(_AsOnGpu):
    def test_calls_without_names_meet_in_their_order(self):
        _eager.is_on_gpu.return_value = self.rank == 0  # the others run no program
        tree = {"x": numbers(self.rank), "y": numbers(self.rank, (3,))}
        found, rows = rj.allreduce(tree, rj.Sum), rj.allgather(tree)
        self.assert_same(found["y"], sum(numbers(rank, (3,)) for rank in range(self.size)))
        self.assertEqual(rows["x"].shape, (6 * self.size, 2))

    def test_groups_without_names_of_two_threads_do_not_meet(self):
        def reduce(shape):
            return rj.allreduce([numbers(self.rank, shape)], rj.Sum, grouped=True)[0]

        shapes = [(3,), (4,)]
        if self.rank == 0:
            with concurrent.futures.ThreadPoolExecutor(1) as thread:
                waiting = thread.submit(reduce, shapes[0])
                second = reduce(shapes[1])  # the others only reduce the first once this has run
                first = waiting.result()
        else:
            second = reduce(shapes[1])
            first = reduce(shapes[0])
        for found, shape in zip((first, second), shapes):
            self.assert_same(found, sum(numbers(rank, shape) for rank in range(self.size)))

    def test_errors_are_of_rondas_classes(self):
        if self.size == 1:
            return
        with self.assertRaisesRegex(
            ronda.MismatchError, r"says shape .*\[allreduce at compiled_calls_test.py:\d+\]"
        ):
            rj.allreduce(jnp.ones(3 if self.rank == 0 else 4), name="grads")

    def test_a_job_that_fails_while_the_gpu_works_gives_no_results(self):
        gone = ronda.PeerFailedError("rank 1 died")
        with unittest.mock.patch.object(native, "job_status", side_effect=gone):
            with self.assertRaisesRegex(ronda.PeerFailedError, "rank 1 died"):
                rj.allreduce(numbers(self.rank), rj.Sum)

    def test_without_jit(self):
        with jax.disable_jit():
            found = rj.allreduce(numbers(self.rank), rj.Sum)
        self.assert_same(found, sum(numbers(rank) for rank in range(self.size)))
