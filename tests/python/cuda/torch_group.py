# SPDX-License-Identifier: Apache-2.0

"""Creates and destroys the torch.distributed group for tests that use the stand-in for CUDA."""

from __future__ import annotations

from late_values import DEVICE, on_device, use_device  # isort: skip  # before torch
import ronda.torch.c10d  # noqa: F401
import torch
import torch.distributed as dist


def start() -> tuple[int, int]:
    """Creates the default group. If there is no stand-in for CUDA, skips the test module.

    Returns:
        The rank, and the number of ranks.
    """
    use_device()
    dist.init_process_group("ronda", device_id=DEVICE)
    for value in (-1.0, float(dist.get_rank() + 1)):
        on_device(value)  # so that no test waits for the copy
    return dist.get_rank(), dist.get_world_size()


def end() -> None:
    """Waits for the device, and destroys the group."""
    torch.cuda.synchronize()
    dist.destroy_process_group()
