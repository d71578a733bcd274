# SPDX-License-Identifier: Apache-2.0

"""Tests whole programs: the example, and jobs that lose a rank."""

import os
import re
import subprocess
import sys
import unittest

import ronda_test


class ProgramTest(unittest.TestCase):
    def test_the_example(self):
        out = subprocess.run(
            [ronda_test.RONDARUN, "-np", "2", sys.executable, "examples/pytorch_mnist.py"]
            + ["--epochs", "1", "--fp16-allreduce"],
            capture_output=True,
            text=True,
            env=ronda_test.environment(),
        )
        self.assertEqual(out.returncode, 0, out.stderr)
        accuracy = re.search(r"epoch 1: accuracy (0\.\d+)", out.stdout)
        self.assertIsNotNone(accuracy, out.stdout)
        self.assertGreater(float(accuracy[1]), 0.8)

    def test_a_killed_rank_is_named_by_the_others(self):
        done = ronda_test.run(
            """
            import os, signal, time
            import torch
            import ronda.torch as hvd
            hvd.init()
            model = torch.nn.Linear(4, 4)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
            began = None
            try:
                for step in range(100):
                    if step == 20:
                        began = time.monotonic()
                        if hvd.rank() == 1:
                            os.kill(os.getpid(), signal.SIGKILL)
                    optimizer.zero_grad()
                    model(torch.ones(1, 4)).sum().backward()
                    optimizer.step()
            except hvd.HorovodInternalError as error:
                print(f"raised after {time.monotonic() - began:.3f} s: {error}", flush=True)
                raise SystemExit(3)
            """,
            ranks=2,
        )
        self.assertNotEqual(done.code, 0)
        raised = re.search(r"raised after ([\d.]+) s: (.*)", done.out)
        self.assertIsNotNone(raised, done.out + done.err)
        self.assertIn("rank 1", raised[2])
        self.assertLess(float(raised[1]), 1 if "CI" not in os.environ else 10)

    def test_gradients_that_one_rank_changes_are_refused_on_all(self):
        done = ronda_test.run(
            """
            import os
            import torch
            import ronda.torch as hvd
            hvd.init()
            model = torch.nn.Linear(4, 4)
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
            )
            try:
                for step in range(10):
                    optimizer.zero_grad()
                    model(torch.ones(1, 4)).sum().backward()
                    if step == 5 and hvd.rank() == 0:
                        model.weight.grad.mul_(2)
                    optimizer.step()
            except ValueError as error:
                print(f"step {step}: {error}", flush=True)
                hvd.barrier()
                os._exit(3)  # without a wait for gradients in flight
            """,
            ranks=2,
        )
        for step in (5, 6):
            self.assertIn(f"step {step}: the gradient of 'weight' was changed between", done.out)
            self.assertIn("on some ranks only", done.out)

    def test_two_horovods_in_one_program(self):
        """Runs a program that uses the modules of ronda.torch under the names horovod.torch.*."""
        done = ronda_test.run(
            """
            import sys
            import ronda.torch, ronda.torch.mpi_ops, ronda.torch.elastic
            sys.modules["horovod"] = type(sys)("horovod")
            for name in list(sys.modules):
                if name.startswith("ronda.torch"):
                    sys.modules[name.replace("ronda", "horovod", 1)] = sys.modules[name]
            sys.modules["horovod"].torch = ronda.torch
            import horovod.torch as hvd
            from horovod.torch.mpi_ops import allreduce, Sum
            from horovod.torch.compression import Compression
            from horovod.torch.elastic import TorchState
            import torch
            hvd.init()
            print(int(allreduce(torch.ones(1), op=Sum)), hvd.size())
            """
        )
        self.assertEqual((done.code, done.out), (0, "1 1\n"), done.err)


if __name__ == "__main__":
    unittest.main()
