# SPDX-License-Identifier: Apache-2.0

"""Horovod's API for TensorFlow 2: `import ronda.tensorflow as hvd`."""

from ronda.tensorflow import elastic, mpi_ops
from ronda.tensorflow.functions import (
    allgather_object,
    broadcast_,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from ronda.tensorflow.gradient_tape import DistributedGradientTape
from ronda.tensorflow.mpi_ops import *  # noqa: F403
from ronda.tensorflow.optimizer import DistributedOptimizer
from ronda.tensorflow.sync_batch_norm import SyncBatchNormalization

__all__ = [
    *mpi_ops.__all__,
    "DistributedGradientTape",
    "DistributedOptimizer",
    "SyncBatchNormalization",
    "allgather_object",
    "broadcast_",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "elastic",
]
