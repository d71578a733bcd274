# SPDX-License-Identifier: Apache-2.0

"""Tests how torch.distributed programs start as Ronda jobs, and how they fail."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest
from concurrent import futures
from unittest import mock

import torch.distributed as dist
from ronda._ports import free_port
from ronda.torch.c10d import _rendezvous
from ronda_test import RONDARUN, environment, finish, program, run

# Prints one line on each rank. The line has the rank, and the sum of rank + 1 over all ranks.
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
# A program that does not mention Ronda.
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


# Each rank starts a copy of itself, as Lightning does without a LOCAL_RANK, and waits for it.
DOUBLED = """
    import os
    import subprocess
    import sys
    import torch.distributed as dist
    import ronda.torch.c10d

    is_copy = "COPY" in os.environ
    if not is_copy:
        copy = subprocess.Popen(
            [sys.executable] + sys.argv,
            env={**os.environ, "COPY": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
    try:
        dist.init_process_group("ronda")
        place = f"rank {dist.get_rank()}"
    except RuntimeError as error:
        place = f"refused: {error}"
    print(place + ";", copy.communicate()[0].strip() if not is_copy else "", flush=True)
"""
# In torchrun's first round, rank 1 fails after both ranks have connected.
RESTARTED = """
    import os
    import torch
    import torch.distributed as dist
    import ronda.torch.c10d

    dist.init_process_group("ronda")
    total = torch.ones(1)
    dist.all_reduce(total)
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    if attempt == "0":
        if dist.get_rank() == 1:
            raise SystemExit(7)
        dist.barrier()
    print(f"round {attempt}: {int(total)}")
"""
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", "-x", "PYTHONPATH")


def torchrun(*options: str) -> tuple[str, ...]:
    command = (sys.executable, "-m", "torch.distributed.run", f"--master_port={free_port()}")
    # These options are needed because torch 1.13's torchrun does not start on Python 3.11 with its
    # defaults.
    return (*command, "--redirects=1", "--tee=1", "--nproc_per_node=2", *options)


def launch(*command: str, env: dict[str, str] | None = None, timeout: float = 120):
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), **(env or {})},
        start_new_session=True,
    )
    return finish(process, timeout)


class LauncherTest(unittest.TestCase):
    def check(self, finished, ranks: int = 2) -> None:
        self.assertEqual(finished.code, 0, finished.err)
        for rank in range(ranks):
            total = ranks * (ranks + 1) // 2
            self.assertIn(f"rank {rank} of {ranks}: {total}, ronda", finished.out)

    def test_groups_again_and_again(self):
        """The program also uses Horovod's API, whose shutdown() does not end the groups' job."""
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

    def test_a_group_beside_a_group_of_all_ranks_over_gloo(self):
        source = """
            import os
            import ronda
            import torch
            import torch.distributed as dist
            import ronda.torch.c10d

            rank, path = int(os.environ["RANK"]), "STORE"
            dist.init_process_group("gloo", f"file://{path}", rank=rank, world_size=2)
            try:
                dist.new_group([0, 1], backend="ronda")
            except ronda.NotInitializedError as error:
                print("refused:", error)
            ronda.init()
            group = dist.new_group([0, 1], backend="ronda")
            total = torch.ones(1)
            dist.all_reduce(total, group=group)
            dist.all_reduce(total)
            print(f"total {int(total)}")
        """
        with tempfile.TemporaryDirectory() as folder:
            finished = run(source.replace("STORE", f"{folder}/store"), 2)
        self.assertEqual(finished.code, 0, finished.err)
        self.assertEqual(finished.out.count("or call ronda.init() on all ranks"), 2, finished.out)
        self.assertEqual(finished.out.count("total 4"), 2, finished.out)

    def test_no_launcher(self):
        arguments = ", rank=0, world_size=1, store=dist.HashStore()"
        self.check(run(PROGRAM.replace("ARGUMENTS", arguments)), 1)

    def test_torchrun(self):
        path = program(PROGRAM.replace("ARGUMENTS", ""))
        self.check(launch(*torchrun(), path))

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun here")
    def test_mpirun(self):
        path = program(PROGRAM.replace("ARGUMENTS", ""))
        self.check(launch(*MPIRUN, sys.executable, path))

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun here")
    def test_a_program_that_copies_mpiruns_place_to_torchruns_names(self):
        copy = """
            import os

            for own, mpiruns in {"RANK": "RANK", "WORLD_SIZE": "SIZE"}.items():
                os.environ[own] = os.environ[f"OMPI_COMM_WORLD_{mpiruns}"]
        """
        source = textwrap.dedent(copy) + textwrap.dedent(PROGRAM.replace("ARGUMENTS", ""))
        self.check(launch(*MPIRUN, sys.executable, program(source)))

    def test_a_program_that_names_other_backends(self):
        command = (str(RONDARUN), "-np", "2", sys.executable, "-m", "ronda.torch.c10d")
        self.check(launch(*command, program(FOREIGN), env={"RONDA_REPLACE_BACKEND": "gloo,nccl"}))

    def test_usage(self):
        finished = launch(sys.executable, "-m", "ronda.torch.c10d")
        self.assertEqual(finished.code, 1)
        self.assertIn("usage: python -m ronda.torch.c10d", finished.err)


class PlaceTest(unittest.TestCase):
    """A program gets its rank from variables or arguments before init_process_group()."""

    def check_known(self, finished) -> None:
        self.assertEqual(finished.code, 0, finished.err)
        for rank in range(2):
            self.assertIn(f"rank {rank} of 2, here {rank} of 2, host 0", finished.out)

    KNOWN = """
        import os

        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
        print("rank {} of {}, here {} of {}, host {}".format(*(os.environ[name] for name in names)))
        assert os.environ["HOROVOD_RANK"] == os.environ["RANK"]
        assert "MASTER_PORT" in os.environ
    """

    def test_rondarun(self):
        self.check_known(run(self.KNOWN, 2))

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun here")
    def test_mpirun_below_rondarun(self):
        self.check_known(run(self.KNOWN, 2, ["--mpi"]))

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun here")
    def test_mpirun_with_the_module(self):
        command = (sys.executable, "-m", "ronda.torch.c10d", program(self.KNOWN))
        self.check_known(launch(*MPIRUN, *command))

    def test_a_place_that_the_program_gives_is_used_or_refused(self):
        right = ", rank=int(os.environ['RANK']), world_size=2"
        source = "    import os\n" + PROGRAM.lstrip("\n")
        finished = run(source.replace("ARGUMENTS", right), 2, timeout=120)
        self.assertEqual(finished.code, 0, finished.err)
        self.assertIn("rank 1 of 2: 3", finished.out)
        for wrong in (
            ", rank=1 - int(os.environ['RANK']), world_size=2",
            ", rank=0, world_size=1",
        ):
            finished = run(source.replace("ARGUMENTS", wrong), 2, timeout=120)
            self.assertNotEqual(finished.code, 0, wrong)
            self.assertRegex(finished.err, r"but it is rank \d of 2 in Ronda's job")

    def test_the_argument_local_rank(self):
        starts = {"--local_rank": (), "--local-rank": ("-m", "ronda.torch.c10d")}
        for spelling, module in starts.items():
            source = f"""
                import argparse
                import torch.distributed as dist
                import ronda.torch.c10d
                flags = argparse.ArgumentParser()
                flags.add_argument("--lr", type=float)
                flags.add_argument("{spelling}", default=-1, type=int)
                print("local rank", flags.parse_args().local_rank)
            """
            command = (str(RONDARUN), "-np", "2", sys.executable, *module, program(source))
            finished = launch(*command, "--lr", "1")
            for rank in range(2):
                self.assertIn(f"[{rank}]<stdout>: local rank {rank}", finished.out)
            finished = launch(*command, f"{spelling}=5")
            self.assertEqual(finished.out.count("local rank 5"), 2, "the user's is kept")


class CopyTest(unittest.TestCase):
    """A rank starts a copy of its program before it joins the job."""

    def check(self, finished) -> None:
        self.assertEqual(finished.code, 0, finished.err)
        for rank in range(2):
            # Either the rank or its copy joins first. The second process is rejected.
            self.assertEqual(finished.out.count(f"rank {rank};"), 1, finished.out)
            self.assertRegex(
                finished.out,
                rf"refused: (rank {rank} of this job is process|"
                rf"this process \(\d+\) was started by rank {rank} )",
            )

    def test_rondarun(self):
        self.check(run(DOUBLED, 2, timeout=120))

    def test_torchrun(self):
        self.check(launch(*torchrun(), program(DOUBLED)))

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun here")
    def test_mpirun(self):
        self.check(launch(*MPIRUN, sys.executable, program(DOUBLED)))


class RestartTest(unittest.TestCase):
    def test_torchrun_starts_the_ranks_again(self):
        finished = launch(*torchrun("--max_restarts=1"), program(RESTARTED), timeout=300)
        self.assertEqual(finished.code, 0, finished.err)
        self.assertEqual(finished.out.count("round 1: 2"), 2, finished.out)

    @mock.patch.object(_rendezvous, "_meetings", itertools.repeat(0))  # of several ranks here
    def test_a_round_does_not_read_the_key_of_the_round_before(self):
        server = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)

        def meet(rank: int) -> dict[str, object]:
            store = dist.TCPStore("127.0.0.1", server.port, None, False, wait_for_workers=False)
            return _rendezvous.meeting_point(store, _rendezvous.next_key(2), rank, 2, "127.0.0.1")

        points = []
        for attempt in range(2):
            with (
                mock.patch.dict(os.environ, TORCHELASTIC_RESTART_COUNT=str(attempt)),
                futures.ThreadPoolExecutor() as pool,
            ):
                late = pool.submit(meet, 1)  # waits for rank 0's message
                points.append(meet(0))
                self.assertEqual(late.result(60), points[-1])
        self.assertNotEqual(points[0], points[1])

    def test_one_living_process_publishes_as_rank_0(self):
        store = dist.HashStore()
        store.set("alive", json.dumps([socket.gethostname(), os.getppid()]))
        with self.assertRaisesRegex(RuntimeError, f"rank 0 of this job is process {os.getppid()}"):
            _rendezvous._claim_publication(store, "alive")
        gone = subprocess.Popen(["true"])
        gone.wait()
        store.set("gone", json.dumps([socket.gethostname(), gone.pid]))
        _rendezvous._claim_publication(store, "gone")
        for _ in range(2):
            _rendezvous._claim_publication(store, "own")
