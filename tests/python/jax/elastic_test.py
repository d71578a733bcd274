# SPDX-License-Identifier: Apache-2.0

"""Tests JaxState in a rondarun job in which a rank dies in a compiled program."""

import ast
import os
import re
import tempfile
import unittest

import ronda_test

# Each step adds 1 to every number of the state, however many members the job has. Rank 1 dies once,
# in the compiled program of the third step. The job ends when it has all three members again.
PROGRAM = """
    import os, pathlib, signal
    import jax, jax.numpy as jnp, numpy as np
    import ronda.jax as rj
    jax.config.update("jax_platforms", "cpu")
    rj.init()
    has_died = pathlib.Path(os.environ["FOLDER"], "died")
    attempts = []

    def die():
        if rj.rank() == 1 and not has_died.exists():
            has_died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    @jax.jit
    def step(params, number):
        jax.lax.cond(number == 2, lambda: jax.debug.callback(die), lambda: None)
        ones = rj.allreduce(jax.tree_util.tree_map(jnp.ones_like, params), name="ones")
        members = rj.allgather(jnp.ones(1))  # its shape is that of the members
        return jax.tree_util.tree_map(lambda p, one: p + one, params, ones), members.shape[0]

    @rj.elastic.run
    def train(state):
        attempts.append((rj.size(), state.step))
        while state.step < 5 or rj.size() < 3:
            params, members = step(state.params, state.step)
            assert members == rj.size(), (members, rj.size())
            if state.step < 5:
                state.params = params
                state.key, _ = jax.random.split(state.key)
                state.counts += 1
                state.step += 1
            if state.step != 2:  # the step before the last breath is lost
                state.commit()

    # A rank that replaces the dead one begins with different numbers.
    begin = 0 if not has_died.exists() else 100
    params = {"w": jnp.full((2,), begin, "bfloat16"), "b": jnp.full((1,), begin, "float32")}
    state = rj.elastic.JaxState(
        params=params, key=jax.random.key(begin), counts=np.full(1, begin), step=0
    )
    train(state)
    key = jax.random.key(0)
    for _ in range(5):
        key, _ = jax.random.split(key)
    same = np.array_equal(jax.random.key_data(key), jax.random.key_data(state.key))
    found = jax.tree_util.tree_map(lambda x: x.astype("float32").tolist(), state.params)
    dtypes = sorted(str(x.dtype) for x in jax.tree_util.tree_leaves(state.params))
    result = {"rank": rj.rank(), "new": begin == 100, "params": found, "dtypes": dtypes}
    result |= {"same": same, "counts": state.counts.tolist(), "attempts": attempts}
    print(f"result {result}", flush=True)
    rj.shutdown()
"""


class ElasticTest(unittest.TestCase):
    def test_survivors_go_on_from_the_last_commit_and_a_new_rank_gets_it(self):
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        done = ronda_test.run(PROGRAM, 3, ["--min-np", "2"], {"FOLDER": folder})
        found = [ast.literal_eval(each) for each in re.findall(r"result (\{.*\})", done.out)]
        self.assertEqual(sorted(each["rank"] for each in found), [0, 1, 2], done)
        self.assertEqual(sum(each["new"] for each in found), 1, done)
        for each in found:
            self.assertEqual(each["params"], {"w": [5.0, 5.0], "b": [5.0]})
            self.assertEqual(each["dtypes"], ["bfloat16", "float32"])
            self.assertEqual((each["same"], each["counts"]), (True, [5]))
        for each in found:
            if not each["new"]:
                self.assertEqual(each["attempts"][0], (3, 0))
                # Of the steps 0, 1 and 2, only step 0 is committed.
                self.assertEqual({step for _, step in each["attempts"][1:2]}, {1}, done)
