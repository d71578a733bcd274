# SPDX-License-Identifier: Apache-2.0

"""Horovod's API for PyTorch: `import ronda.torch as hvd`."""

from ronda.torch import elastic, mpi_ops
from ronda.torch._check import check_numbers
from ronda.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from ronda.torch.mpi_ops import *  # noqa: F403
from ronda.torch.optimizer import DistributedOptimizer
from ronda.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    *mpi_ops.__all__,
    "DistributedOptimizer",
    "SyncBatchNorm",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "check_numbers",
    "elastic",
]
