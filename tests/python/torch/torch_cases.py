# SPDX-License-Identifier: Apache-2.0

"""Helpers for tests of Horovod's operations: a job, and numbers that differ between ranks."""

import copy
import unittest

import ronda.torch as hvd
import torch

DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64,
]  # fmt: skip


def setUpModule():
    torch.set_num_threads(1)
    hvd.init()


def tearDownModule():
    hvd.shutdown()


def needs_other_ranks(test):
    if hvd.size() == 1:
        test.skipTest("needs other ranks")


def of_rank(rank, shape=(5, 3), dtype=torch.float32):
    """Returns small whole numbers that differ between ranks and are exact in every dtype."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) + 2 * rank) % 7).reshape(shape).to(dtype)


def of_all(shape=(5, 3), dtype=torch.float32):
    return torch.stack([of_rank(rank, shape, dtype) for rank in range(hvd.size())])


def parameters_for(kind, model):
    """Returns the parameters that an optimizer of class `kind` accepts. Muon, in newer versions of
    torch, accepts only matrices.
    """
    matrices_only = kind.__name__ == "Muon"
    return [each for each in model.parameters() if not matrices_only or each.ndim == 2]


def make_model(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3), torch.nn.Tanh()
    )


def batch(rank, step):
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(100 * step + rank))


def loss_of(model, rank, step):
    return model(batch(rank, step)).square().mean()


def weights(model):
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, **options)


def pair(model, make_optimizer, **options):
    """Returns the model's distributed optimizer, and a copy of the model with its own optimizer."""
    whole = copy.deepcopy(model)
    optimizer = hvd.DistributedOptimizer(
        make_optimizer(model.parameters()), model.named_parameters(), **options
    )
    return optimizer, whole, make_optimizer(whole.parameters())


def loss_of_all(model, step):
    return sum(loss_of(model, rank, step) for rank in range(hvd.size())) / hvd.size()


class TrainingCase(unittest.TestCase):
    """Of a DistributedOptimizer."""

    def assert_same_on_all_ranks(self, model):
        own = weights(model)
        for each in hvd.allgather(own.unsqueeze(0)):
            self.assertTrue(torch.equal(each, own))

    def wrap(self, model, **options):
        return hvd.DistributedOptimizer(
            sgd(model), named_parameters=model.named_parameters(), **options
        )
