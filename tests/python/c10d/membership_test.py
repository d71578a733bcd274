# SPDX-License-Identifier: Apache-2.0

"""Tests torch.distributed groups in which some members die or are left out, and the other members
continue.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import subprocess
import sys
import unittest
from collections.abc import Iterator

import torch.distributed as dist
from ronda._ports import free_port
from ronda_test import environment, finish, program

HEAD = """
    import os
    import signal
    import time
    import torch
    import torch.distributed as dist
    import ronda.torch.c10d
    from torch.distributed import distributed_c10d as c10d

    number = int(os.environ["RANK"])
    count = int(os.environ["WORLD_SIZE"])

    def total():
        tensor = torch.ones(3) * (number + 1)
        dist.all_reduce(tensor)
        return f"rank {dist.get_rank()} of {dist.get_world_size()}: {int(tensor[0])}"

    def handles(store, suffix=""):
        store.set(f"{number}{suffix}", c10d._get_reconfigure_handle())
        return lambda members: [store.get(f"{member}{suffix}").decode() for member in members]

    def meet():
        # The ranks meet through torch's store. A barrier is not enough, because a rank may leave
        # the barrier and the job before others leave the barrier.
        store = c10d._get_default_store()
        if store.add("met", 1) == count:
            store.set("all have met", "")
        store.wait(["all have met"])

    def failure(call):
        try:
            call()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "none"
"""


@contextlib.contextmanager
def started(source: str, ranks: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Starts processes with environment variables that set their ranks. If one process fails, the
    other processes continue.
    """
    path, port = program(HEAD + source), free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, path],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={
                **environment(),
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
        )
        for rank in range(ranks)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.communicate()


class MembershipTest(unittest.TestCase):
    def check(self, source: str, ranks: int, expected: dict[int, list[str]]) -> None:
        """Runs the program. Expects that the ranks in `expected` exit with 0 and print their
        lines.
        """
        with started(source, ranks) as processes:
            ended = {rank: finish(processes[rank], 200) for rank in expected}
        errors = "\n".join(f"rank {rank}:\n{finished.err}" for rank, finished in ended.items())
        for rank, finished in ended.items():
            self.assertEqual(finished.code, 0, errors)
            for line in expected[rank]:
                self.assertIn(line, finished.out, errors)


class AbortTest(MembershipTest):
    def test_ranks_make_a_new_group_after_an_abort(self):
        """Only rank 0 knows for sure that the job has failed. All ranks join a new one."""
        self.check(
            """
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), count,
                          number == 0)
    for attempt in range(3):
        prefixed = dist.PrefixStore(str(attempt), store)
        dist.init_process_group("ronda", store=prefixed, rank=number, world_size=count)
        print(total())
        meet()
        if number == 0:
            ronda.torch.c10d.group_of(c10d._get_default_group()).abort()
            print(failure(total))
        dist.destroy_process_group()
    print("done")
    store.set(f"ended {number}", "")
    if number == 0:
        store.wait([f"ended {each}" for each in range(count)])
            """,
            2,
            {
                0: ["rank 0 of 2: 3", "was aborted", "done"],
                1: ["rank 1 of 2: 3", "done"],
            },
        )


@unittest.skipUnless(hasattr(dist, "shrink_group"), "this PyTorch has no shrink_group")
class ShrinkTest(MembershipTest):
    def test_ranks_are_left_out(self):
        """Processes that are left out fail in their next operation, with the reason."""
        self.check(
            """
    dist.init_process_group("ronda")
    print(total())
    dist.new_group([0, 2])
    meet()
    if number == 1:
        print(failure(lambda: dist.all_reduce(torch.ones(1))))
    else:
        dist.shrink_group([1])
        print(total())
        alone = dist.new_group([dist.get_rank()])
        dist.all_reduce(torch.ones(1), group=alone)
        dist.destroy_process_group()
            """,
            3,
            {
                0: ["rank 0 of 3: 6", "rank 0 of 2: 4"],
                1: ["rank 1 of 3: 6", "shrink_group() has left out the ranks [1]"],
                2: ["rank 2 of 3: 6", "rank 1 of 2: 4"],
            },
        )

    def test_a_rank_has_died(self):
        self.check(
            """
    dist.init_process_group("ronda")
    print(total())
    meet()
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    print(failure(lambda: dist.all_reduce(torch.ones(1))))
    dist.shrink_group([1], shrink_flags=c10d.SHRINK_ABORT)
    print(total())
    if number == 0:
        dist.shrink_group([1])
    print(failure(total) if number else total())
            """,
            3,
            {
                0: ["PeerFailedError", "rank 0 of 2: 4", "rank 0 of 1: 1"],
                2: ["PeerFailedError", "rank 1 of 2: 4", "shrink_group() has left out the ranks"],
            },
        )

    def test_a_group_of_some_ranks(self):
        """A subgroup loses a rank. The job keeps all its ranks."""
        self.check(
            """
    dist.init_process_group("ronda")
    group = dist.new_group([2, 0, 1])
    if number != 0:
        group = dist.shrink_group([0], group=group)
        tensor = torch.ones(1) * number
        dist.all_reduce(tensor, group=group)
        print(f"{int(tensor)} as {dist.get_rank(group)}")
    print(total())
            """,
            3,
            {
                0: ["rank 0 of 3: 6"],
                1: ["3 as 0", "rank 1 of 3: 6"],
                2: ["3 as 1", "rank 2 of 3: 6"],
            },
        )


