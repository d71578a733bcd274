# SPDX-License-Identifier: Apache-2.0

"""Tests RondaExecutor, whose ranks are Ray actors."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator

import ray
import ray_cluster
import ronda
from ronda.ray import RayExecutor, RondaExecutor, _worker
from ronda_test import eventually

_SETTINGS = RondaExecutor.create_settings(timeout_s=100, placement_group_timeout_s=200)


# The functions that ranks run are defined within other functions, so that they are pickled by
# value. Ray's processes cannot import this module.
def place_of_a_rank():
    def place():
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
        names += ("HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE")
        return tuple(int(os.environ[name]) for name in names)

    return place


def sum_of_ranks():
    def total(factor=1, add=0):
        ronda.init()
        mine = factor * (ronda.rank() + 1)
        return ronda.rank(), int(ronda.allreduce([mine], ronda.ReduceOp.SUM)[0]) + add

    return total


class EnvironmentsTest(unittest.TestCase):
    def test_unequal_hosts(self) -> None:
        def at(host: str, *gpus: str) -> _worker.Where:
            return _worker.Where((host, 0, 0), host, f"10.0.0.{len(host)}", 1, list(gpus))

        actors = [at("a", "0", "1"), at("bb"), at("a", "4", "5"), at("ccc"), at("a")]
        order = _worker.by_host(actors)
        self.assertEqual([0, 2, 4, 1, 3], order)
        ranks = _worker.environments([actors[i] for i in order], (2000, 3000), ["ib0", "eth0"], 30)
        names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "RONDA_CROSS_RANK", "RONDA_CROSS_SIZE")
        self.assertEqual(
            ["0 0 3 0 3", "1 1 3 0 1", "2 2 3 0 1", "3 0 1 1 3", "4 0 1 2 3"],
            [" ".join(rank[name] for name in names) for rank in ranks],
        )
        self.assertEqual({"0,4,1,5"}, {rank["CUDA_VISIBLE_DEVICES"] for rank in ranks[:3]})
        self.assertNotIn("CUDA_VISIBLE_DEVICES", ranks[3])
        self.assertEqual(1, len({rank["RONDA_JOB_SECRET"] for rank in ranks}))
        for rank in ranks:
            self.assertEqual(
                ("10.0.0.1", "2000"), (rank["RONDA_MASTER_ADDR"], rank["RONDA_MASTER_PORT"])
            )
            self.assertEqual(("10.0.0.1", "3000"), (rank["MASTER_ADDR"], rank["MASTER_PORT"]))
            self.assertEqual("ib0,eth0", rank["RONDA_NETWORK_INTERFACE"])
            self.assertEqual("30s", rank["RONDA_START_TIMEOUT"])


class RayExecutorTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        os.environ.update(ray_cluster.ENV)
        cls.address = ray_cluster.start(cpus=4, gpus=4)
        cls.addClassCleanup(ray.shutdown)

    @contextlib.contextmanager
    def started(self, ranks: int | None = 2, **options: object) -> Iterator[RondaExecutor]:
        executor = RondaExecutor(_SETTINGS, ranks, **options)
        executor.start()
        try:
            yield executor
        finally:
            executor.shutdown()

    def test_ranks_know_their_place_before_the_program_makes_its_object(self) -> None:
        place, total = place_of_a_rank(), sum_of_ranks()

        class Trainer:
            def __init__(self, rate, momentum):
                self.place, self.options = place(), (rate, momentum, os.environ["OF_THE_USER"])

        executor = RayExecutor(_SETTINGS, num_workers=3)
        executor.start(Trainer, [0.1], {"momentum": 0.9}, {"OF_THE_USER": "1", "RONDA_RANK": "7"})
        try:
            self.assertEqual(
                [(rank, 3, rank, 3, 0, 0, 1) for rank in range(3)],
                executor.execute(lambda trainer: trainer.place),
            )
            self.assertEqual((0.1, 0.9, "1"), executor.execute_single(lambda it: it.options))
            self.assertEqual((0, 3), executor.execute_single(lambda it: it.place)[:2])
            expected = [(rank, 61) for rank in range(3)]
            self.assertEqual(expected, executor.run(total, [10], {"add": 1}))
            self.assertEqual(expected, ray.get(executor.run_remote(total, [10], {"add": 1})))
        finally:
            executor.shutdown()

    def test_torch_finds_its_store_and_ronda_as_its_backend(self) -> None:
        def average():
            import ronda.torch.c10d  # noqa: F401
            import torch

            torch.distributed.init_process_group("ronda")
            value = torch.tensor([float(torch.distributed.get_rank())])
            torch.distributed.all_reduce(value)
            torch.distributed.destroy_process_group()
            return value.item()

        with self.started() as executor:
            self.assertEqual([1.0, 1.0], executor.run(average))

    def test_exception_of_a_rank_ends_the_call_on_all_and_the_next_call_joins_anew(self) -> None:
        def fail():
            ronda.init()
            if ronda.rank() == 1:
                raise KeyError("of rank 1")
            if ronda.rank() == 0:
                ronda.barrier()  # rank 2 just returns

        with self.started(3) as executor:
            with self.assertRaisesRegex(KeyError, "of rank 1"):
                executor.run(fail)
            self.assertEqual([(rank, 6) for rank in range(3)], executor.run(sum_of_ranks()))

    def test_other_ranks_say_which_function_has_raised(self) -> None:
        def fail():
            ronda.init()
            if ronda.rank() == 1:
                raise KeyError("of rank 1")
            ronda.barrier()

        with self.started() as executor:
            references = executor.run_remote(fail)
            with self.assertRaisesRegex(
                ronda.PeerFailedError, "the function of rank 1 has raised KeyError: 'of rank 1'"
            ):
                ray.get(references[0])

    def test_failure_to_make_the_object_is_raised_and_the_executor_can_start_again(self) -> None:
        class Trainer:
            def __init__(self, fails):
                ronda.init()
                if fails and ronda.rank() == 1:
                    raise KeyError("of rank 1")
                ronda.barrier()

        executor = RondaExecutor(_SETTINGS, num_workers=2)
        self.addCleanup(executor.shutdown)
        with self.assertRaisesRegex(KeyError, "of rank 1"):
            executor.start(Trainer, [True])
        executor.start(Trainer, [False])
        self.assertEqual([(0, 3), (1, 3)], executor.run(sum_of_ranks()))

    def test_death_of_a_rank_is_named_and_the_executor_starts_anew(self) -> None:
        def die():
            ronda.init()
            if ronda.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            ronda.barrier()

        with self.started() as executor:
            pid = executor.run(os.getpid)[1]
            message = rf"rank 1 \(host \S+, pid {pid}\) has died: call shutdown\(\) and start\(\)"
            for function in (die, os.getpid):
                with self.assertRaisesRegex(ronda.PeerFailedError, message):
                    executor.run(function)
            executor.shutdown()
            executor.start()
            self.assertEqual([(0, 3), (1, 3)], executor.run(sum_of_ranks()))

    def test_shutdown_ends_the_ranks(self) -> None:
        with self.started() as executor:
            executor.run(sum_of_ranks())
            pids = executor.run(os.getpid)
        for pid in pids:
            self.assertTrue(eventually(lambda pid=pid: not os.path.exists(f"/proc/{pid}"), 60))
        with self.assertRaisesRegex(ronda.InvalidArgumentError, r"call start\(\) first"):
            executor.run(os.getpid)

    def test_ranks_see_the_gpus_of_their_host_and_first_their_own(self) -> None:
        def gpus():
            own = ray.get_runtime_context().get_accelerator_ids()["GPU"]
            return own, os.environ["CUDA_VISIBLE_DEVICES"].split(",")

        with self.started(use_gpu=True, gpus_per_worker=2) as executor:
            results = executor.run(gpus)
        for local_rank, (own, visible) in enumerate(results):
            self.assertEqual(["0", "1", "2", "3"], sorted(visible))
            self.assertEqual(results[0][1], visible)
            self.assertIn(visible[local_rank], own)

    def test_takes_the_placement_group_in_which_it_is(self) -> None:
        group = ray.util.placement_group([{"CPU": 1}] * 3)
        self.addCleanup(ray.util.remove_placement_group, group)
        settings, total = _SETTINGS, sum_of_ranks()

        @ray.remote(num_cpus=1)
        def job():
            executor = RondaExecutor(settings, num_workers=2)
            executor.start()
            results = executor.run(total)
            groups = [each["state"] for each in ray.util.placement_group_table().values()]
            executor.shutdown()
            return results, groups.count("CREATED")

        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            group, 0, placement_group_capture_child_tasks=True
        )
        results = ray.get(job.options(scheduling_strategy=strategy).remote())
        self.assertEqual(([(0, 3), (1, 3)], 1), results)

    def test_missing_resource_of_the_cluster_is_named(self) -> None:
        settings = RondaExecutor.create_settings(placement_group_timeout_s=1)
        executor = RondaExecutor(settings, num_workers=64)
        with self.assertRaisesRegex(
            ronda.DeadlineError,
            r"64 ranks with \{'CPU': 1\} each in placement_.*=1: .*4 CPU",
        ):
            executor.start()

    def test_arguments_that_contradict_each_other(self) -> None:
        for options, message in (
            ({}, "num_workers=None, num_hosts=None: give one"),
            ({"num_workers": 1, "num_hosts": 1}, "num_workers=1, num_hosts=1: give one"),
            ({"num_workers": 0}, "num_workers=0: give a number of 1 or more"),
            ({"num_workers": 2, "num_workers_per_host": 2}, "num_workers_per_host=2 goes with"),
            ({"num_workers": 1, "gpus_per_worker": 1}, "gpus_per_worker=1 needs use_gpu=True"),
        ):
            with self.assertRaisesRegex(ronda.InvalidArgumentError, message):
                RondaExecutor(_SETTINGS, **options)


@unittest.skipUnless(os.geteuid() == 0, "only root can give a node of Ray its own /dev/shm")
class TwoHostsTest(unittest.TestCase):
    """Tests two Ray nodes. Ronda treats the two nodes as two hosts, because each node has its own
    /dev/shm.
    """

    @classmethod
    def setUpClass(cls) -> None:
        os.environ.update(ray_cluster.ENV)
        address = ray_cluster.start(cpus=2)
        cls.addClassCleanup(ray.shutdown)
        folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="ray-"))
        cls.node = subprocess.Popen(
            [
                *("unshare", "--mount", "sh", "-c"),
                'mount -t tmpfs ronda-test /dev/shm && exec "$@"',
                *("sh", sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
                *(f"--address={address}", "--node-ip-address=127.0.0.1", "--num-cpus=2"),
                f"--object-store-memory={100 << 20}",
            ],
            # Ray writes the address of its cluster to this folder, so that no other program finds
            # the cluster.
            env={**os.environ, "RAY_TMPDIR": folder},
            start_new_session=True,
        )
        cls.addClassCleanup(cls.end_node)
        if not eventually(lambda: sum(node["Alive"] for node in ray.nodes()) == 2, 200):
            raise AssertionError("the second node of Ray has not come")

    @classmethod
    def end_node(cls) -> None:
        os.killpg(cls.node.pid, signal.SIGTERM)
        cls.node.wait(60)

    def test_ranks_of_a_host_follow_each_other_and_meet_the_other_host(self) -> None:
        executor = RondaExecutor(_SETTINGS, num_hosts=2, num_workers_per_host=2)
        executor.start()
        try:
            self.assertEqual(
                [(rank, 4, rank % 2, 2, rank // 2, rank // 2, 2) for rank in range(4)],
                executor.run(place_of_a_rank()),
            )
            self.assertEqual([(rank, 10) for rank in range(4)], executor.run(sum_of_ranks()))

            def topology():
                return ronda.local_size(), ronda.cross_rank(), ronda.cross_size()

            self.assertEqual([(2, rank // 2, 2) for rank in range(4)], executor.run(topology))
        finally:
            executor.shutdown()


if __name__ == "__main__":
    unittest.main()
