# SPDX-License-Identifier: Apache-2.0

"""Tests the errors of a torch.distributed group's lane, without a GPU."""

from __future__ import annotations

import textwrap
import unittest

import stand_in  # isort: skip  # before torch
from ronda_test import Finished, run

_BEGIN_SHUT = """
    import os, signal, sys
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # rondarun's, after the failure
    sys.path.insert(0, "tests/python/cuda")
    from late_values import DEVICE, fill_late, on_device, use_device
    import ronda
    import ronda.torch.c10d
    import torch
    import torch.distributed as dist

    use_device()
    dist.init_process_group("ronda", device_id=DEVICE)
    tensor = on_device(1.0).clone()
    torch.cuda.synchronize()
"""

_BEGIN = f"""{_BEGIN_SHUT}
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    dist.barrier()
"""

# The stream of rank 0 waits for an operation of rank 1, which has been killed.
_BEGIN_DEAD = f"""{_BEGIN}
    if dist.get_rank() == 0:
        dist.all_reduce(tensor)
    ronda.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def setUpModule() -> None:
    stand_in.require()


def run_ranks(
    body: str, begin: str = _BEGIN, failure_grace: str = "continue", memory_mb: int = 0
) -> Finished:
    """Runs `begin` and then `body` on two ranks. By default `begin` opens a lane."""
    return run(
        textwrap.dedent(begin) + textwrap.dedent(body),
        2,
        ["--grace-period=20"],
        {"RONDA_FAILURE_GRACE": failure_grace, "RONDA_LANE_MEMORY_MB": str(memory_mb)},
    )


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

    def test_a_stream_that_waits_for_a_dead_rank_does_not_go_on(self):
        finished = run_ranks(
            """
            torch.cuda.synchronize()
            print("went on", flush=True)
            """,
            begin=_BEGIN_DEAD,
            failure_grace="100ms",
        )
        self.assertNotEqual(finished.code, 0)
        self.assertNotIn("went on", finished.out)
        self.assertRegex(finished.err, "this process ends 100ms after .* rank 1 ")
        self.assertIn("a stream of the program waits for allreduce 'call 2 of lane 0", finished.err)

    def test_a_call_after_the_death_raises_though_the_stream_waits(self):
        finished = run_ranks(
            """
            try:
                while True:
                    ronda.barrier()
            except RuntimeError:
                pass
            try:
                dist.all_reduce(tensor)
                print("no error")
            except RuntimeError as error:
                print(f"error: {type(error).__name__}: {error}", flush=True)
            os._exit(7)
            """,
            begin=_BEGIN_DEAD,
            failure_grace="inf",
        )
        self.assertRegex(finished.out, "error: .*rank 1", finished.err)

    def test_tensors_in_the_lanes_memory_outlive_a_dead_rank(self):
        finished = run_ranks(
            """
            backend = dist.distributed_c10d._get_default_group()._get_backend(DEVICE)
            kept = backend.allocate_tensor(1000, dtype=torch.float32, device=DEVICE)
            kept.copy_(on_device(1.0)[:1000])
            dist.all_reduce(kept)
            torch.cuda.synchronize()
            dist.barrier()
            if dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                while True:
                    ronda.barrier()
            except RuntimeError as error:
                print(f"error: {error}", flush=True)
            dist.destroy_process_group()
            print("values:", set(kept.cpu().tolist()), flush=True)
            """,
            memory_mb=16,
        )
        self.assertRegex(finished.out, "error: .*rank 1", finished.err)
        self.assertIn("values: {2.0}", finished.out, finished.err)

    def test_ranks_whose_tensors_have_different_places_get_both_calls(self):
        finished = run_ranks(
            """
            backend = dist.distributed_c10d._get_default_group()._get_backend(DEVICE)
            tensors = [
                backend.allocate_tensor(1000, dtype=torch.float32, device=DEVICE) for _ in range(2)
            ]
            try:
                dist.all_reduce(tensors[dist.get_rank()])
                torch.cuda.synchronize()
                dist.all_reduce(tensor)
            except RuntimeError as error:
                print(f"error: {error}", flush=True)
            """,
            memory_mb=16,
        )
        lines = [line for line in finished.out.splitlines() if "error: " in line]
        self.assertEqual(len(lines), 2, finished.out + finished.err)
        for line in lines:
            self.assertIn("rank 0 has called allreduce (1000 x float32, memory 0, sum)", line)
            self.assertIn("rank 1 has called allreduce (1000 x float32, memory 4096, sum)", line)

    def test_a_copy_of_the_memory_that_one_rank_needs_is_refused(self):
        finished = run_ranks(
            """
            backend = dist.distributed_c10d._get_default_group()._get_backend(DEVICE)
            whole = backend.allocate_tensor(2000, dtype=torch.float32, device=DEVICE)
            try:
                dist.all_gather_into_tensor(whole, whole[:1000])  # the part of rank 0
                torch.cuda.synchronize()
                dist.all_reduce(tensor)
            except (RuntimeError, ValueError) as error:
                print(f"{dist.get_rank()} error: {error}", flush=True)
            """,
            memory_mb=16,
        )
        text = "input and output share memory"
        self.assertRegex(finished.out, f"1 error: {text}.* pass tensors that do not", finished.err)
        self.assertRegex(finished.out, f"0 error: .*rank 1 has refused: .*{text}", finished.err)

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

    def test_splits_that_differ_are_found(self):
        finished = run_ranks("""
            try:
                sizes = [[10, 20], [30, 40]][dist.get_rank()]
                expected = [[10, 30], [21, 40]][dist.get_rank()]
                room = torch.empty(sum(expected), device=DEVICE)
                dist.all_to_all_single(room, tensor[: sum(sizes)], expected, sizes)
                while True:  # NCCL may end the exchange, and then the job fails a moment later
                    torch.cuda.synchronize()
                    dist.all_reduce(tensor)
            except RuntimeError as error:
                print(f"error: {error}", flush=True)
        """)
        lines = [line for line in finished.out.splitlines() if "error: " in line]
        self.assertEqual(len(lines), 2, finished.out + finished.err)
        for line in lines:
            self.assertIn("call 2 of lane 0, alltoall: rank 0 sends 20 elements to rank 1", line)
            self.assertIn("which receives 21", line)

    def test_a_refused_exchange_fails_on_the_rank_that_makes_it(self):
        finished = run_ranks("""
            try:
                room = torch.empty(10, device=DEVICE)
                sizes = [[5, 5], [5, 6]][dist.get_rank()]
                dist.all_to_all_single(room, tensor[:10], [5, 5], sizes)
                torch.cuda.synchronize()
                dist.all_reduce(tensor)
            except (RuntimeError, ValueError) as error:
                print(f"{dist.get_rank()} error: {error}", flush=True)
        """)
        self.assertRegex(finished.out, "1 error: .*do not add up|split", finished.err)
        self.assertRegex(finished.out, "0 error: .*rank 1 has refused: ValueError", finished.err)

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

    def test_a_launch_of_a_graph_that_a_rank_omits_is_found(self):
        finished = run_ranks(
            """
            import datetime
            group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=1))
            dist.all_reduce(tensor, group=group)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                dist.all_reduce(tensor, group=group)
            dist.barrier()
            if dist.get_rank() == 0:
                graph.replay()
                torch.cuda.synchronize()
                print("went on", flush=True)
            try:
                while True:
                    ronda.barrier()
            except RuntimeError as error:
                print(f"error: {error}", flush=True)
            os._exit(7)
            """,
            failure_grace="100ms",
        )
        self.assertNotEqual(finished.code, 0)
        self.assertNotIn("went on", finished.out)
        report = r"waited 1s for .* to carry out allreduce 'call 2 of lane \d+: .*, captured'"
        self.assertRegex(finished.out, f"error: .*{report} of a CUDA graph", finished.err)
        self.assertRegex(finished.err, "this process ends 100ms after .* rank 0 ")

    def test_a_refused_operation_of_the_engine_leaves_the_lane_as_it_is(self):
        finished = run_ranks("""
            rank = dist.get_rank()
            parts = torch.ones(2 * tensor.numel() - rank, device=DEVICE)
            for operation in (
                lambda: dist.reduce_scatter_tensor(tensor, parts, dist.ReduceOp.MAX),
                lambda: dist.reduce_scatter_tensor(tensor.short(), parts.short()),
            ):
                try:
                    operation()
                    print("no error", flush=True)
                except (RuntimeError, ValueError) as error:
                    print(f"{rank} error: {error}", flush=True)
            for _ in range(3):
                dist.all_reduce(tensor)
            torch.cuda.synchronize()
            print(f"{rank} goes on", flush=True)
        """)
        self.assertEqual(finished.code, 0, finished.out + finished.err)
        for rank in range(2):
            self.assertEqual(finished.out.count(f"{rank} error: "), 2, finished.out)
            self.assertIn(f"{rank} goes on", finished.out)
        self.assertRegex(finished.out, "0 error: .*rank 1.*refused.*2 times as many")

    def test_the_first_collective_of_a_group_can_be_refused(self):
        for last in ("dist.ReduceOp.SUM", "dist.ReduceOp.MAX"):
            finished = run_ranks(
                f"""
                try:
                    parts = torch.ones(2 * tensor.numel() - dist.get_rank(), device=DEVICE)
                    dist.reduce_scatter_tensor(tensor, parts, {last})
                    torch.cuda.synchronize()
                    dist.barrier()
                    print("no error", flush=True)
                except (RuntimeError, ValueError) as error:
                    print(f"{{dist.get_rank()}} error: {{error}}", flush=True)
                """,
                _BEGIN_SHUT,
            )
            self.assertRegex(finished.out, "1 error: .*2 times as many elements", finished.err)
            self.assertRegex(finished.out, "0 error: .*rank 1.*refused.*ValueError", finished.err)