@unittest.skipUnless(
    "enable_reconfigure" in inspect.signature(dist.init_process_group).parameters,
    "groups of this PyTorch do not change their members",
)
class ReconfigureTest(MembershipTest):
    def test_survivors_go_on(self):
        """Checks the ranks, the parameters and the deadlines of the new group.

        When this test was written, changing the group took 0.05 s.
        """
        self.check(
            """
    dist.init_process_group("ronda", enable_reconfigure=True)
    others = handles(c10d._get_default_store())
    print(total())
    survivors = others([2, 0])
    meet()
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    print(failure(lambda: [dist.all_reduce(torch.ones(1)) for _ in range(1000)]))
    begin = time.monotonic()
    assert c10d._reconfigure(uuid=1, handles=survivors).wait()
    print("took", time.monotonic() - begin)
    print(total(), dist.get_process_group_ranks(None))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    model(torch.full((1, 1), float(number))).sum().backward()
    print("gradient", model.module.weight.grad.item())
    tensor = torch.full((1,), float(number))
    dist.broadcast(tensor, 1)
    print("broadcast", tensor.item())
            """,
            3,
            {
                0: ["rank 0 of 3: 6", "PeerFailedError", "rank 1 of 2: 4 [0, 1]"]
                + ["gradient 1.0", "broadcast 0.0"],
                2: ["rank 2 of 3: 6", "PeerFailedError", "rank 0 of 2: 4 [0, 1]"]
                + ["gradient 1.0", "broadcast 0.0"],
            },
        )

    def test_again_and_again(self):
        self.check(
            """
    dist.init_process_group("ronda", enable_reconfigure=True)
    for uuid in range(20):
        members = handles(c10d._get_default_store(), f" {uuid}")(range(count))
        chosen = members[uuid % count:] + members[: uuid % count] if uuid % 2 else set(members)
        c10d._reconfigure(uuid=uuid, handles=chosen)
        assert total().endswith(": 6"), uuid
    dist.destroy_process_group()
    print("done")
            """,
            3,
            {0: ["done"], 1: ["done"], 2: ["done"]},
        )

    def test_joining_ranks(self):
        """Each process starts in a group of its own."""
        self.check(
            """
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), count,
                          number == 0)
    dist.init_process_group("ronda", store=dist.PrefixStore(str(number), store), rank=0,
                            world_size=1, enable_reconfigure=True)
    print(total())
    if number < 2:
        c10d._reconfigure(uuid=1, handles=handles(store, " first")([0, 1]))
        print(total())
    c10d._reconfigure(uuid=2, handles=handles(store)([0, 1, 2]))
    print(total())
    dist.barrier()
            """,
            3,
            {
                0: ["rank 0 of 1: 1", "rank 0 of 2: 3", "rank 0 of 3: 6"],
                1: ["rank 0 of 1: 2", "rank 1 of 2: 3", "rank 1 of 3: 6"],
                2: ["rank 0 of 1: 3", "rank 2 of 3: 6"],
            },
        )

    def test_unsuitable_handle_is_refused(self):
        self.check(
            """
    from datetime import timedelta

    dist.init_process_group("ronda", enable_reconfigure=True)
    own = c10d._get_reconfigure_handle()
    ask = c10d._reconfigure
    print(failure(lambda: ask(uuid=1, handles=["x"])))
    print(failure(lambda: ask(uuid=1, handles=[own, "x"])))
    print(failure(lambda: ask(uuid=1, handles=[own, own])))
    print(failure(lambda: ask(uuid=1, handles=[own], hints={"speed": "high"})))
    print(failure(lambda: ask(uuid=1, handles=[])))
    print(total())
    absent = '["127.0.0.1", 1, ""]'
    print(failure(lambda: ask(uuid=2, handles=[own, absent], timeout=timedelta(seconds=0.2))))
    print(failure(total))
    print(failure(lambda: ask(uuid=3, handles=[own])))
    own = c10d._get_reconfigure_handle()
    print(failure(lambda: ask(uuid=2, handles=[own])))
    ask(uuid=3, handles=[own])
    print(total())
            """,
            1,
            {
                0: [
                    "ValueError: reconfigure: the handles lack this process' own",
                    "ValueError: reconfigure: 'x' is no handle of Ronda's",
                    "ValueError: reconfigure: a handle is there twice",
                    "ValueError: reconfigure: Ronda takes no hints, but got ['speed']",
                    "DeadlineError: rank 1 of 2 did not join",
                    "of a job that this process has left",
                    "ValueError: reconfigure: the uuid 2 was used before",
                    "rank 0 of 1: 1",
                ]
            },
        )

    def test_one_backend_for_all_devices(self):
        source = """
    dist.init_process_group("cpu:ronda,cuda:gloo", enable_reconfigure=True)
        """
        with started(source, 1) as processes:
            finished = finish(processes[0], 200)
        self.assertNotEqual(finished.code, 0)
        self.assertIn("Ronda serves all devices of a group or none", finished.err)
