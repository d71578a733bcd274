"""How torch.distributed programs become jobs of Ronda: launchers, replaced backends, failures."""

from __future__ import annotations

import shutil
import subprocess
import sys
import unittest

from ronda._ports import free_port
from ronda_test import RONDARUN, environment, finish, program, run

# Prints one line on each rank: place and sum of the ranks' numbers from 1.
SUM = """
    total = torch.ones(3) * (dist.get_rank() + 1)
    dist.all_reduce(total)
    place = f"rank {dist.get_rank()} of {dist.get_world_size()}"
    print(f"{place}: {int(total[0])}, {dist.get_backend()}")
    dist.destroy_process_group()
"""
PROGRAM = (
    """
    import torch
    import torch.distributed as dist
    import ronda.torch.c10d
    dist.init_process_group("ronda"ARGUMENTS)
"""
    + SUM
)
# A program that knows nothing of Ronda.
FOREIGN = (
    """
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    pair = dist.new_group([0, 1], backend="nccl")
    dist.barrier(pair)
"""
    + SUM
)


def launch(*command: str, env: dict[str, str] | None = None):
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), **(env or {})},
        start_new_session=True,
    )
    return finish(process)


class LauncherTest(unittest.TestCase):
    def check(self, finished, ranks: int = 2) -> None:
        self.assertEqual(finished.code, 0, finished.err)
        for rank in range(ranks):
            total = ranks * (ranks + 1) // 2
            self.assertIn(f"rank {rank} of {ranks}: {total}, ronda", finished.out)

    def test_groups_again_and_again(self):
        """Beside Horovod's API, whose shutdown() leaves the job to the groups."""
        source = """
            import torch
            import torch.distributed as dist
            import ronda.torch as hvd
            import ronda.torch.c10d

            for _ in range(3):
                hvd.init()
                for _ in range(2):
                    dist.init_process_group("ronda")
                    total = torch.ones(1)
                    dist.all_reduce(total, group=dist.new_group([0, 1]))
                    print(f"{int(total)} {int(hvd.allreduce(total, op=hvd.Sum))}")
                    dist.destroy_process_group()
                hvd.shutdown()
        """
        finished = run(source, 2)
        self.assertEqual(finished.code, 0, finished.err)
        self.assertEqual(finished.out.count("2 4"), 12, finished.out)

    def test_no_launcher(self):
        arguments = ", rank=0, world_size=1, store=dist.HashStore()"
        self.check(run(PROGRAM.replace("ARGUMENTS", arguments)), 1)

    def test_torchrun(self):
        path = program(PROGRAM.replace("ARGUMENTS", ""))
        torchrun = (sys.executable, "-m", "torch.distributed.run", f"--master_port={free_port()}")
        # By its default torch 1.13's does not start on Python 3.11.
        torchrun += ("--redirects=1", "--tee=1")
        self.check(launch(*torchrun, "--nproc_per_node=2", path))

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun here")
    def test_mpirun(self):
        path = program(PROGRAM.replace("ARGUMENTS", ""))
        mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2")
        self.check(launch(*mpirun, sys.executable, path))

    def test_a_program_that_names_other_backends(self):
        command = (str(RONDARUN), "-np", "2", sys.executable, "-m", "ronda.torch.c10d")
        self.check(launch(*command, program(FOREIGN), env={"RONDA_REPLACE_BACKEND": "gloo,nccl"}))

    def test_usage(self):
        finished = launch(sys.executable, "-m", "ronda.torch.c10d")
        self.assertEqual(finished.code, 1)
        self.assertIn("usage: python -m ronda.torch.c10d", finished.err)
