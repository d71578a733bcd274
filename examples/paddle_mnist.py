# SPDX-License-Identifier: Apache-2.0

"""LeNet-5 on MNIST digits, trained by any number of ranks: a program written for Paddle's Fleet.

    rondarun -np 2 python3 examples/paddle_mnist.py

Ronda appears only in the import. With `from paddle.distributed import fleet` instead, this is a
program for Paddle alone.
"""

from __future__ import annotations

import argparse
import gzip
import pathlib

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.io import DataLoader, DistributedBatchSampler, TensorDataset
from ronda.paddle import fleet

DIGITS = pathlib.Path(__file__).parent / "lenet_mnist" / "data"


def read_idx(path: pathlib.Path) -> np.ndarray:
    """Reads a uint8 array from a gzipped file in the MNIST format."""
    data = gzip.decompress(path.read_bytes())
    dims = data[3]
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(dims)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dims).reshape(shape)


def load_digits(part: str, folder: pathlib.Path = DIGITS) -> TensorDataset:
    """Reads images (N, 1, 28, 28), from -0.5 to 0.5, and labels; `part` is train or t10k."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz").astype(np.float32) / 255 - 0.5
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz").astype(np.int64)
    return TensorDataset([paddle.to_tensor(images[:, None]), paddle.to_tensor(labels)])


class LeNet(paddle.nn.Layer):
    """LeNet-5 with rectifiers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = paddle.nn.Conv2D(1, 6, 5, padding=2)
        self.conv2 = paddle.nn.Conv2D(6, 16, 5)
        self.fc1 = paddle.nn.Linear(400, 120)
        self.fc2 = paddle.nn.Linear(120, 84)
        self.fc3 = paddle.nn.Linear(84, 10)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Returns the scores of the ten digits, shape (N, 10), for images (N, 1, 28, 28)."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def train(
    model: paddle.nn.Layer, optimizer: paddle.optimizer.Optimizer, loader: DataLoader
) -> None:
    """Makes one pass over this rank's part of the data."""
    model.train()
    for images, labels in loader:
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.clear_grad()


@paddle.no_grad()
def accuracy_of(model: paddle.nn.Layer, digits: TensorDataset) -> float:
    """Returns the fraction of digits that the model recognises."""
    model.eval()
    images, labels = digits.tensors
    return float((model(images).argmax(1) == labels).astype("float32").mean())


def main() -> None:
    """Trains and prints the accuracy after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=DIGITS, help="folder of the digits")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients in 16 bits")
    args = parser.parse_args()

    paddle.set_device("cpu")
    strategy = fleet.DistributedStrategy()
    strategy.fp16_allreduce = args.fp16_allreduce
    fleet.init(is_collective=True, strategy=strategy)
    paddle.seed(42 + fleet.worker_index())
    digits = {part: load_digits(part, args.data) for part in ("train", "t10k")}
    batch = max(args.batch_size // fleet.worker_num(), 1)
    sampler = DistributedBatchSampler(digits["train"], batch, shuffle=True)
    loader = DataLoader(digits["train"], batch_sampler=sampler)

    model = fleet.distributed_model(LeNet())
    rate = paddle.optimizer.lr.ExponentialDecay(args.lr, 0.5)
    optimizer = paddle.optimizer.Momentum(rate, 0.9, parameters=model.parameters())
    optimizer = fleet.distributed_optimizer(optimizer)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train(model, optimizer, loader)
        rate.step()
        accuracy = accuracy_of(model, digits["t10k"])  # the same on every rank
        if fleet.is_first_worker():
            print(f"epoch {epoch + 1}: accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
