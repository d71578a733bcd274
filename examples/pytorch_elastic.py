# SPDX-License-Identifier: Apache-2.0

"""LeNet-5 on MNIST digits, on a changing number of ranks: some may die, or leave, and others join.

    rondarun -np 4 --min-np 2 python3 examples/pytorch_elastic.py

This program is written for Horovod's elastic mode. Ronda appears only in the import.
"""

from __future__ import annotations

import argparse

import ronda.torch as hvd
import torch
import torch.nn.functional as F
from pytorch_mnist import LeNet, load_digits, test
from ronda.torch import elastic
from torch.utils.data import DataLoader

BATCH = 64  # over all ranks, if their number divides it


def main() -> None:
    """Trains, and prints the accuracy after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    digits = load_digits("train")
    model = LeNet()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9),
        named_parameters=model.named_parameters(),
    )
    sampler = elastic.ElasticSampler(digits)

    def train_epoch(state: elastic.TorchState) -> None:
        batch = BATCH // hvd.size()
        model.train()
        for i, (images, labels) in enumerate(DataLoader(digits, batch, sampler=sampler)):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
            sampler.record_batch(i, batch)
            state.commit()  # ranks join and leave at this point

    @elastic.run
    def train(state: elastic.TorchState) -> None:
        if hvd.rank() == 0:
            print(f"{hvd.size()} ranks go on in epoch {state.epoch + 1}", flush=True)
        while state.epoch < args.epochs:
            train_epoch(state)
            mine = range(hvd.rank(), len(test_digits), hvd.size())
            accuracy = test(model, DataLoader(test_digits, 100, sampler=mine))
            if hvd.rank() == 0:
                print(f"epoch {state.epoch + 1}: accuracy {accuracy:.4f}", flush=True)
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            state.commit()

    test_digits = load_digits("t10k")
    train(elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0))
    hvd.shutdown()


if __name__ == "__main__":
    main()
