# SPDX-License-Identifier: Apache-2.0

"""Horovod's API for Keras 3, on TensorFlow, JAX and torch: `import ronda.keras as hvd`."""

from __future__ import annotations

from ronda import _horovod
from ronda._horovod import *  # noqa: F403
from ronda.exchanges import barrier, join
from ronda.keras import callbacks, elastic
from ronda.keras._backends import backend_name
from ronda.keras._optimizer import DistributedOptimizer
from ronda.keras.compression import Compression
from ronda.keras.functions import (
    allgather,
    allreduce,
    broadcast,
    broadcast_object,
    broadcast_variables,
    load_model,
    reducescatter,
)

__all__ = [
    *_horovod.__all__,
    "Compression",
    "DistributedOptimizer",
    "allgather",
    "allreduce",
    "backend_name",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "elastic",
    "join",
    "load_model",
    "reducescatter",
]
