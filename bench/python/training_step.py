# SPDX-License-Identifier: Apache-2.0

"""Compares ways to train on a CPU, in steps of forward, backward, communication and SGD.

    rondarun -np 2 python3 bench/python/training_step.py [--model mlp|lenet] [--batch 32]

The rows of the output:

    alone      one process, without communication
    ddp        torch's DistributedDataParallel, over Ronda and over Gloo
    views      the same with gradient_as_bucket_view
    fsdp       torch's fully_shard of each layer and of the whole model, if this torch has it
    optimizer  ronda.torch.DistributedOptimizer

All ways take turns of a few steps in the same processes. The images are random noise.
"""

import argparse
import importlib
import statistics
import time

import ronda.torch as hvd
import ronda.torch.c10d  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def make_mlp() -> nn.Module:
    """Returns a perceptron with 10,068,810 parameters in 6 tensors."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 2800),
        nn.ReLU(),
        nn.Linear(2800, 2800),
        nn.ReLU(),
        nn.Linear(2800, 10),
    )


def make_lenet() -> nn.Module:
    """Returns a LeNet-5 with 61,706 parameters in 10 tensors."""
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


MODELS = {"mlp": make_mlp, "lenet": make_lenet}


class Trainer:
    """A model and its step times."""

    def __init__(self, name: str, model: nn.Module) -> None:
        self.model = model
        if name.startswith("ddp"):
            group = None if name.endswith("ronda") else dist.new_group(backend="gloo")
            self.model = DistributedDataParallel(
                model, process_group=group, gradient_as_bucket_view="views" in name
            )
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        if name.startswith("fsdp"):
            shard(model, name.split()[-1])
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        if name == "optimizer":
            self.optimizer = hvd.DistributedOptimizer(self.optimizer, model.named_parameters())
        self.keeps_gradients = "views" in name
        self.seconds: list[float] = []

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> float:
        """Trains on one batch and returns the time in seconds."""
        begin = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=not self.keeps_gradients)
        nn.functional.cross_entropy(self.model(images), labels).backward()
        self.optimizer.step()
        return time.perf_counter() - begin


def has_fully_shard() -> bool:
    """Returns whether this torch has fully_shard() (FSDP2)."""
    return "fully_shard" in dir(importlib.import_module("torch.distributed.fsdp"))


def shard(model: nn.Module, backend: str) -> None:
    """Shards each layer and then the whole model over all ranks."""
    meshes = importlib.import_module("torch.distributed.device_mesh")
    fsdp = importlib.import_module("torch.distributed.fsdp")
    group = dist.new_group(backend=backend)
    mesh = meshes.DeviceMesh.from_group(group, "cpu")
    for layer in model.children():
        if list(layer.parameters()):
            fsdp.fully_shard(layer, mesh=mesh)
    fsdp.fully_shard(model, mesh=mesh)


def main() -> None:
    """Runs the measurement and prints a table on rank 0."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--model", choices=MODELS, default="mlp")
    flags.add_argument("--batch", type=int, default=32, help="images a rank and step")
    flags.add_argument("--rounds", type=int, default=8)
    flags.add_argument("--steps", type=int, default=6, help="of a kind in each round")
    options = flags.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("ronda")
    hvd.init()
    meet = dist.new_group(backend="gloo")
    trainers: dict[str, Trainer] = {}
    ways = ["ddp, ronda", "ddp, gloo", "ddp, views, ronda", "ddp, views, gloo"]
    if has_fully_shard():
        ways += ["fsdp, ronda", "fsdp, gloo"]
    for name in ["alone", *ways, "optimizer"]:
        torch.manual_seed(1)
        trainers[name] = Trainer(name, MODELS[options.model]())
    torch.manual_seed(dist.get_rank())
    images = torch.randn(options.batch, 1, 28, 28)
    labels = torch.randint(0, 10, (options.batch,))
    for number in range(-2, options.rounds):
        for trainer in trainers.values():
            dist.barrier(meet)
            measured = [trainer.step(images, labels) for _ in range(options.steps)]
            if number >= 0:
                trainer.seconds += measured
    if dist.get_rank() == 0:
        for name, trainer in trainers.items():
            times = [1e3 * each for each in trainer.seconds]
            print(f"{name:18} step {statistics.median(times):6.2f} ms (best {min(times):.2f})")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
