# SPDX-License-Identifier: Apache-2.0

"""Tests the variables that tell other libraries a process's rank and job."""

import os
import unittest
from unittest import mock

from ronda import _env, job

_STORE = ("MASTER_ADDR", "MASTER_PORT")


def exported(env):
    """Returns the changes that export() makes in the environment `env`."""
    with mock.patch.dict(os.environ, env, clear=True):
        _env.export()
        changed = {name: value for name, value in os.environ.items() if env.get(name) != value}
        _env.withdraw()
        assert dict(os.environ) == env, "withdraw() puts back what was there"
        return changed


class LauncherTest(unittest.TestCase):
    def test_process_without_a_launcher_exports_no_variables(self):
        self.assertEqual(exported({"HOME": "/"}), {})

    def test_rondarun(self):
        env = {
            "RONDA_RANK": "3",
            "RONDA_SIZE": "8",
            "RONDA_LOCAL_RANK": "1",
            "RONDA_LOCAL_SIZE": "2",
            "RONDA_CROSS_RANK": "1",
            "RONDA_CROSS_SIZE": "4",
        }
        expected = {
            "RANK": "3",
            "WORLD_SIZE": "8",
            "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "2",
            "HOROVOD_RANK": "3",
            "HOROVOD_SIZE": "8",
            "HOROVOD_LOCAL_RANK": "1",
            "HOROVOD_LOCAL_SIZE": "2",
            "HOROVOD_CROSS_RANK": "1",
            "HOROVOD_CROSS_SIZE": "4",
            "GROUP_RANK": "1",
        }
        self.assertEqual(exported(env), expected)
        # Another job's variables may be set, because a rank of that job has started this job's
        # launcher.
        self.assertEqual(
            exported({**env, "RANK": "0", "WORLD_SIZE": "2", "HOROVOD_RANK": "0"}), expected
        )
        # The launcher or the user may already have set MASTER_ADDR and MASTER_PORT.
        store = {"MASTER_ADDR": "alpha", "MASTER_PORT": "1"}
        self.assertEqual(exported({**env, **store}), expected)

    def test_hosts_that_differ_have_no_number_that_follows_from_the_place(self):
        env = {"RONDA_RANK": "3", "RONDA_SIZE": "4", "RONDA_CROSS_RANK": "1"}
        self.assertNotIn(
            "GROUP_RANK", exported({**env, "RONDA_LOCAL_RANK": "0", "RONDA_LOCAL_SIZE": "1"})
        )

    def test_a_member_of_an_elastic_job_has_a_local_place_before_its_first_epoch(self):
        env = {"RONDA_RANK": "1", "RONDA_SIZE": "4", "RONDA_LOCAL_RANK": "1"}
        member = {**env, "RONDA_LOCAL_SIZE": "4", "RONDA_MEMBERSHIP_FD": "3"}
        local = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
        horovods = {"HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "4"}
        self.assertEqual(exported(member), {**local, **horovods})

    def test_torchrun(self):
        env = {
            "RANK": "1",
            "WORLD_SIZE": "2",
            "LOCAL_RANK": "0",
            "MASTER_ADDR": "alpha",
            "MASTER_PORT": "29500",
        }
        self.assertEqual(
            exported(env), {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": "0"}
        )

    def test_paddle(self):
        told = exported({"PADDLE_TRAINER_ID": "1", "PADDLE_TRAINER_ENDPOINTS": "a:1,b:2"})
        self.assertEqual((told["RANK"], told["HOROVOD_SIZE"]), ("1", "2"))

    def test_half_a_place_is_none(self):
        self.assertEqual(exported({"RANK": "1"}), {})
        self.assertEqual(exported({"RANK": "2", "WORLD_SIZE": "2"}), {})

    def test_the_launcher_stays_who_it_was_when_the_place_was_exported(self):
        env = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
        with mock.patch.dict(os.environ, env, clear=True):
            self.assertEqual(_env.launcher(), _env.Launcher.MPICH)
            _env.export()
            before = dict(os.environ)
            self.assertEqual(_env.launcher(), _env.Launcher.MPICH)
            self.assertEqual(dict(os.environ), before)
            _env.withdraw()
        with mock.patch.dict(os.environ, {"RANK": "0", "WORLD_SIZE": "1", **env}, clear=True):
            self.assertEqual(_env.launcher(), _env.Launcher.TORCHRUN)

    def test_open_mpi_on_one_host(self):
        env = {
            "OMPI_COMM_WORLD_RANK": "1",
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "PMIX_NAMESPACE": "1234",
        }
        told = exported(env)
        self.assertEqual(
            [told[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")], ["1", "2", "1"]
        )
        self.assertEqual((told["GROUP_RANK"], told["HOROVOD_CROSS_SIZE"]), ("0", "1"))
        self.assertEqual(told["MASTER_ADDR"], "127.0.0.1")
        copied = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
        self.assertEqual(
            exported({**env, **copied})["MASTER_PORT"],
            told["MASTER_PORT"],
            "a program that copies the place does not say where the ranks meet",
        )
        of_rank_0 = exported(
            {**env, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
        )
        self.assertEqual(told["MASTER_PORT"], of_rank_0["MASTER_PORT"])
        self.assertNotEqual(
            told["MASTER_PORT"], exported({**env, "PMIX_NAMESPACE": "1235"})["MASTER_PORT"]
        )

    def test_several_hosts_of_open_mpi_have_no_known_address(self):
        env = {
            "OMPI_COMM_WORLD_RANK": "1",
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
            "PMIX_NAMESPACE": "1234",
        }
        self.assertFalse(exported(env).keys() & set(_STORE))

    def test_mpich(self):
        told = exported(
            {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
        )
        self.assertEqual((told["RANK"], told["LOCAL_WORLD_SIZE"]), ("1", "2"))

    def test_slurm(self):
        env = {
            "SLURM_STEP_ID": "3",
            "SLURM_JOB_ID": "20042",
            "SLURM_PROCID": "5",
            "SLURM_NTASKS": "8",
            "SLURM_LOCALID": "1",
            "SLURM_STEP_NODELIST": "rack[1-2]n[07-09,12],other",
        }
        told = exported(env)
        self.assertEqual((told["RANK"], told["WORLD_SIZE"], told["LOCAL_RANK"]), ("5", "8", "1"))
        self.assertEqual((told["MASTER_ADDR"], told["MASTER_PORT"]), ("rack1n07", "10045"))
        self.assertEqual(
            exported({**env, "SLURM_STEP_ID": str(0xFFFFFFFB)}), {}, "a batch script is no task"
        )

    def test_kubernetes(self):
        told = exported({"JOB_COMPLETION_INDEX": "3", "WORLD_SIZE": "4"})
        self.assertEqual((told["RANK"], told["HOROVOD_SIZE"]), ("3", "4"))
        self.assertEqual(exported({"JOB_COMPLETION_INDEX": "3"}), {}, "a pod alone is no job")


class InheritedTest(unittest.TestCase):
    def test_a_process_that_is_no_rank_gets_no_place(self):
        env = {"RONDA_RANK": "1", "RONDA_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "HOME": "/"}
        with mock.patch.dict(os.environ, env, clear=True):
            _env.export()
            self.assertIn("WORLD_SIZE", os.environ)
            self.assertEqual(_env.inherited(), {"HOME": "/"})
            _env.withdraw()


class JobTest(unittest.TestCase):
    def test_job_of_one_rank(self):
        with mock.patch.dict(os.environ, {}, clear=True):
            job.init()
            store = [os.environ[name] for name in _STORE]
            self.assertEqual(
                (os.environ["RANK"], os.environ["WORLD_SIZE"], store[0]), ("0", "1", "127.0.0.1")
            )
            job.shutdown()
            # The next job must not mistake the exported variables for a launcher's.
            os.environ["RONDA_JOB_ID"] = "alone"
            os.environ.update({"RONDA_RANK": "0", "RONDA_SIZE": "1"})
            job.init()
            self.assertEqual([os.environ.get(name) for name in _STORE], [None, None])
            job.shutdown()

    def test_the_end_of_a_job_gives_its_variables_back(self):
        own = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512"}
        with mock.patch.dict(os.environ, {}, clear=True):
            job.init()
            job.shutdown()
            self.assertEqual(dict(os.environ), {})
            os.environ.update(own)
            job.init()
            job.shutdown()
            self.assertEqual(dict(os.environ), own, "the program's own, though they say the same")

    def test_an_announced_place_outlives_jobs(self):
        env = {"PMI_RANK": "0", "PMI_SIZE": "1", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
        self.addCleanup(setattr, _env, "_announced", False)
        with mock.patch.dict(os.environ, env, clear=True):
            _env.announce()
            job.init()
            job.shutdown()
            self.assertEqual((os.environ["RANK"], os.environ["WORLD_SIZE"]), ("0", "1"))
            _env.withdraw()


if __name__ == "__main__":
    unittest.main()
