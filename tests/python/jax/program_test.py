# SPDX-License-Identifier: Apache-2.0

"""Tests the example, and programs with failing ranks or without Ronda's settings."""

import re
import subprocess
import sys
import unittest

import ronda_test

# A rank stops in the fourth step, inside the compiled program.
FAILING = """
    import os, signal, time
    import jax, jax.numpy as jnp
    import ronda.jax as rj
    jax.config.update("jax_platforms", "cpu")
    rj.init()

    def fail(step):
        if rj.rank() == 1 and step == 3:
            {failure}

    @jax.jit
    def step(i, x):
        jax.debug.callback(fail, i)
        return rj.allreduce(x, rj.Sum)

    x = jnp.ones(4)
    begin = time.monotonic()
    try:
        for i in range(1000):
            begin = time.monotonic()
            x = step(i, x / 2).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        seconds = time.monotonic() - begin
        name = type(rj.error_of(error)).__name__
        print(f"{{name}} after {{seconds:.1f}} s: {{error}}", flush=True)
        raise
"""


class ExampleTest(unittest.TestCase):
    def test_two_ranks_learn_the_digits(self):
        done = subprocess.run(
            [ronda_test.RONDARUN, "-np", "2", sys.executable, "examples/jax_mnist.py"],
            capture_output=True,
            text=True,
            env=ronda_test.environment(),
        )
        found = re.findall(r"epoch \d+: accuracy (0\.\d+)", done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertGreaterEqual(float(found[-1]), 0.97, done.stdout)


class FailureTest(unittest.TestCase):
    def test_a_rank_that_is_killed_inside_of_a_program(self):
        done = ronda_test.run(
            FAILING.format(failure="os.kill(os.getpid(), signal.SIGKILL)"), ranks=3
        )
        for rank in (0, 2):
            line = re.search(rf"\[{rank}\]<stdout>: PeerFailedError after (\S+) s: (.*)", done.out)
            self.assertIsNotNone(line, done)
            self.assertLess(float(line[1]), 10)
            self.assertRegex(
                line[2], r"rank 1 \(host .*, pid .*\) died.*\[allreduce at program.py:\d+\]"
            )
        self.assertRegex(done.err, r"rondarun: rank 1 .* was killed by signal 9")

    def test_a_rank_that_an_exception_ends_does_not_wait_for_its_programs(self):
        done = ronda_test.run(
            """
            import threading
            import jax, jax.numpy as jnp
            import ronda.jax as rj
            jax.config.update("jax_platforms", "cpu")
            rj.init()
            step = jax.jit(lambda x, name: rj.allreduce(x, name=name), static_argnums=1)
            if rj.rank() == 1:
                threading.Thread(target=step, args=(jnp.ones(2), "alone"), daemon=True).start()
                raise ValueError("out of data")
            step(jnp.ones(2), "other")
            """,
            ranks=2,
            env={"RONDA_STALL_DEADLINE": "200s"},
            timeout=120,
        )
        self.assertIn("PeerFailedError", done.err)
        self.assertIn("ValueError: out of data", done.err)

    def test_traces_that_differ_end_at_the_deadline_with_the_lines(self):
        done = ronda_test.run(
            """
            import jax, jax.numpy as jnp
            import ronda.jax as rj
            jax.config.update("jax_platforms", "cpu")
            rj.init()

            @jax.jit
            def step(x):
                if rj.rank() == 0:
                    x = rj.allreduce(x)
                    x = rj.allreduce(x, name="mine")
                else:
                    x = rj.allreduce(x)
                    x = rj.allreduce(x, name="yours")
                return x

            step(jnp.ones(2))
            """,
            ranks=2,
            env={"RONDA_STALL_DEADLINE": "3s", "RONDA_STALL_WARNING": "1s"},
        )
        self.assertRegex(
            done.err, r"DeadlineError: tensor '(mine|yours)' .*\[allreduce at program.py:1[14]\]"
        )
        self.assertRegex(done.err, "submitted '(mine|yours)' instead")


class SetUpTest(unittest.TestCase):
    def run_alone(self, lines, **env):
        head = "import jax, jax.numpy as jnp\nimport ronda.jax as rj\n"
        return ronda_test.run(head + lines, env={"JAX_PLATFORMS": "cpu", **env})

    def test_calls_before_init_say_so(self):
        for call in ("rj.allreduce(jnp.ones(2))", "jax.jit(rj.allgather)(jnp.ones(2))"):
            done = self.run_alone(call)
            self.assertRegex(
                done.err, r"NotInitializedError: all\w+: call ronda.jax.init\(\) first"
            )

    def test_several_devices_in_a_process_are_refused(self):
        done = self.run_alone(
            """
import ronda
from jax.sharding import Mesh, NamedSharding, PartitionSpec
rj.init()
x = jax.device_put(jnp.ones(4), NamedSharding(Mesh(jax.devices(), "x"), PartitionSpec("x")))
for call in (rj.allreduce, jax.jit(rj.allreduce)):
    try:
        call(x)
    except ronda.InvalidArgumentError as error:
        print(error)
""",
            XLA_FLAGS="--xla_force_host_platform_device_count=2",
        )
        self.assertRegex(done.out, r"an array is on .*0, .*1: ronda.jax is for arrays on one CPU")
        self.assertRegex(done.out, "compiled for 2 devices: a rank of ronda.jax has one device")

    def test_importing_ronda_does_not_import_jax(self):
        done = ronda_test.run("import sys, ronda\nprint('jax' in sys.modules)\n")
        self.assertEqual(done.out, "False\n")
