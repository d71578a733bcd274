# SPDX-License-Identifier: Apache-2.0

"""Compares grad, vmap, scan, cond and remat with one process that has the data of all ranks."""

import jax
import jax.numpy as jnp
import numpy as np
import ronda.jax as rj
from jax_cases import Case, both, numbers


class TransformsTest(Case):
    def every(self, shape=(6, 2)):
        return jnp.stack([numbers(rank, shape) for rank in range(self.size)])

    def check_gradient(self, operation, alone, shape=(6, 2)):
        """Sums a loss over all ranks, and compares the gradient of the sum.

        Args:
            operation: what each rank runs on its own array.
            alone: takes the arrays of all ranks, and returns the results of all ranks.
        """
        weights = self.every(shape)

        def loss(x):
            found = operation(x)
            return (jnp.sin(found) * (1 + self.rank)).sum()

        def loss_alone(x):
            return sum((jnp.sin(each) * (1 + rank)).sum() for rank, each in enumerate(alone(x)))

        expected = jax.grad(loss_alone)(weights)[self.rank]
        for found in both(jax.grad(loss), weights[self.rank]):
            self.assert_same(found, expected, rtol=1e-4, atol=1e-5)
        # In forward mode, the tangents of all ranks together form the direction of the derivative.
        _, found = jax.jvp(operation, (weights[self.rank],), (weights[self.rank],))
        _, others = jax.jvp(alone, (weights,), (weights,))
        self.assert_same(found, others[self.rank], rtol=1e-4, atol=1e-5)

    def test_gradient_of_allreduce(self):
        n = self.size
        self.check_gradient(lambda x: rj.allreduce(x, rj.Sum), lambda x: [x.sum(0)] * n)
        self.check_gradient(
            lambda x: rj.allreduce(x, rj.Average, prescale=2, name="g"),
            lambda x: [2 * x.mean(0)] * n,
        )

    def test_gradient_of_complex_numbers(self):
        weights = self.every() * (1 - 2j) + 3j

        def energy(total):
            return jnp.sin(total.real * 0.1).sum() + (total.imag**2 * total.real).sum()

        def alone(x):
            return self.size * energy(x.sum(0))

        expected = jax.grad(alone)(weights)[self.rank]
        for found in both(jax.grad(lambda x: energy(rj.allreduce(x, rj.Sum))), weights[self.rank]):
            np.testing.assert_allclose(found, expected, rtol=1e-4)

    def test_gradient_of_broadcast(self):
        root = self.size - 1
        self.check_gradient(lambda x: rj.broadcast(x, root), lambda x: [x[root]] * self.size)

    def test_gradient_of_exchanges(self):
        n = self.size
        self.check_gradient(rj.allgather, lambda x: [jnp.concatenate(list(x))] * n)
        self.check_gradient(
            rj.alltoall,
            lambda x: list(x.reshape(n, n, 6 // n, 2).swapaxes(0, 1).reshape(n, 6, 2)),
        )

    def test_gradient_of_uneven_alltoall(self):
        # A rank sends one row to each rank, and all remaining rows to the last rank.
        n = self.size
        last = 6 - (n - 1)

        def operation(x):
            received = [last] * n if self.rank == n - 1 else [1] * n
            return rj.alltoall(x, [1] * (n - 1) + [last], received_splits=received)[0]

        def alone(x):
            shares = [x[:, i : i + 1].reshape(n, 2) for i in range(n - 1)]
            return [*shares, x[:, n - 1 :].reshape(n * last, 2)]

        self.check_gradient(operation, alone)

    def test_gradient_of_reducescatter(self):
        n = self.size
        for rows in (6, 7):
            self.check_gradient(
                lambda x: rj.reducescatter(x, rj.Average),
                lambda x: jnp.array_split(x.mean(0), n),
                (rows, 2),
            )

    def test_a_second_derivative(self):
        def loss(x):
            return (rj.allreduce(x, rj.Sum) ** 3).sum()

        x = jnp.float32(self.rank + 1)
        total = sum(range(1, self.size + 1))
        for found in both(jax.grad(jax.grad(loss)), x):
            self.assert_same(found, 6 * total * self.size**2)

    def test_integers_in_a_tree_have_no_gradient(self):
        def loss(x):
            found = rj.allreduce({"x": x, "n": jnp.arange(2)}, rj.Sum)
            return found["x"].sum() * found["n"].sum()

        for found in both(jax.grad(loss), jnp.ones(3)):
            self.assert_same(found, np.full(3, float(self.size**2)))

    def test_a_maximum_has_no_gradient(self):
        for gradient in (jax.grad, lambda f: jax.jit(jax.grad(f))):
            with self.assertRaisesRegex(ValueError, r"allreduce with MAX at transforms_test.py:"):
                gradient(lambda x: rj.allreduce(x, rj.Max).sum())(jnp.ones(2))

    def test_vmap_takes_the_batch_along(self):
        own, every = numbers(self.rank, (6, 4)), [numbers(r, (6, 4)) for r in range(self.size)]
        for axis in (0, 1):
            for found in both(jax.vmap(lambda x: rj.allreduce(x, rj.Sum), axis), own):
                self.assert_same(found, np.moveaxis(np.asarray(sum(every)), axis, 0))
        for found in both(jax.vmap(rj.allgather, 1, 1), own):
            self.assert_same(found, np.concatenate(every))
        for found in both(jax.vmap(lambda x: rj.reducescatter(x, rj.Sum), 1, 1), own):
            self.assert_same(found, np.split(np.asarray(sum(every)), self.size)[self.rank])

    def test_vmap_leaves_other_arrays_alone(self):
        def step(x, y):
            return rj.allreduce((x, y), rj.Sum)

        found = jax.jit(jax.vmap(step, (0, None)))(jnp.ones((3, 2)), jnp.ones(4))
        self.assert_same(found, (np.full((3, 2), self.size), np.full((3, 4), self.size)))

    def test_scan_and_cond(self):
        def step(carry, scale):
            carry = jax.lax.cond(
                scale > 1, lambda c: rj.allreduce(c * scale, rj.Sum), lambda c: c + 1, carry
            )
            return rj.allreduce(carry), carry.sum()

        def alone(every):
            for scale in (1.0, 2.0, 3.0):
                total = sum(each * scale for each in every)
                every = [total if scale > 1 else each + 1 for each in every]
                every = [sum(every) / self.size] * self.size
            return every[0]

        scales = jnp.array([1.0, 2.0, 3.0])
        found, _ = jax.jit(lambda x: jax.lax.scan(step, x, scales))(numbers(self.rank))
        self.assert_same(found, alone([numbers(rank) for rank in range(self.size)]))

    def test_a_gradient_through_scan_and_remat(self):
        @jax.checkpoint
        def layer(x, w):
            return jnp.tanh(rj.allreduce(x * w)), None

        def loss(w):
            return jax.lax.scan(layer, jnp.ones(2), w)[0].sum()

        def alone(w):
            x = jnp.ones((self.size, 2))
            for i in range(3):
                x = jnp.tanh(jnp.broadcast_to((x * w[:, i]).mean(0), x.shape))
            return x.sum()

        every = jnp.stack([numbers(rank, (3, 2)) / 4 for rank in range(self.size)])
        for found in both(jax.grad(loss), every[self.rank]):
            self.assert_same(found, jax.grad(alone)(every)[self.rank], rtol=1e-4, atol=1e-6)

    def test_a_result_that_one_rank_uses_is_computed_by_all(self):
        @jax.jit
        def step(x):
            total = rj.allreduce(x, rj.Sum)
            return total if self.rank == 0 else x

        expected = sum(map(numbers, range(self.size))) if self.rank == 0 else numbers(self.rank)
        self.assert_same(step(numbers(self.rank)), expected)
