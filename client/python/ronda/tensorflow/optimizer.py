# SPDX-License-Identifier: Apache-2.0

"""DistributedOptimizer for Keras optimizers on TensorFlow."""

from __future__ import annotations

from typing import Any

from ronda import keras
from ronda._horovod import Average, ProcessSet, global_process_set
from ronda.tensorflow.compression import Compression, Compressor
from ronda.types import ReduceOp


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Makes a Keras optimizer reduce its gradients; see ronda.keras.DistributedOptimizer().

    Args:
        use_locking: accepted for compatibility with Horovod; not used.

    Raises:
        ValueError: an argument is wrong, or Keras does not use TensorFlow.
    """
    del use_locking
    if keras.backend_name() != "tensorflow":
        raise ValueError(
            f"Keras uses {keras.backend_name()}: set KERAS_BACKEND=tensorflow, or use ronda.keras"
        )
    return keras.DistributedOptimizer(
        optimizer,
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        backward_passes_per_step=backward_passes_per_step,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        average_aggregated_gradients=average_aggregated_gradients,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
    )
