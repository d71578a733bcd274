# SPDX-License-Identifier: Apache-2.0

"""Tests that python -m ronda.launch runs programs for torch.distributed.launch unchanged."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest

from ronda import _local_rank, launch
from ronda_test import RONDARUN, environment, finish, program

ASKS = """
    import argparse
    import os

    flags = argparse.ArgumentParser()
    flags.add_argument({names}, type=int, default=-1)
    flags.add_argument("--lr", type=float)
    given = flags.parse_args()
    print(f"rank {{os.environ['RANK']}} of {{os.environ['WORLD_SIZE']}}: {{given.local_rank}}")
"""


def run_launch(*arguments: str):
    process = subprocess.Popen(
        [sys.executable, "-m", "ronda.launch", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    return finish(process)


def options(*arguments: str) -> list[str]:
    """Returns the options that ronda.launch passes to rondarun."""
    words = launch.command([*arguments, "train.py"])
    return words[1 : words.index("--")]


class ProgramTest(unittest.TestCase):
    def check(self, finished, local_ranks: list[int]) -> None:
        self.assertEqual(finished.code, 0, finished.err)
        for rank, local_rank in enumerate(local_ranks):
            self.assertIn(f"rank {rank} of {len(local_ranks)}: {local_rank}", finished.out)

    def test_each_rank_is_told_its_local_rank_as_the_program_asks_for_it(self):
        for names in ('"--local_rank"', '"--local-rank"', '"--local-rank", "--local_rank"'):
            path = program(ASKS.format(names=names))
            self.check(run_launch("--nproc_per_node=2", path, "--lr", "0.1"), [0, 1])
            self.check(run_launch("--nproc-per-node", "1", path), [0])

    def test_use_env(self):
        path = program(ASKS.format(names='"--local_rank"'))
        for spelling in ("--use_env", "--use-env"):
            self.check(run_launch("--nproc_per_node=2", spelling, path), [-1, -1])

    def test_the_exit_code_is_the_programs(self):
        self.assertEqual(run_launch("--use_env", program("raise SystemExit(7)")).code, 7)

    def test_a_program_that_is_none_of_python(self):
        finished = run_launch("--nproc_per_node=2", "--use_env", "--no_python", "printenv", "RANK")
        self.assertEqual(sorted(finished.out.split()[1::2]), ["0", "1"], finished.err)
        self.assertIn("give --use_env too", run_launch("--no_python", "printenv").err)

    def test_a_module(self):
        finished = run_launch("--use_env", "-m", "platform")
        self.assertIn("Linux", finished.out)


class OptionsTest(unittest.TestCase):
    def test_options_are_rondaruns(self):
        given = "--nnodes=2 --node_rank 1 --nproc_per_node 4 --master_addr alpha --master_port 29"
        words = "--nnodes 2 --nproc-per-node 4 --node-rank 1 --master-addr alpha --master-port 29"
        self.assertEqual(options(*given.split()), words.split())
        one = ["--nproc-per-node", "1"]
        self.assertEqual(options("--standalone"), [*one, "--standalone"])
        self.assertEqual(
            options("--logdir", "logs", "-r", "3"), [*one, "--log-dir", "logs", "--redirects", "3"]
        )

    def test_a_fixed_number_of_nodes_is_no_elastic_job(self):
        self.assertEqual(options("--nnodes=2:2")[:2], ["--nnodes", "2"])
        self.assertEqual(options("--nnodes=1:2")[:2], ["--nnodes", "1:2"])

    def test_rondarun_knows_each_option(self):
        """Passes each option that takes a value to rondarun, which must know the option."""
        for name in launch._WITH_VALUE:
            checked = subprocess.run(
                [str(RONDARUN), "-np", "1", "--dry-run", name, "1", "true"],
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertNotIn("unknown option", checked.stderr, name)


class SpellingTest(unittest.TestCase):
    def test_a_program_asks_by_its_own_add_argument(self):
        asked = _local_rank.asked_for_by
        self.assertEqual(asked("p.add_argument('--local_rank', type=int)"), "--local_rank")
        self.assertEqual(asked('p.add_argument(\n    "-l", "--local-rank")'), "--local-rank")
        self.assertEqual(asked('add_argument("--local-rank", "--local_rank")'), "--local_rank")
        self.assertIsNone(asked('run(["python", "--local_rank=0"])'))
        self.assertIsNone(asked('p.add_argument("--local_ranks")'))

    def test_a_program_that_does_not_say_is_told_as_the_installed_torch_would(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            self.assertIn(_local_rank.spelling_for(file.name), ("--local_rank", "--local-rank"))
