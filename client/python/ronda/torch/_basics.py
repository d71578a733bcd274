# SPDX-License-Identifier: Apache-2.0

"""Horovod's functions for querying the job, including its GPUs and NCCL."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from ronda import _env, _horovod
from ronda._horovod import *  # noqa: F403
from ronda._horovod import cuda_built
from ronda._library import native

__all__ = [*_horovod.__all__, "device_index", "nccl_built"]


def device_index() -> int:
    """Returns the index of this process's GPU for torch.cuda.set_device(). The index never changes
    while the process runs.

    The index is the process's number on its host, modulo the number of visible GPUs. If no GPU is
    visible, the index is the number on the host. In an elastic job local_rank() may change with
    each epoch, so two ranks that use local_rank() could choose the same GPU. A program may call
    this function before init().
    """
    place = _env.place_on_host()
    if place is None:
        place = max(native.local_rank(), 0)
    devices = torch.cuda.device_count()
    return place % devices if devices else place


def nccl_built() -> int:
    """Returns NCCL's version as a number, such as 21903 for 2.19.3, or 0 if this process has no GPU
    for NCCL.
    """
    if not (cuda_built() and torch.cuda.is_available()):
        return 0
    nccl: Any = importlib.import_module("torch.cuda.nccl")
    major, minor, patch = (*nccl.version(), 0, 0)[:3]
    return int(major * 10000 + minor * 100 + patch)
