# SPDX-License-Identifier: Apache-2.0

"""LeNet-5 on MNIST digits, trained by any number of ranks: a program written for Horovod.

    rondarun -np 2 python3 examples/pytorch_mnist.py

Ronda appears only in the import. With `import horovod.torch as hvd` this is a Horovod program.
"""

from __future__ import annotations

import argparse
import gzip
import pathlib

import ronda.torch as hvd
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

DIGITS = pathlib.Path(__file__).parent / "lenet_mnist" / "data"


def read_idx(path: pathlib.Path) -> torch.Tensor:
    """Reads a uint8 tensor from a gzipped file in the MNIST format."""
    data = bytearray(gzip.decompress(path.read_bytes()))
    dims = data[3]
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(dims)]
    return torch.frombuffer(data, dtype=torch.uint8, offset=4 + 4 * dims).view(shape)


def load_digits(part: str, folder: pathlib.Path = DIGITS) -> TensorDataset:
    """Reads images (N, 1, 28, 28), from -0.5 to 0.5, and labels; `part` is train or t10k."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz").float().div_(255).sub_(0.5)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz").long()
    return TensorDataset(images.unsqueeze(1), labels)


class LeNet(torch.nn.Module):
    """LeNet-5 with rectifiers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = torch.nn.Conv2d(6, 16, 5)
        self.fc1 = torch.nn.Linear(400, 120)
        self.fc2 = torch.nn.Linear(120, 84)
        self.fc3 = torch.nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the scores of the ten digits, shape (N, 10), for images (N, 1, 28, 28)."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader) -> None:
    """Makes one pass over this rank's part of the data."""
    model.train()
    for images, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()


@torch.no_grad()
def test(model: torch.nn.Module, loader: DataLoader) -> float:
    """Returns the fraction of digits that the model recognises, over all ranks."""
    model.eval()
    right = seen = 0
    for images, labels in loader:
        right += int((model(images).argmax(1) == labels).sum())
        seen += len(labels)
    total = hvd.allreduce(torch.tensor([right, seen]), op=hvd.Sum, name="right answers")
    return float(total[0] / total[1])


def main() -> None:
    """Trains and prints the accuracy after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=DIGITS, help="folder of the digits")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients in 16 bits")
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    digits = {part: load_digits(part, args.data) for part in ("train", "t10k")}
    sampler = {
        part: DistributedSampler(each, hvd.size(), hvd.rank()) for part, each in digits.items()
    }
    batch = max(args.batch_size // hvd.size(), 1)
    loader = {part: DataLoader(each, batch, sampler=sampler[part]) for part, each in digits.items()}

    model = LeNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
    )
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for epoch in range(args.epochs):
        sampler["train"].set_epoch(epoch)
        train(model, optimizer, loader["train"])
        schedule.step()
        accuracy = test(model, loader["t10k"])
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
