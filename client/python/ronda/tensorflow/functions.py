# SPDX-License-Identifier: Apache-2.0

"""Makes variables and objects equal on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ronda import exchanges, objects
from ronda.process_sets import ProcessSet, global_process_set
from ronda.tensorflow import _calls


@_calls.plain
def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> None:
    """Copies the root's values to all ranks.

    Args:
        variables: TensorFlow or Keras variables, with the same shapes and dtypes in the same order
            on every rank.
        root_rank: the root's rank in the job, even if `process_set` is given.
        process_set: the ranks that take part.
        inplace: accepted for compatibility with Horovod; not used.
    """
    del inplace
    variables = list(variables)
    tensors = [tf.convert_to_tensor(each) for each in variables]

    def run(name: str | None, *arrays: np.ndarray) -> list[np.ndarray]:
        begun = [
            exchanges.broadcast_async(
                array,
                root_rank,
                name=f"{name or 'broadcast_variables'}.{i}",
                process_set=process_set,
            )
            for i, array in enumerate(arrays)
        ]
        return [handle.wait() for handle in begun]

    results = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
    received = _calls.call("broadcast_variables", None, run, tensors, results) if tensors else []
    for variable, value in zip(variables, received):
        variable.assign(value)


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Sequence[Any]:
    """Like broadcast_variables(), but returns the variables."""
    del name
    broadcast_variables(variables, root_rank, process_set)
    return variables


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the root's object on every rank. The object is pickled, so use the function only
    among ranks that you trust.

    Args:
        obj: the object. Only the root's object is used.
        root_rank: the root's rank in the job, even if `process_set` is given.
        session: accepted for compatibility with Horovod; not used.
        name: the same on every rank; calls without a name are matched by order.
        process_set: the ranks that take part.
    """
    del session
    return objects.broadcast_object(obj, root_rank, name=name, process_set=process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function that calls broadcast_object() with its argument and these options."""
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any,
    session: None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Returns the objects of all ranks that take part, by rank. The objects are pickled, so use the
    function only among ranks that you trust.

    Args:
        obj: the object of this rank.
        session: accepted for compatibility with Horovod; not used.
        name: the same on every rank; calls without a name are matched by order.
        process_set: the ranks that take part.
    """
    del session
    return objects.allgather_object(obj, name=name, process_set=process_set)
