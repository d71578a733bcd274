# SPDX-License-Identifier: Apache-2.0

"""Calls functions on NumPy arrays, in eager mode and inside tf.function.

Inside tf.function a call becomes a tf.numpy_function. Most reductions instead become Ronda's own
TensorFlow operation, which runs without Python (_kernels.py). The collectives of a traced function
run one after the other, in program order. Otherwise tf.function would run independent collectives
in any order, and with few threads two ranks could block in different collectives. An unnamed
collective is named after the traced function and the call's position in the function, so its name
is the same on all ranks.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from ronda import _carried_errors
from ronda._library import native
from ronda._reduction import Reduction
from ronda._refusals import Told
from ronda.process_sets import ProcessSet, id_of
from ronda.tensorflow import _kernels

# Decorates functions that programs call, so that AutoGraph does not rewrite them.
plain = tf.autograph.experimental.do_not_convert

# The names of two attributes that Ronda adds to a graph: the number of generated names, and the
# graph's last call. They are destroyed with the graph.
_NAMES, _LAST = "_ronda_names_given", "_ronda_last_call"


def told(
    process_set: ProcessSet, name: str | None, members: int | None = None
) -> contextlib.AbstractContextManager[None]:
    """Returns a context manager in which a rank checks the arguments of an operation. If they are
    wrong, the operation also fails on the other ranks, unless this rank does not know its name: in
    a traced function, or in a group, the program has given none.

    Args:
        process_set: the ranks that take part.
        name: the name that the caller has given.
        members: the number of tensors in the group; None if the operation is not on a group.
    """
    has_no_name = name is None and (members is not None or not tf.executing_eagerly())
    if has_no_name or not native.is_initialized():
        return contextlib.nullcontext()
    return Told(id_of(process_set), name, members)


def call(
    kind: str,
    name: str | None,
    run: Callable[..., Sequence[np.ndarray]],
    tensors: Sequence[tf.Tensor],
    results: Sequence[tf.TensorSpec],
    reduction: Reduction | None = None,
) -> list[tf.Tensor]:
    """Calls `run` with a name and the tensors' arrays.

    Args:
        kind: the name of the function in the public API, for the operation's name and for errors.
        name: the name that the caller has given. Without a name, `run` gets None in eager mode, and
            calls are matched by order.
        run: returns an array for each of `results`, and must not keep or change its arguments.
        tensors: the arguments.
        results: dtypes and static shapes of the results.
        reduction: describes `run`, if it only reduces the tensors together.

    Raises:
        ValueError: the surrounding tf.function is compiled by XLA.
        RondaError: from `run`. Inside tf.function TensorFlow raises its own error with the same
            text.
    """
    if tf.executing_eagerly():
        arrays = run(name, *(np.asarray(tensor) for tensor in tensors))
        return [tf.convert_to_tensor(array) for array in arrays]
    graph = tf.compat.v1.get_default_graph()
    _check_not_compiled(graph, kind)
    name = name or _name_in(graph, kind)

    previous = getattr(graph, _LAST, None)
    with tf.control_dependencies([] if previous is None else [previous]):
        if reduction is not None and _kernels.can_reduce(tensors, reduction):
            operation = _kernels.reduce(graph, name, tensors, reduction)
        else:
            operation = _numpy_function(functools.partial(run, name), tensors, results)
    setattr(graph, _LAST, operation)
    return list(operation.outputs)


def _numpy_function(
    run: Callable[..., Sequence[np.ndarray]],
    tensors: Sequence[tf.Tensor],
    results: Sequence[tf.TensorSpec],
) -> tf.Operation:
    def body(*arrays: np.ndarray) -> list[np.ndarray]:
        with _carried_errors.kept():
            return list(run(*arrays))

    made = tf.numpy_function(body, tensors, [each.dtype for each in results])
    if not results:
        return made
    for tensor, spec in zip(made, results):
        tensor.set_shape(spec.shape)
    return made[0].op


def _name_in(graph: tf.Graph, kind: str) -> str:
    # tf.function builds a separate graph for each branch and each loop. The loop below finds the
    # graph of the whole function.
    trace = graph
    while getattr(trace, "outer_graph", None) is not None and trace.outer_graph.building_function:
        trace = trace.outer_graph
    number = getattr(trace, _NAMES, 0)
    setattr(trace, _NAMES, number + 1)
    return f"{kind}.{getattr(trace, 'name', 'graph')}.{number}"


def _check_not_compiled(graph: tf.Graph, kind: str) -> None:
    if control_flow_util.GraphOrParentsInXlaContext(graph):
        raise ValueError(
            f"{kind}: the function is compiled by XLA, from which TensorFlow cannot call Ronda: use"
            " tf.function(jit_compile=False), and for a Keras model"
            " model.compile(..., jit_compile=False)"
        )
