# SPDX-License-Identifier: Apache-2.0

"""Trains LeNet-5 on the digits, as Horovod's examples do."""

import importlib.util
import pathlib
import unittest

import ronda.torch as hvd
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

_spec = importlib.util.spec_from_file_location(
    "pytorch_mnist", pathlib.Path("examples/pytorch_mnist.py").absolute()
)
example = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(example)


def setUpModule():
    torch.set_num_threads(1)
    hvd.init()


def tearDownModule():
    hvd.shutdown()


class TrainingTest(unittest.TestCase):
    def assert_same_on_all_ranks(self, model):
        own = torch.cat([each.detach().flatten() for each in model.parameters()])
        for each in hvd.allgather(own.unsqueeze(0)):
            self.assertTrue(torch.equal(each, own))

    def make(self):
        torch.manual_seed(hvd.rank())
        model = example.LeNet()
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        return model, hvd.DistributedOptimizer(optimizer, model.named_parameters())

    def test_reaches_the_accuracy_with_equal_weights(self):
        model, optimizer = self.make()
        digits = example.load_digits("train")
        sampler = DistributedSampler(digits, hvd.size(), hvd.rank())
        loader = DataLoader(digits, 32 // hvd.size(), sampler=sampler)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for epoch in range(4):
            sampler.set_epoch(epoch)
            example.train(model, optimizer, loader)
            schedule.step()
        self.assert_same_on_all_ranks(model)
        test = example.load_digits("t10k")
        own = DataLoader(test, 100, sampler=DistributedSampler(test, hvd.size(), hvd.rank()))
        self.assertGreaterEqual(example.test(model, own), 0.97)

    def test_uneven_data_with_join(self):
        """Rank r makes 3 + 3 r steps and then joins, so fewer ranks take part in later steps."""
        model, optimizer = self.make()
        images, labels = example.load_digits("t10k").tensors
        for step in range(3 + 3 * hvd.rank()):
            part = slice(10 * step, 10 * step + 10)
            optimizer.zero_grad()
            F.cross_entropy(model(images[part]), labels[part]).backward()
            optimizer.step()
        last = hvd.join()
        self.assertEqual(last, hvd.size() - 1)
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
        hvd.broadcast_optimizer_state(optimizer, root_rank=last)
        self.assert_same_on_all_ranks(model)
        optimizer.zero_grad()
        F.cross_entropy(model(images[:10]), labels[:10]).backward()
        optimizer.step()
        self.assert_same_on_all_ranks(model)


if __name__ == "__main__":
    unittest.main()
