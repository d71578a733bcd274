# SPDX-License-Identifier: Apache-2.0

"""The errors of the lane of a group of torch.distributed, without a GPU."""

from __future__ import annotations

import textwrap
import unittest

import stand_in  # isort: skip  # before torch
from ronda_test import Finished, run

_BEGIN = """
    import os, signal, sys
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # rondarun's, after the failure
    sys.path.insert(0, "tests/python/cuda")
    from late_values import DEVICE, fill_late, on_device, use_device
    import ronda.torch.c10d
    import torch
    import torch.distributed as dist

    use_device()
    dist.init_process_group("ronda", device_id=DEVICE)
    tensor = on_device(1.0).clone()
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    dist.barrier()
"""


def setUpModule() -> None:
    stand_in.require()


def run_ranks(body: str) -> Finished:
    """Runs `body` on two ranks that have an open lane."""
    return run(textwrap.dedent(_BEGIN) + textwrap.dedent(body), 2, ["--grace-period=20"])


class LaneFailureTest(unittest.TestCase):
    def test_the_death_of_a_rank_ends_the_calls_of_the_others(self):
        finished = run_ranks("""
            if dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                dist.all_reduce(tensor)
                torch.cuda.synchronize()
                dist.all_reduce(tensor)
                print("no error")
            except RuntimeError as error:
                print(f"error: {type(error).__name__}: {error}", flush=True)
        """)
        self.assertNotEqual(finished.code, 0)
        self.assertRegex(finished.out, "error: .*rank 1", finished.err)

    def test_ranks_that_differ_get_both_calls(self):
        finished = run_ranks("""
            try:
                if dist.get_rank() == 0:
                    dist.all_reduce(tensor)
                else:
                    dist.broadcast(tensor, 0)
                torch.cuda.synchronize()
                dist.all_reduce(tensor)
            except RuntimeError as error:
                print(f"error: {error}", flush=True)
        """)
        lines = [line for line in finished.out.splitlines() if "error: " in line]
        self.assertEqual(len(lines), 2, finished.out + finished.err)
        for line in lines:
            self.assertIn("call 2 of lane 0", line)
            self.assertIn("rank 0 has called allreduce (100003 x float32, sum)", line)
            self.assertIn("rank 1 has called broadcast (100003 x float32 from rank 0)", line)

    def test_a_refused_call_fails_on_the_rank_that_makes_it(self):
        finished = run_ranks("""
            try:
                whole = torch.empty(2 * tensor.numel() - dist.get_rank(), device=DEVICE)
                dist.all_gather_into_tensor(whole, tensor)
                torch.cuda.synchronize()
                dist.all_reduce(tensor)
            except (RuntimeError, ValueError) as error:
                print(f"{dist.get_rank()} error: {error}", flush=True)
        """)
        self.assertRegex(finished.out, "1 error: .*2 times as many elements", finished.err)
        self.assertRegex(finished.out, "0 error: .*rank 1 has refused: ValueError", finished.err)
