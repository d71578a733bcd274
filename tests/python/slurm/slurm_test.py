# SPDX-License-Identifier: Apache-2.0

"""Runs the unchanged commands and scripts of docs/slurm.md on a Slurm cluster."""

from __future__ import annotations

import ctypes.util
import os
import pathlib
import re
import shutil
import sys
import unittest

from ronda_test import RONDARUN, Finished, eventually
from slurm_cluster import PATH, Cluster, missing

_PAGE = pathlib.Path("docs/slurm.md").read_text()
_PROGRAMS = ("train", "train.py", "train_elastic")
_ENDLESS = {"STEPS": "1000000000"}
_DIES = """
import os, signal, ronda
ronda.init()
ronda.barrier()
if ronda.rank() == 3:
    os.kill(os.getpid(), signal.SIGKILL)
ronda.barrier()
"""
_SLURMS_PMIX = [*pathlib.Path("/usr/lib").glob("*/slurm*/mpi_pmix*.so")]
# The time limit of a step on a machine that is busy with other tests.
_LIMIT_S = 120


def scripts() -> dict[str, str]:
    """Returns the page's scripts by file name: the last file name before each script."""
    files = {}
    for block in re.finditer(r"```bash\n(.*?)```", _PAGE, re.DOTALL):
        names = re.findall(r"`(\w+\.(?:sbatch|sh))`", _PAGE[: block.start()])
        files[names[-1]] = block.group(1)
    return files


def commands(script: str) -> str:
    """Returns the page's command block that contains `script`."""
    [block] = [text for text in re.findall(r"```sh\n(.*?)```", _PAGE, re.DOTALL) if script in text]
    return block


