# SPDX-License-Identifier: Apache-2.0

"""Tests the errors on the other ranks of a torch.distributed program when one rank fails."""

from __future__ import annotations

import unittest

from ronda_test import run


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

    def test_another_place_than_the_jobs(self):
        source = """
            import torch.distributed as dist
            import ronda.torch.c10d
            dist.init_process_group("ronda", store=dist.HashStore(), rank=0, world_size=1)
        """
        finished = run(source, 2)
        self.assertNotEqual(finished.code, 0)
        self.assertRegex(finished.err, "rank 0 of 1, but it is rank [01] of 2 in Ronda's job")
