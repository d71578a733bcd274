# SPDX-License-Identifier: Apache-2.0

"""Compares training with Optax on several ranks with one process."""

import jax
import jax.numpy as jnp
import optax
import ronda.jax as rj
from jax_cases import Case

SHARE = 4  # samples per rank and step


def same_parameters():
    """Returns the parameters of a small network."""
    keys = jax.random.split(jax.random.PRNGKey(7), 2)
    return {
        "hidden": {"w": jax.random.normal(keys[0], (5, 8)) / 2, "b": jnp.zeros(8)},
        "out": jax.random.normal(keys[1], (8, 1)) / 2,
    }


def loss(params, x, y):
    hidden = jnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
    return ((hidden @ params["out"] - y) ** 2).mean()


def train(optimizer, params, batches):
    """Makes a step for each batch."""

    @jax.jit
    def step(params, state, x, y):
        updates, state = optimizer.update(jax.grad(loss)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for x, y in batches:
        params, state = step(params, state, x, y)
    return params


class OptimizerTest(Case):
    def batches(self, steps=6):
        """Returns this rank's batches, and the batches of all ranks together."""
        keys = jax.random.split(jax.random.PRNGKey(1), steps)
        every = [jax.random.normal(key, (self.size * SHARE, 5)) for key in keys]
        labeled = [(x, jnp.sin(x.sum(1, keepdims=True))) for x in every]
        part = slice(self.rank * SHARE, (self.rank + 1) * SHARE)
        return [(x[part], y[part]) for x, y in labeled], labeled

    def test_learns_as_one_process(self):
        own, every = self.batches()
        momentum = optax.sgd(0.1, momentum=0.9)
        found = train(rj.DistributedOptimizer(momentum), same_parameters(), own)
        expected = train(momentum, same_parameters(), every)
        self.assert_same(found, expected, rtol=1e-4, atol=1e-5)
        self.assertGreater(jnp.abs(expected["out"] - same_parameters()["out"]).max(), 0.01)
        for other in rj.allgather_object(jax.device_get(found)):
            self.assert_same(other, found, rtol=0)

    def test_gradients_in_16_bits_are_close(self):
        own, every = self.batches()
        short = rj.DistributedOptimizer(
            optax.sgd(0.1), compression=rj.Compression.bf16, error_feedback=True, name="short"
        )
        found = train(short, same_parameters(), own)
        self.assert_same(
            found, train(optax.sgd(0.1), same_parameters(), every), atol=2e-2, rtol=2e-2
        )

    def test_works_inside_other_transformations(self):
        own, every = self.batches()
        chain = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(0.01))
        ours = optax.MultiSteps(rj.DistributedOptimizer(chain, name="chain"), 2)
        found = train(ours, same_parameters(), own)
        expected = train(optax.MultiSteps(chain, 2), same_parameters(), every)
        self.assert_same(found, expected, rtol=1e-3, atol=1e-4)

    def test_sums_instead_of_averages(self):
        optimizer = rj.DistributedOptimizer(optax.sgd(1.0), op=rj.Sum, postscale=0.5, name="sum")
        self.assertIsInstance(optimizer, type(optax.sgd(1.0)))
        updates, _ = optimizer.update({"w": jnp.ones(2)}, optimizer.init({"w": jnp.ones(2)}))
        self.assert_same(updates, {"w": jnp.full(2, -0.5 * self.size)})

    def test_ranks_may_have_different_numbers_of_batches(self):
        own, every = self.batches(self.size)
        optimizer = rj.DistributedOptimizer(optax.sgd(0.1), name="uneven")
        found = train(optimizer, same_parameters(), own[: self.rank + 1])
        found = rj.broadcast_parameters(found, rj.join())
        # Only ranks k and higher take part in step k, and the average is over these ranks.
        rest = [(x[k * SHARE :], y[k * SHARE :]) for k, (x, y) in enumerate(every)]
        expected = train(optax.sgd(0.1), same_parameters(), rest)
        self.assert_same(found, expected, rtol=1e-4, atol=1e-5)

    def test_parameters_become_those_of_the_root(self):
        root = self.size - 1
        own = jax.tree_util.tree_map(lambda each: each + self.rank, same_parameters())
        found = rj.broadcast_parameters(own, root)
        self.assert_same(found, jax.tree_util.tree_map(lambda each: each + root, same_parameters()))
        state = optax.adam(0.1).init(own)
        self.assert_same(rj.broadcast_parameters(state, root), state)
