# SPDX-License-Identifier: Apache-2.0

"""Compares training steps of FSDP2 over Ronda: in plain GPU memory, and in the memory of a lane.

    RONDA_LANE_MEMORY_MB=8192 rondarun -np 2 python3 bench/python/gpu_fsdp_step.py [--width 4096]

Each rank needs a GPU of its own. Before the steps, the program checks that the collectives of both
ways give the same numbers. A row has the time of a step, from its first kernel to the end of its
last one. The rows take turns in the same processes.
"""

import argparse
import os
import statistics
import time

import ronda.torch.c10d  # noqa: F401
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard

WAYS = ("plain", "lane memory")


def make_model(options: argparse.Namespace, device: torch.device, way: str) -> nn.Module:
    """Returns a sharded stack of blocks of two linear layers."""
    torch.manual_seed(1)
    width = options.width
    blocks = [
        nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        for _ in range(options.blocks)
    ]
    model = nn.Sequential(*blocks).to(device, torch.bfloat16)
    for block in model:
        fully_shard(block)
    fully_shard(model)
    for module in model.modules():
        if way != "plain" and isinstance(module, FSDPModule):
            module.set_allocate_memory_from_process_group_for_comm(True)
    return model


def allocate(size: int, device: torch.device, way: str) -> torch.Tensor:
    """Returns a tensor in plain memory, or in the memory of the lane."""
    if way == "plain":
        return torch.empty(size, device=device)
    backend = dist.distributed_c10d._get_default_group()._get_backend(device)
    tensor: torch.Tensor = backend.allocate_tensor(size, dtype=torch.float32, device=device)
    return tensor


def results(device: torch.device, way: str) -> list[torch.Tensor]:
    """Returns the results of collectives on small integers, whose sums are exact."""
    rank, size, count = dist.get_rank(), dist.get_world_size(), 1 << 20
    own, whole = allocate(count, device, way), allocate(count * size, device, way)
    own.copy_(torch.arange(count, device=device) % 64 + rank)
    dist.all_gather_into_tensor(whole, own)
    gathered = whole.clone()
    part = whole.chunk(size)[rank]
    part.add_(1)
    dist.all_gather_into_tensor(whole, part)  # in place
    dist.reduce_scatter_tensor(own, whole)
    scattered = own.clone()
    dist.all_reduce(own)
    return [gathered, whole.clone(), scattered, own.clone()]


def check(device: torch.device) -> None:
    """Compares the collectives of both ways.

    Raises:
        RuntimeError: the group has no such memory, or the numbers differ.
    """
    if (
        not dist.distributed_c10d._get_default_group()
        ._get_backend(device)
        .supports_tensor_alloc(device)
    ):
        raise RuntimeError("the group has no memory of its own: set RONDA_LANE_MEMORY_MB")
    plain, memory = (results(device, way) for way in WAYS)
    if not all(torch.equal(a, b) for a, b in zip(plain, memory)):
        raise RuntimeError("collectives in the memory of the lane have other results")


def step_ms(model: nn.Module, batch: torch.Tensor) -> float:
    """Makes a step, waits for the device, and returns the time in milliseconds."""
    begin = time.perf_counter()
    model.zero_grad()
    model(batch).float().square().mean().backward()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin)


def main() -> None:
    """Measures, and prints a table on rank 0."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--width", type=int, default=4096)
    flags.add_argument("--blocks", type=int, default=8)
    flags.add_argument("--batch", type=int, default=4096, help="rows of a rank")
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--steps", type=int, default=10, help="of a row in each round")
    options = flags.parse_args()

    device = torch.device("cuda", int(os.environ["RONDA_LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("ronda", device_id=device)
    check(device)
    batch = torch.randn(options.batch, options.width, device=device, dtype=torch.bfloat16)
    models = {way: make_model(options, device, way) for way in WAYS}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for model in models.values():
        for _ in range(5):
            step_ms(model, batch)
    for _ in range(options.rounds):
        for way, model in models.items():
            dist.barrier()
            times[way] += [step_ms(model, batch) for _ in range(options.steps)]
    if dist.get_rank() == 0:
        name, ranks = torch.cuda.get_device_name(), dist.get_world_size()
        print(f"# {name}, {ranks} ranks, torch {torch.__version__}")
        print(f"{'FSDP2':12} {'step ms':>8} {'best':>8}")
        for way, each in times.items():
            print(f"{way:12} {statistics.median(each):8.1f} {min(each):8.1f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
