# SPDX-License-Identifier: Apache-2.0

"""Compares backends in a DDP step with ResNet-50's gradients and no computation.

    rondarun -np 2 python3 bench/python/ddp_step.py [--backends ronda,hook,gloo] [--bucket-view]

All backends take turns of a few steps in the same processes. "hook" is Ronda with
ronda.torch.ddp_hook, which averages, so that DDP need not divide. Two rows without communication
show the time that no backend can change: "none" is backward alone, which fills the gradients with
zeros, and "ddp" adds DDP's work on its buckets.
"""

import argparse
import resource
import statistics
import time

import ronda.torch.c10d  # noqa: F401
import torch
import torch.distributed as dist
from ronda._library import native
from ronda.torch.ddp_hook import CompressionState, compressed_allreduce
from ronda.types import Wire
from torch import nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel


def resnet50_shapes() -> list[tuple[int, ...]]:
    """Returns the shapes of ResNet-50's 161 parameters in layer order."""
    shapes: list[tuple[int, ...]] = []

    def convolution(inputs: int, outputs: int, kernel: int) -> None:
        shapes.extend([(outputs, inputs, kernel, kernel), (outputs,), (outputs,)])

    convolution(3, 64, 7)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convolution(inputs, width, 1)
            convolution(width, width, 3)
            convolution(width, 4 * width, 1)
            if block == 0:
                convolution(inputs, 4 * width, 1)
            inputs = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


class Parameters(nn.Module):
    """Parameters whose gradients are cheap to compute: only the first element is not zero."""

    def __init__(self) -> None:
        super().__init__()
        self.all = nn.ParameterList([nn.Parameter(torch.zeros(s)) for s in resnet50_shapes()])

    def forward(self) -> torch.Tensor:
        total = torch.zeros(())
        for parameter in self.all:
            total = total + parameter.view(-1)[0] * (dist.get_rank() + 1)
        return total


def leave_bucket(_state: object, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """A DDP communication hook that does not communicate."""
    future: Future[torch.Tensor] = Future()
    future.set_result(bucket.buffer())
    return future


def make_model(name: str, bucket_view: bool) -> nn.Module:
    """Returns the Parameters, alone or wrapped in DDP. `name` selects how DDP averages."""
    if name == "none":
        return Parameters()
    group = None if name in ("ddp", "ronda", "hook") else dist.new_group(backend=name)
    model = DistributedDataParallel(
        Parameters(), process_group=group, gradient_as_bucket_view=bucket_view
    )
    if name == "ddp":
        model.register_comm_hook(None, leave_bucket)
    if name == "hook":
        model.register_comm_hook(CompressionState(wire=Wire.NONE), compressed_allreduce)
    return model


def cpu_seconds() -> float:
    """Returns the CPU time of all threads of this process, in user mode and in the kernel."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def step(model: nn.Module, keeps_gradients: bool) -> tuple[float, float]:
    """Runs one step and returns its elapsed time and its CPU time, in seconds."""
    begin, cpu = time.perf_counter(), cpu_seconds()
    model.zero_grad(set_to_none=not keeps_gradients)
    model().backward()
    return time.perf_counter() - begin, cpu_seconds() - cpu


def check(model: nn.Module) -> None:
    """Raises ValueError if any gradient is not the average over the ranks."""
    expected = (dist.get_world_size() + 1) / 2
    for parameter in model.parameters():
        first, rest = parameter.grad.view(-1)[0].item(), parameter.grad.view(-1)[1:]
        if first != expected or rest.any():
            raise ValueError(f"a gradient begins with {first}, not {expected}")


def main() -> None:
    """Runs the measurement and prints a table on rank 0."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument(
        "--backends", default="ronda,hook,gloo", help="in turns: ronda, hook, or one of torch"
    )
    flags.add_argument("--bucket-view", action="store_true", help="gradient_as_bucket_view")
    flags.add_argument("--rounds", type=int, default=6)
    flags.add_argument("--steps", type=int, default=6, help="of a backend in each round")
    options = flags.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("ronda")
    meet = dist.new_group(backend="gloo")
    names = options.backends.split(",")
    models = {name: make_model(name, options.bucket_view) for name in ["none", "ddp", *names]}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
    for number in range(-3, options.rounds):
        before = native.statistics()
        for name, model in models.items():
            dist.barrier(meet)
            keeps = options.bucket_view and name != "none"
            measured = [step(model, keeps) for _ in range(options.steps)]
            if number >= 0:
                seconds[name] += measured
    after = native.statistics()
    for name in names:
        step(models[name], False)
        check(models[name])
    if dist.get_rank() == 0:
        for name, measured in seconds.items():
            times = [1e3 * step_time for step_time, _ in measured]
            cpu = statistics.median(1e3 * cpu_time for _, cpu_time in measured)
            print(
                f"{name:6} step {statistics.median(times):6.1f} ms (best {min(times):.1f}), "
                f"{cpu:.1f} ms of CPU time"
            )
        agreed = after["buckets_agreed"] - before["buckets_agreed"]
        scheduled = after["buckets_scheduled"] - before["buckets_scheduled"]
        print(f"ronda's buckets in the last round: {scheduled} scheduled, {agreed} negotiated")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
