# SPDX-License-Identifier: Apache-2.0

"""Ronda for JAX: collectives on pytrees inside and outside of jit, and Optax optimizers.

import ronda.jax as rj

rj.init()
params = rj.broadcast_parameters(params)
optimizer = rj.DistributedOptimizer(optax.sgd(0.1))
"""

from ronda import (
    ProcessSet,
    add_process_set,
    allgather_object,
    broadcast_object,
    cross_rank,
    cross_size,
    global_process_set,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    remove_process_set,
    should_stop,
    size,
)
from ronda.jax import elastic
from ronda.jax._exit import shutdown
from ronda.jax.operations import (
    Compression,
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    error_of,
    join,
    recv,
    reducescatter,
    send,
)
from ronda.jax.optimizer import DistributedOptimizer, broadcast_parameters
from ronda.types import ReduceOp

Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Adasum = ReduceOp.ADASUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "elastic",
    "error_of",
    "global_process_set",
    "init",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "rank",
    "recv",
    "reducescatter",
    "remove_process_set",
    "send",
    "should_stop",
    "shutdown",
    "size",
]
