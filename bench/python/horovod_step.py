# SPDX-License-Identifier: Apache-2.0

"""Compares a Horovod-style Ronda step with DDP over Gloo, with ResNet-50's gradients and no
computation.

    rondarun -np 2 python3 bench/python/horovod_step.py

Prints the time from the import to the first allreduce, without importing torch; the cost of a
gradient hook; and the step times. All variants take turns of a few steps in the same processes;
"none" is backward alone, which fills the gradients with zeros.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import weakref
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

_began = time.perf_counter()

import ronda.torch as hvd  # noqa: E402
from ronda._library import native  # noqa: E402
from ronda.torch._gradients import GradientReducer  # noqa: E402
from ronda.torch._hooks import make_hook  # noqa: E402

Turns = dict[str, "Turn"]


class Turn:
    """A model whose steps are measured."""

    def __init__(self, frees_gradients: bool) -> None:
        from ddp_step import Parameters

        self.model: torch.nn.Module = Parameters()
        self.optimizer: torch.optim.Optimizer | None = None
        self.frees_gradients = frees_gradients
        self.seconds: list[float] = []

    def step(self) -> float:
        """Returns how many seconds backward and the wait for the gradients take."""
        self.model.zero_grad(set_to_none=self.frees_gradients)
        loss = self.model()
        begin = time.perf_counter()
        loss.backward()
        if self.optimizer is not None:
            self.optimizer.synchronize()  # type: ignore[attr-defined]
        return time.perf_counter() - begin


def make_turns() -> Turns:
    """Returns the models to compare."""
    turns = {
        "none": Turn(True),
        "ronda": Turn(True),
        "ronda, gradients stay": Turn(False),
        "DDP over gloo": Turn(True),
        "DDP over gloo, views": Turn(False),
    }
    for name in ("ronda", "ronda, gradients stay"):
        model = turns[name].model
        named = [(f"{name} {each}", parameter) for each, parameter in model.named_parameters()]
        plain = torch.optim.SGD(model.parameters(), lr=0.1)
        turns[name].optimizer = hvd.DistributedOptimizer(plain, named)
    for name in ("DDP over gloo", "DDP over gloo, views"):
        turns[name].model = torch.nn.parallel.DistributedDataParallel(
            turns[name].model, gradient_as_bucket_view="views" in name
        )
    return turns


def measure_steps(rounds: int, steps: int) -> None:
    """Prints one line per Turn."""
    folder = hvd.broadcast_object(tempfile.mkdtemp())
    dist.init_process_group(
        "gloo", f"file://{folder}/store", rank=hvd.rank(), world_size=hvd.size()
    )
    turns = make_turns()
    for number in range(-3, rounds):
        before = native.statistics()
        for turn in turns.values():
            hvd.barrier()
            measured = [turn.step() for _ in range(steps)]
            if number >= 0:
                turn.seconds += measured
    after = native.statistics()
    for name, turn in turns.items():
        times = sorted(1e3 * each for each in turn.seconds)
        if hvd.rank() == 0:
            median, tenth = statistics.median(times), times[len(times) // 10]
            print(f"{name:22} step {median:6.1f} ms (10 % {tenth:.1f}, best {times[0]:.1f})")
    if hvd.rank() == 0:
        agreed = after["buckets_agreed"] - before["buckets_agreed"]
        print(f"buckets negotiated in the last round: {agreed}")
    dist.destroy_process_group()


def measure_hooks(count: int, steps: int) -> None:
    """Prints the time that backward spends in a gradient hook, from call to return."""
    layers = [torch.nn.Linear(20, 20) for _ in range(count // 2)]
    parameters = [each for layer in layers for each in layer.parameters()]
    for each in parameters:
        each.grad = torch.zeros_like(each)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1))
    reducer: GradientReducer = optimizer._reducer
    backward: Any = SimpleNamespace(is_queued=True)  # no pass ends here
    hooks = [make_hook(each, backward, weakref.ref(reducer)) for each in reducer._gradients]
    clock = time.perf_counter_ns
    costs: list[int] = []
    for step in range(steps):
        for hook in reversed(hooks):
            begin = clock()
            hook()
            end = clock()
            if step >= steps // 5:
                costs.append(end - begin)
        optimizer.synchronize()
    if hvd.rank() == 0:
        median, mean = statistics.median(costs) / 1e3, statistics.mean(costs) / 1e3
        print(f"hook: median {median:.2f} us, mean {mean:.2f} us (with about 0.04 of the clock)")


def main() -> None:
    """Runs the measurements and prints them on rank 0."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--rounds", type=int, default=10)
    flags.add_argument("--steps", type=int, default=3, help="of each kind in a round")
    options = flags.parse_args()
    hvd.init()
    hvd.allreduce(torch.ones(1))
    if hvd.rank() == 0:
        print(f"import, init, first allreduce: {1e3 * (time.perf_counter() - _began):.0f} ms")
    torch.set_num_threads(1)
    measure_hooks(160, 200)
    measure_steps(options.rounds, options.steps)
    hvd.shutdown()


if __name__ == "__main__":
    main()
