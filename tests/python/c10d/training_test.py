# SPDX-License-Identifier: Apache-2.0

"""Trains LeNet with DDP. The weights must be equal on all ranks, and as good as with gloo."""

from __future__ import annotations

import hashlib
import io
import pathlib
import sys
import unittest

import ronda.torch.c10d  # noqa: F401
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

sys.path.insert(0, str(pathlib.Path("examples").absolute()))
import ddp_mnist  # noqa: E402


def setUpModule() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("ronda")


def tearDownModule() -> None:
    dist.destroy_process_group()


def hash_of(model: torch.nn.Module) -> str:
    content = io.BytesIO()
    for tensor in model.state_dict().values():
        content.write(tensor.numpy().tobytes())
    return hashlib.sha256(content.getvalue()).hexdigest()


class TrainingTest(unittest.TestCase):
    def train(self, epochs: int, digits: int, group: object = None) -> torch.nn.Module:
        data = ddp_mnist.digits(ddp_mnist.DIGITS, "train")
        torch.manual_seed(dist.get_rank())  # DDP starts from rank 0's weights
        model = DistributedDataParallel(ddp_mnist.lenet(), process_group=group)
        ddp_mnist.train(model, TensorDataset(*data[:digits]), epochs, 64, 0.1)
        return model.module

    def test_accuracy_and_equal_weights(self):
        model = self.train(3, 8000)
        hashes = [None] * dist.get_world_size()
        dist.all_gather_object(hashes, hash_of(model))
        self.assertEqual(len(set(hashes)), 1)
        found = ddp_mnist.accuracy(model, ddp_mnist.digits(ddp_mnist.DIGITS, "t10k"))
        self.assertGreaterEqual(found, 0.97)

    def test_weights_are_those_of_gloo(self):
        over_ronda = self.train(1, 640)
        over_gloo = self.train(1, 640, dist.new_group(backend="gloo"))
        for ours, theirs in zip(over_ronda.parameters(), over_gloo.parameters()):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
