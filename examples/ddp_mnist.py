# SPDX-License-Identifier: Apache-2.0

"""LeNet-5 on MNIST digits with PyTorch's DistributedDataParallel over Ronda.

    rondarun -np 2 python3 examples/ddp_mnist.py        (or torchrun, or mpirun)

Lines marked (ddp) turn a single-process script into a distributed one.
"""

from __future__ import annotations

import argparse
import gzip
import pathlib

import ronda.torch.c10d  # noqa: F401  (ddp) makes the backend known
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

DIGITS = pathlib.Path(__file__).parent / "lenet_mnist" / "data"


def digits(folder: pathlib.Path, part: str) -> TensorDataset:
    """Reads the digits of one part, "train" or "t10k".

    Returns:
        Images of shape (1, 28, 28), from 0 to 1, and their labels.
    """
    read = {}
    for kind, header in (("images-idx3", 16), ("labels-idx1", 8)):
        content = gzip.decompress((folder / f"{part}-{kind}-ubyte.gz").read_bytes())
        read[kind] = torch.frombuffer(bytearray(content[header:]), dtype=torch.uint8)
    images = read["images-idx3"].view(-1, 1, 28, 28).float() / 255
    return TensorDataset(images, read["labels-idx1"].long())


def lenet() -> nn.Module:
    """LeNet-5 with ReLU and max pooling, for images of shape (n, 1, 28, 28)."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def train(model: nn.Module, data: TensorDataset, epochs: int, batch: int, rate: float) -> None:
    """Trains for some epochs; `batch` is the total batch size over all ranks."""
    sampler = DistributedSampler(data, seed=1)  # (ddp) each rank gets its part of the digits
    loader = DataLoader(data, batch // dist.get_world_size(), sampler=sampler, drop_last=True)
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, epochs * len(loader))
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # (ddp) another order in each epoch
        for images, labels in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            schedule.step()


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """Returns the fraction of digits that the model recognises; each rank tests a part of them."""
    images, labels = (each[dist.get_rank() :: dist.get_world_size()] for each in data.tensors)
    with torch.no_grad():
        correct = (model(images).argmax(1) == labels).sum()
    dist.all_reduce(correct)  # (ddp)
    return correct.item() / len(data)


def main() -> None:
    """Trains, and prints the accuracy on rank 0."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--data", type=pathlib.Path, default=DIGITS, help="folder of the digits")
    flags.add_argument("--epochs", type=int, default=5)
    flags.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    flags.add_argument("--rate", type=float, default=0.1, help="highest learning rate")
    flags.add_argument("--backend", default="ronda", help="of torch.distributed")
    options = flags.parse_args()

    dist.init_process_group(options.backend)  # (ddp) rank and size come from the launcher
    torch.manual_seed(1)
    model = DistributedDataParallel(lenet())  # (ddp) averages the gradients during backward
    train(model, digits(options.data, "train"), options.epochs, options.batch_size, options.rate)
    found = accuracy(model.module, digits(options.data, "t10k"))
    if dist.get_rank() == 0:
        print(f"accuracy {found:.4f} on {dist.get_world_size()} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
