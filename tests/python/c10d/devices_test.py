# SPDX-License-Identifier: Apache-2.0

"""Tests groups with a different backend for each device, one of which is Ronda."""

from __future__ import annotations

import datetime
import time
import unittest
from unittest import mock

import ronda.torch.c10d
import torch
import torch.distributed as dist

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
HAS_BACKENDS = hasattr(getattr(torch._C._distributed_c10d, "Backend", None), "all_gather_single")
CPU = torch.device("cpu")


def backend_of_cpus(group: dist.ProcessGroup | None = None) -> object:
    return (group or dist.group.WORLD)._get_backend(CPU)


class DevicesTest(unittest.TestCase):
    def tearDown(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()

    def check_collectives(self, group: dist.ProcessGroup | None = None) -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        total = torch.ones(3) * (rank + 1)
        dist.all_reduce(total, group=group)
        self.assertEqual(total.tolist(), [size * (size + 1) / 2] * 3)
        ranks = [None] * size
        dist.all_gather_object(ranks, rank, group=group)
        self.assertEqual(ranks, list(range(size)))
        dist.barrier(group)
        dist.monitored_barrier(group, timeout=datetime.timedelta(seconds=60))

    def test_a_barrier_comes_after_the_work_of_the_gpus_stream(self):
        """The stream is a mock that reports waits. The tests in tests/python/cuda use real
        streams.
        """
        dist.init_process_group("ronda")
        size = dist.get_world_size()
        store = dist.PrefixStore("barrier", dist.distributed_c10d._get_default_store())
        stream = mock.Mock()
        stream.synchronize.side_effect = lambda: store.add("finished", 1)
        with (
            mock.patch("torch.cuda.is_initialized", return_value=True),
            mock.patch("torch.cuda.current_stream", return_value=stream),
        ):
            dist.barrier()
        self.assertEqual(store.add("finished", 0), size)
        store.add("looked", 1)
        while store.add("looked", 0) < size:  # rank 0 has the store
            time.sleep(0.001)

    @unittest.skipUnless(HAS_BACKENDS, "before 2.15 Ronda serves all devices of a group")
    def test_serves_cpus_beside_another_backend_for_gpus(self):
        dist.init_process_group("cpu:ronda,cuda:gloo")
        self.assertIsInstance(backend_of_cpus(), ronda.torch.c10d.Group)
        self.check_collectives()
        group = dist.new_group()  # with the same backends
        self.assertIsInstance(backend_of_cpus(group), ronda.torch.c10d.Group)
        self.check_collectives(group)

    @unittest.skipUnless(HAS_BACKENDS, "before 2.15 Ronda serves all devices of a group")
    def test_serves_gpus_beside_another_backend_for_cpus(self):
        dist.init_process_group("cpu:gloo,cuda:ronda")
        self.assertIsInstance(backend_of_cpus(), dist.ProcessGroupGloo)
        self.check_collectives()
        self.check_collectives(dist.new_group())

    @unittest.skipUnless(HAS_BACKENDS, "before 2.15 Ronda serves all devices of a group")
    @unittest.skipIf(torch.cuda.is_available(), "has a GPU")
    def test_nccl_without_a_gpu_is_refused_as_beside_gloo_and_leaves_nothing(self):
        words = []
        for backend in ("gloo", "ronda"):
            with self.assertRaises(RuntimeError) as caught:
                dist.init_process_group(f"cpu:{backend},cuda:nccl")
            words.append(str(caught.exception))
        self.assertEqual(*words)
        dist.init_process_group("ronda")
        self.check_collectives()

    @unittest.skipIf(HAS_BACKENDS or VERSION < (2, 0), "this torch asks for no backend by device")
    def test_older_torch_is_told_what_to_pass(self):
        for backend in ("cpu:ronda,cuda:nccl", "cpu:gloo,cuda:ronda"):
            with self.assertRaisesRegex(ValueError, f"backend '{backend}'.*Pass 'ronda' alone"):
                dist.init_process_group(backend)
