# SPDX-License-Identifier: Apache-2.0

"""Compares Ronda with NCCL in training steps of ResNet-50 on a GPU.

    rondarun -np 2 python3 bench/python/gpu_step.py [--batch 32] [--rounds 6] [--keep-gradients]

"alone" is a step of one process without communication. "ddp" is torch's DistributedDataParallel
over each backend, with the gradients in DDP's buckets; "optimizer" is
ronda.torch.DistributedOptimizer. Each row shows the time of a step, from its first kernel to the
end of its last kernel, and the CPU time of all threads of the process. Ranks that share a GPU slow
each other down, so compare rows of one run, not runs on different machines.
"""

import argparse
import os
import resource
import statistics
import time

import ronda.torch as hvd
import ronda.torch.c10d  # noqa: F401
import torch
import torch.distributed as dist
import torchvision  # type: ignore[import-untyped]
from ronda._library import native
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    """A model, its optimizer, and its step times."""

    def __init__(self, name: str, device: torch.device, keeps_gradients: bool) -> None:
        torch.manual_seed(1)
        self.model: nn.Module = torchvision.models.resnet50().to(device)
        parameters = list(self.model.named_parameters())
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        if name == "optimizer":
            self.optimizer = hvd.DistributedOptimizer(self.optimizer, parameters)
        elif name != "alone":
            self.model = DistributedDataParallel(
                self.model,
                process_group=dist.new_group(backend=name.split()[-1]),
                gradient_as_bucket_view=True,
                broadcast_buffers=False,
            )
        self.keeps_gradients = keeps_gradients
        self.steps = 0
        self.milliseconds: list[float] = []
        self.cpu_milliseconds: list[float] = []

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Trains on one batch and waits for the device."""
        begin, cpu = time.perf_counter(), cpu_seconds()
        # DistributedOptimizer has memory for gradients (gpu_memory.md) after its first step.
        self.optimizer.zero_grad(set_to_none=not self.keeps_gradients or self.steps < 2)
        self.steps += 1
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        torch.cuda.synchronize()
        self.milliseconds.append(1e3 * (time.perf_counter() - begin))
        self.cpu_milliseconds.append(1e3 * (cpu_seconds() - cpu))

    def forget(self, steps: int) -> None:
        """Excludes the last `steps` steps from the figures."""
        del self.milliseconds[-steps:], self.cpu_milliseconds[-steps:]


def cpu_seconds() -> float:
    """Returns the CPU time of all threads of this process, in user mode and in the kernel."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def buckets_of(before: dict[str, int], after: dict[str, int], steps: int) -> str:
    """Returns how many buckets Ronda has reduced per step: scheduled + negotiated."""
    agreed = (after["buckets_agreed"] - before["buckets_agreed"]) / steps
    scheduled = (after["buckets_scheduled"] - before["buckets_scheduled"]) / steps
    return f"{scheduled:.1f} + {agreed:.1f}"


def used_gigabytes() -> float:
    """Returns how much device memory all processes use together."""
    free, total = torch.cuda.mem_get_info()
    return (total - free) / 1e9


def main() -> None:
    """Runs the measurement and prints a table on rank 0."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--batch", type=int, default=32, help="images of a rank")
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--steps", type=int, default=12, help="of a row in each round")
    flags.add_argument("--warm-up", type=int, default=8, help="steps of a row before these")
    flags.add_argument("--keep-gradients", action="store_true", help="zero_grad() fills with zeros")
    options = flags.parse_args()

    torch.set_num_threads(1)
    device = torch.device("cuda", int(os.environ["RONDA_LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("ronda", device_id=device)
    hvd.init()
    images = torch.randn(options.batch, 3, 224, 224, device=device)
    labels = torch.randint(1000, (options.batch,), device=device)
    names = ["alone", "ddp ronda", "ddp nccl", "optimizer"]
    trainers = {}
    for name in names:
        trainers[name] = Trainer(name, device, options.keep_gradients)
        for _ in range(4):
            trainers[name].step(images, labels)
        trainers[name].forget(4)
        if dist.get_rank() == 0:
            print(f"# with {name}: {used_gigabytes():.2f} GB of the device in use", flush=True)
    buckets = dict.fromkeys(names, "")
    for _ in range(options.rounds):
        for name, trainer in trainers.items():
            dist.barrier()
            for _ in range(options.warm_up):  # a locked schedule begins after repeated steps
                trainer.step(images, labels)
            trainer.forget(options.warm_up)
            before = native.statistics()
            for _ in range(options.steps):
                trainer.step(images, labels)
            buckets[name] = buckets_of(before, native.statistics(), options.steps)
    if dist.get_rank() == 0:
        device, ranks = torch.cuda.get_device_name(), dist.get_world_size()
        print(f"# {device}, {ranks} ranks, torch {torch.__version__}")
        head = f"{'ResNet-50':12} {'step ms':>8} {'best':>8} {'CPU ms':>8}"
        print(f"{head}  Ronda's buckets: scheduled + negotiated")
        for row, each in trainers.items():
            step, cpu = (statistics.median(x) for x in (each.milliseconds, each.cpu_milliseconds))
            print(f"{row:12} {step:8.1f} {min(each.milliseconds):8.1f} {cpu:8.1f}  {buckets[row]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