@unittest.skipIf(missing() is not None, missing() or "")
class SlurmTest(unittest.TestCase):
    def setUp(self) -> None:
        self.cluster = Cluster()
        self.addCleanup(self.cluster.close)
        for name in _PROGRAMS:
            shutil.copy(pathlib.Path("tests/python/slurm", name), self.cluster.folder)
        for name, text in scripts().items():
            (self.cluster.folder / name).write_text(text)

    def outcome_of(self, command: str, **variables: str) -> Finished:
        """Runs the command, and returns how it ended."""
        library = RONDARUN.parent
        path = [str(library), str(pathlib.Path(sys.executable).parent), PATH]
        surroundings = {"PATH": os.pathsep.join(path), "LD_LIBRARY_PATH": str(library)}
        return self.cluster.run(command, {**surroundings, **variables})

    def run_on_cluster(self, command: str, **variables: str) -> str:
        """Runs the command, which must end without an error, and returns its output."""
        finished = self.outcome_of(command, **variables)
        self.assertEqual(0, finished.code, f"{command}\n{finished.out}\n{finished.err}")
        return finished.out

    def log(self, name: str) -> str:
        path = self.cluster.folder / name
        return path.read_text() if path.exists() else ""

    def await_log(self, name: str, pattern: str, times: int = 1) -> None:
        """Waits until the job's log has `times` lines that match the pattern."""
        has_come = eventually(
            lambda: len(re.findall(pattern, self.log(name), re.MULTILINE)) >= times, _LIMIT_S
        )
        queue = self.cluster.run("scontrol show job").out
        self.assertTrue(has_come, f"{times} of {pattern!r} in:\n{self.log(name)}\n{queue}")

    def await_end(self, job: str) -> None:
        """Waits until Slurm no longer runs any rank of the job."""
        queue = f"squeue --noheader --states all --format %T --name {job}"
        ended = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL")
        has_ended = eventually(lambda: self.run_on_cluster(queue).strip() in ended, _LIMIT_S)
        self.assertTrue(has_ended, self.cluster.run("scontrol show job").out)

    def check_saved(self, log: str) -> int:
        """Expects that no rank was killed, and that one rank saved the state. Returns its step."""
        self.await_log(log, r"rank \d of 4 ends: average 1\.5$", 4)
        step, value = self.log("train.state").split()
        self.assertEqual(1.5 * int(step), float(value))
        self.assertIn(f"saved after step {step}\n", self.log(log))
        return int(step)

    def test_srun_starts_ranks_of_c_and_of_python(self) -> None:
        out = self.run_on_cluster(commands("export RONDA_JOB_SECRET"))
        ends = sorted(line for line in out.splitlines() if "ends" in line)
        expected = [f"rank {rank} of 4 ends: average 1.5" for rank in range(4) for _ in range(3)]
        self.assertEqual(expected, ends)

    @unittest.skipUnless(ctypes.util.find_library("mpich"), "MPICH is not installed")
    def test_ranks_of_srun_meet_through_mpi(self) -> None:
        finished = self.run_on_cluster(commands("--mpi=pmi2"), RONDA_BACKEND="mpi")
        self.assertEqual(4, finished.count("ends: average 1.5\n"), finished)

    @unittest.skipUnless(_SLURMS_PMIX, "Slurm's plugin for PMIx is not installed")
    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "Open MPI is not installed")
    def test_ranks_of_srun_meet_through_open_mpi(self) -> None:
        finished = self.run_on_cluster(commands("--mpi=pmix"), RONDA_BACKEND="mpi")
        self.assertEqual(4, finished.count("ends: average 1.5\n"), finished)

    def test_rank_that_dies_is_named_by_the_others(self) -> None:
        (self.cluster.folder / "train.py").write_text(_DIES)
        command = commands("export RONDA_JOB_SECRET").replace("./train", "true")
        finished = self.outcome_of(command)
        self.assertNotEqual(0, finished.code)
        named = re.findall(r"PeerFailedError: .*rank 3 \(host node1, pid \d+\)", finished.err)
        self.assertEqual(3, len(named), finished.err)

    def test_batch_job(self) -> None:
        self.run_on_cluster(commands("sbatch train.sbatch\n"))
        self.await_log("train.log", r"rank \d of 4 ends: average 1\.5$", 4)
        self.await_end("train")

    def test_job_saves_its_state_before_its_time_limit(self) -> None:
        self.run_on_cluster(commands("--time 1"), **_ENDLESS)
        self.check_saved("train.log")
        self.await_end("train")

    def test_job_that_is_cancelled_saves_its_state(self) -> None:
        self.run_on_cluster(commands("sbatch train.sbatch\n"), **_ENDLESS)
        self.await_log("train.log", "trains$", 4)
        self.run_on_cluster(commands("scancel"))
        self.check_saved("train.log")
        self.await_end("train")

    def test_job_that_is_requeued_goes_on_with_its_state(self) -> None:
        self.run_on_cluster(commands("sbatch train.sbatch\n"), **_ENDLESS)
        self.await_log("train.log", "trains$", 4)
        self.run_on_cluster(commands("scontrol requeue"))
        step = self.check_saved("train.log")
        # Slurm restarts a requeued job only after two minutes, when its nodes have no old
        # processes. Instead of waiting that long, the test cancels the job and submits the script
        # again.
        state = "squeue --noheader --format '%T %r' --name train"
        self.assertTrue(
            eventually(lambda: self.run_on_cluster(state) == "PENDING BeginTime\n", _LIMIT_S)
        )
        self.run_on_cluster("scancel --name train")
        self.await_end("train")
        self.run_on_cluster(commands("sbatch train.sbatch\n"), **_ENDLESS)
        self.await_log("train.log", f"^goes on after step {step}$", 4)
        self.await_log("train.log", "trains$", 8)
        self.run_on_cluster(commands("scancel"))
        self.await_log("train.log", "ends", 8)
        self.assertGreater(self.check_saved("train.log"), step)

    def test_rondarun_on_each_node(self) -> None:
        self.run_on_cluster(commands("sbatch nodes.sbatch"), **_ENDLESS)
        self.await_log("nodes.log", r"^\[\d\]<stdout>: rank \d of 4 trains$", 4)
        self.run_on_cluster("scancel --name nodes")
        self.check_saved("nodes.log")
        self.await_end("nodes")

    def test_job_goes_on_without_a_lost_node(self) -> None:
        self.run_on_cluster(commands("sbatch elastic.sbatch"))
        self.await_log("elastic.log", "rank . of 4 trains$", 4)
        self.cluster.end_node("node1")
        self.await_log("elastic.log", "rank . of 2 trains$", 2)
        (self.cluster.folder / "finish").touch()
        self.await_log("elastic.log", "every step counts once$", 2)
        self.await_log("elastic.log", "^rondarun: host node1 is lost with members 2, 3")
        self.await_end("elastic")


class PageTest(unittest.TestCase):
    def test_every_script_of_the_page_has_a_name_and_every_block_of_commands_a_test(self) -> None:
        self.assertEqual(_PAGE.count("```bash\n"), len(scripts()), scripts().keys())
        source = pathlib.Path(__file__).read_text()
        used = {commands(words) for words in re.findall(r'commands\("(.*?)(?:\\n)?"\)', source)}
        self.assertEqual(_PAGE.count("```sh\n"), len(used))
