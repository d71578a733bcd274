# SPDX-License-Identifier: Apache-2.0

"""Tests the errors on the other ranks of a torch.distributed program when one rank fails."""

from __future__ import annotations

import unittest

from ronda_test import run

# Rank 1 dies. Rank 0 goes on when it knows that the job has failed.
RANK_1_HAS_DIED = """
    import os, signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # rondarun's, after the failure
    import torch
    import torch.distributed as dist
    import ronda.torch.c10d

    def failure(call):
        try:
            return call()
        except RuntimeError as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]

    dist.init_process_group("ronda")
    group = ronda.torch.c10d.group_of(dist.distributed_c10d._get_default_group())
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while failure(lambda: dist.all_reduce(torch.ones(1))) is None:
        pass
"""


class FailureTest(unittest.TestCase):
    def test_killed_rank(self):
        """If a rank is killed, wait() and DDP's backward pass raise the error at once on the other
        ranks.
        """
        source = """
            import os, signal, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # rondarun's, after the failure
            import torch
            import torch.distributed as dist
            from torch.nn.parallel import DistributedDataParallel
            import ronda.torch.c10d

            dist.init_process_group("ronda")
            model = DistributedDataParallel(torch.nn.Linear(4, 4))
            dist.barrier()
            if dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            begin = time.monotonic()
            try:
                if dist.get_rank() == 0:
                    dist.all_reduce(torch.ones(1))
                else:
                    model(torch.ones(1, 4)).sum().backward()
            except RuntimeError as error:
                print(f"{time.monotonic() - begin < 1} {type(error).__name__}: {error}", flush=True)
        """
        finished = run(source, 3, ["--grace-period=20"], timeout=150)
        self.assertNotEqual(finished.code, 0)
        lines = [line for line in finished.out.splitlines() if "True" in line]
        self.assertEqual(len(lines), 2, finished.out + finished.err)
        for line in lines:
            self.assertIn("rank 1", line)

    def check_after_failure(self, source: str, wanted: list[str]) -> None:
        """Runs the program on rank 0, after rank 1 has died. Expects that each line of its output
        contains the text in `wanted`.
        """
        finished = run(RANK_1_HAS_DIED + source, 2, ["--grace-period=20"], timeout=150)
        text = finished.out + finished.err
        lines = finished.out.splitlines()
        self.assertEqual(len(lines), len(wanted), text)
        for line, part in zip(lines, wanted):
            self.assertIn(part, line, text)

    def test_coalesced_operations_after_a_failure(self):
        """If a coalesced operation fails, the Work of all of them has its error."""
        source = """
    def coalesced(*calls, in_future=False):
        group.start_coalescing()
        for call in calls:
            call()
        work = group.end_coalescing()
        text = failure(work.get_future().wait if in_future else work.wait)
        assert work.is_completed() and not work.is_success() and str(work.exception()) in text
        return text

    opts = dist.BroadcastOptions()
    def send(): group.send([torch.ones(4)], 1, 0)
    def broadcast(): group.broadcast([torch.ones(4)], opts)
    print(coalesced(send), flush=True)
    print(coalesced(broadcast, send), flush=True)
    print(coalesced(broadcast, in_future=True), flush=True)
        """
        self.check_after_failure(source, ["PeerFailedError: rank 1"] * 3)

    def test_messages_after_a_failure(self):
        """A receive returns a Work with the failure, as a send does."""
        source = """
    works = [group.recv([torch.ones(4)], 1, 0), group.recv_anysource([torch.ones(4)], 0)]
    for work in [*works, group.send([torch.ones(4)], 1, 0)]:
        print(failure(work.wait), work.source_rank(), flush=True)
        """
        self.check_after_failure(source, ["PeerFailedError: rank 1"] * 3)

    def test_launched_ranks_make_no_new_group_after_a_failure(self):
        source = """
    dist.destroy_process_group()
    print(failure(lambda: dist.init_process_group("ronda")), flush=True)
        """
        self.check_after_failure(source, ["start its ranks with torchrun"])

    def test_another_place_than_the_jobs(self):
        source = """
            import torch.distributed as dist
            import ronda.torch.c10d
            dist.init_process_group("ronda", store=dist.HashStore(), rank=0, world_size=1)
        """
        finished = run(source, 2)
        self.assertNotEqual(finished.code, 0)
        self.assertRegex(finished.err, "rank 0 of 1, but it is rank [01] of 2 in Ronda's job")
