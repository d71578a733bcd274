# SPDX-License-Identifier: Apache-2.0

"""Collectives for values outside the model, which return NumPy arrays, and load_model()."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from ronda import exchanges, objects, reductions
from ronda._horovod import Average, ProcessSet, global_process_set, reduce_op
from ronda._refusals import Told
from ronda.keras._optimizer import DistributedOptimizer
from ronda.keras.compression import Compression
from ronda.process_sets import id_of
from ronda.types import ReduceOp


def _array(value: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(value), order="C")


def _checked_array(value: Any, name: str | None, process_set: ProcessSet) -> np.ndarray:
    """Returns the array of an operation. If there is none, the other ranks get the error too."""
    with Told(id_of(process_set), name):
        return _array(value)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | None = None,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> np.ndarray:
    """Reduces a tensor or a number over the ranks.

    Args:
        value: must have the same shape and dtype on every rank.
        name: the same on every rank; calls without a name are matched by order.
        average: deprecated; True is Average, False is Sum.
        prescale_factor: multiplies the value before the reduction.
        postscale_factor: multiplies the result.
        op: Average (if None), Sum, Min, Max, Product or Adasum.
        compression: the format in which the value is sent.
        process_set: the ranks that take part.
    """
    with Told(id_of(process_set), name):
        own, op, wire = _array(value), reduce_op(op, average), compression.wire
    return reductions.allreduce(
        own,
        op,
        name=name,
        compression=wire,
        prescale=prescale_factor,
        postscale=postscale_factor,
        process_set=process_set,
    )


def allgather(
    value: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> np.ndarray:
    """Concatenates the ranks' tensors along the first dimension, which may differ between ranks."""
    own = _checked_array(value, name, process_set)
    return exchanges.allgather(own, name=name, process_set=process_set)


def broadcast(
    value: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> np.ndarray:
    """Returns the root's tensor on every rank."""
    own = _checked_array(value, name, process_set)
    return exchanges.broadcast(own, root_rank, name=name, process_set=process_set)


def reducescatter(
    value: Any,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
) -> np.ndarray:
    """Reduces a tensor over the members. Every member gets some rows of the result."""
    own = _checked_array(value, name, process_set)
    return reductions.reducescatter(own, op, name=name, process_set=process_set)


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Copies the root's variables to all ranks.

    Args:
        variables: Keras variables, with the same shapes and dtypes in the same order on every rank.
        root_rank: the root's rank in the job, even if `process_set` is given.
        process_set: the ranks that take part.
    """
    variables = list(variables)
    begun = [
        exchanges.broadcast_async(
            _array(variable), root_rank, name=f"broadcast_variables.{i}", process_set=process_set
        )
        for i, variable in enumerate(variables)
    ]
    for variable, handle in zip(variables, begun):
        variable.assign(handle.wait())


def variables_of(model: Any, optimizer: Any) -> list[Any]:
    """Returns the variables that must be equal on all ranks. The list contains no metrics, and no
    random generator state, for instance that of Dropout.
    """
    return list(model.weights) + (list(optimizer.variables) if optimizer is not None else [])


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the root's object on every rank. The object is pickled, so use the function only
    among ranks that you trust.
    """
    return objects.broadcast_object(obj, root_rank, name=name, process_set=process_set)


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    **options: Any,
) -> Any:
    """Loads a model, and makes its optimizer a DistributedOptimizer, which keeps the loaded state.

    Args:
        filepath: the path of a model that was saved with or without Ronda.
        custom_optimizers: the program's own optimizer classes.
        custom_objects: the program's own classes by name, as for keras.models.load_model().
        compression: an argument for DistributedOptimizer.
        **options: more arguments for keras.models.load_model().
    """
    own = {each.__name__: each for each in custom_optimizers or ()}
    model = keras.models.load_model(filepath, {**own, **(custom_objects or {})}, **options)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, compression=compression)
    return model
