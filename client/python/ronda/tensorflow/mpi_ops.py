# SPDX-License-Identifier: Apache-2.0

"""Collectives on TensorFlow tensors, in eager mode and inside tf.function, with gradients.

Common arguments:
    name: the same on every rank. Without a name, eager calls are matched by order, and calls inside
        tf.function by their position in the function.
    process_set: the ranks that take part. Roots and other ranks are given as ranks in the job.
    ignore_name_scope, device_dense, device_sparse: accepted for compatibility with Horovod; unused.

Errors: RondaError, with a class from ronda.errors, in eager mode. Inside tf.function TensorFlow
raises its own error with the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ronda import _horovod, exchanges, reductions
from ronda._horovod import *  # noqa: F403
from ronda._horovod import Average, ProcessSet, Sum, global_process_set, rank, reduce_op
from ronda._library import native
from ronda._reduction import Reduction
from ronda.process_sets import id_of
from ronda.tensorflow import _calls, _kernels
from ronda.tensorflow._calls import plain
from ronda.tensorflow._operations import gradient_name, reduce_dense, reduce_sparse, wire_of
from ronda.tensorflow.compression import Compression, Compressor
from ronda.types import ReduceOp

__all__ = [
    *_horovod.__all__,
    "Compression",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "local_rank_op",
    "local_size_op",
    "native_ops_built",
    "nccl_built",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
]

_INT32 = tf.TensorSpec([], tf.int32)


def nccl_built() -> int:
    """Returns 0, because TensorFlow tensors are sent from host memory, without NCCL."""
    return 0


def native_ops_built() -> bool:
    """Returns whether reductions inside tf.function run without Python, which is possible if
    TensorFlow has the C API for kernels. Without this API, reductions run in a tf.numpy_function.
    """
    return _kernels.are_registered


@plain
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces a tensor over the ranks. Differentiable for Average and Sum.

    Args:
        tensor: must have the same shape and dtype on every rank. For tf.IndexedSlices every rank
            gets the values and the indices of all ranks; only Average and Sum are possible.
        average: deprecated; True is Average, False is Sum.
        compression: the format in which the tensor is sent; not for IndexedSlices.
        op: Average (if None), Sum, Min, Max, Product or Adasum.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
    """
    del device_dense, device_sparse, ignore_name_scope
    with _calls.told(process_set, name):
        op, factors = reduce_op(op, average), (prescale_factor, postscale_factor)
        reduction = Reduction(op, wire_of(compression), *factors, process_set)
        is_sparse = isinstance(tensor, tf.IndexedSlices)
        own = tensor if is_sparse else tf.convert_to_tensor(tensor)
    if is_sparse:
        return reduce_sparse("allreduce", name, own, reduction)
    return reduce_dense("allreduce", name, [own], compression, reduction)[0]


@plain
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[tf.Tensor]:
    """Like allreduce(), for several tensors. Either all tensors are reduced, or none."""
    del device_dense, device_sparse, ignore_name_scope
    tensors = list(tensors)
    # A group of one tensor is a plain allreduce.
    with _calls.told(process_set, name, len(tensors) if len(tensors) > 1 else None):
        op, factors = reduce_op(op, average), (prescale_factor, postscale_factor)
        reduction = Reduction(op, wire_of(compression), *factors, process_set)
        own = [tf.convert_to_tensor(tensor) for tensor in tensors]
    return reduce_dense("grouped_allreduce", name, own, compression, reduction)


@plain
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Concatenates the ranks' tensors along the first dimension. The function is differentiable.
    The gradient of a rank's rows is the mean of the ranks' gradients.

    Args:
        tensor: only its first dimension may differ between ranks.
    """
    del ignore_name_scope

    @tf.custom_gradient
    def gather(tensor: tf.Tensor) -> Any:
        def run(name: str | None, array: np.ndarray) -> list[np.ndarray]:
            return [exchanges.allgather(array, name=name, process_set=process_set)]

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return _own_mean(upstream, tensor, gradient_name(name), process_set)

        gathered = _calls.call("allgather", name, run, [tensor], [_rows_like(tensor)])
        return gathered[0], gradient

    with _calls.told(process_set, name):
        own = tf.convert_to_tensor(tensor)
    return gather(own)


def _rows_like(tensor: tf.Tensor) -> tf.TensorSpec:
    """Describes a result whose rows have the shape and dtype of the rows of `tensor`."""
    return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)


def _own_mean(
    upstream: tf.Tensor, tensor: tf.Tensor, name: str | None, process_set: ProcessSet
) -> tf.Tensor:
    """Averages `upstream` over the ranks, and returns the rows that came from this rank."""

    def run(name: str | None, upstream: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
        mean = reductions.allreduce(upstream, Average, name=name, process_set=process_set)
        names = None if name is None else f"{name}.rows"
        counts = exchanges.allgather(rows.reshape(1), name=names, process_set=process_set)
        first = int(counts[: native.process_set_rank(id_of(process_set))].sum())
        return [mean[first : first + int(rows)]]

    result = tf.TensorSpec(tensor.shape, tensor.dtype)
    return _calls.call(
        "allgather_gradient", name, run, [upstream, tf.shape(tensor, tf.int64)[0]], [result]
    )[0]


@plain
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """Like allgather(), for several tensors."""
    return [
        allgather(tensor, _member(name, i), ignore_name_scope, process_set)
        for i, tensor in enumerate(tensors)
    ]


def _member(name: str | None, number: int) -> str | None:
    return None if name is None else f"{name}.{number}"


@plain
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Returns the root's tensor on every rank. The function is differentiable. The root's gradient
    is the mean over the ranks, and the gradient of every other rank is zero.

    Args:
        tensor: must have the same shape and dtype on every rank.
        root_rank: the root's rank in the job, even if `process_set` is given.
    """
    del ignore_name_scope

    @tf.custom_gradient
    def send(tensor: tf.Tensor) -> Any:
        result = tf.TensorSpec(tensor.shape, tensor.dtype)

        def run(name: str | None, array: np.ndarray) -> list[np.ndarray]:
            return [exchanges.broadcast(array, root_rank, name=name, process_set=process_set)]

        def run_back(name: str | None, upstream: np.ndarray) -> list[np.ndarray]:
            mean = reductions.allreduce(upstream, Average, name=name, process_set=process_set)
            return [mean if rank() == root_rank else np.zeros_like(mean)]

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            back = gradient_name(name)
            return _calls.call("broadcast_gradient", back, run_back, [upstream], [result])[0]

        return _calls.call("broadcast", name, run, [tensor], [result])[0], gradient

    with _calls.told(process_set, name):
        own = tf.convert_to_tensor(tensor)
    return send(own)


@plain
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows to every member, and receives rows from every member. Differentiable.

    Args:
        tensor: only its first dimension may differ between ranks.
        splits: the number of rows for each member. None means that all members get the same number.

    Returns:
        The received rows. With `splits`, also returns the number of rows from each member.
    """
    del ignore_name_scope
    with _calls.told(process_set, name):
        own = tf.convert_to_tensor(tensor)
        counts = None if splits is None else tf.cast(splits, tf.int32)
    rows, received = _exchange("alltoall", name, own, counts, process_set)
    return rows if splits is None else (rows, received)


def _exchange(
    kind: str,
    name: str | None,
    tensor: tf.Tensor,
    splits: tf.Tensor | None,
    process_set: ProcessSet,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the received rows, and the number of rows from each member."""

    def run(
        name: str | None, array: np.ndarray, splits: np.ndarray | None = None
    ) -> list[np.ndarray]:
        options = {"name": name, "process_set": process_set}
        if splits is not None:
            rows, counts = exchanges.alltoall(array, splits=splits.tolist(), **options)
            return [rows, np.array(counts, np.int32)]
        rows = exchanges.alltoall(array, **options)
        members = native.process_set_size(id_of(process_set))
        return [rows, np.full(members, len(array) // members, np.int32)]

    @tf.custom_gradient
    def exchange(tensor: tf.Tensor) -> Any:
        arguments = [tensor] if splits is None else [tensor, splits]
        results = [_rows_like(tensor), tf.TensorSpec([None], tf.int32)]
        rows, counts = _calls.call(kind, name, run, arguments, results)

        def gradient(upstream: tf.Tensor, _: Any) -> tf.Tensor:
            back, _ = _exchange(
                f"{kind}_gradient", gradient_name(name), upstream, counts, process_set
            )
            # Rows beyond the sum of the splits were not sent, so their gradient is zero.
            unsent = tf.shape(tensor)[:1] - tf.shape(back)[:1]
            zeros = tf.zeros(tf.concat([unsent, tf.shape(back)[1:]], 0), back.dtype)
            return tf.concat([back, zeros], 0)

        return (rows, counts), gradient

    rows, counts = exchange(tensor)
    return rows, counts


@plain
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
) -> tf.Tensor:
    """Reduces a tensor. Every member gets some rows of the result. Differentiable for Average and
    Sum.

    Args:
        tensor: must have the same shape and dtype on every rank, and at least one dimension.
        compression: the format in which the tensor is sent.
        op: Average, Sum, Min, Max or Product.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
    """
    del device_dense, ignore_name_scope
    with _calls.told(process_set, name):
        reduction = Reduction(
            ReduceOp(op), wire_of(compression), prescale_factor, postscale_factor, process_set
        )
        own = tf.convert_to_tensor(tensor)
    if compression.wire is not None:
        return _scatter(own, name, reduction)
    short, context = compression.compress(own)
    return compression.decompress(_scatter(short, name, reduction), context)


def _scatter(tensor: tf.Tensor, name: str | None, reduction: Reduction) -> tf.Tensor:
    process_set = reduction.process_set

    @tf.custom_gradient
    def scatter(tensor: tf.Tensor) -> Any:
        def run(name: str | None, array: np.ndarray) -> list[np.ndarray]:
            return [reductions.reducescatter(array, name=name, **reduction.options())]

        def run_back(name: str | None, upstream: np.ndarray) -> list[np.ndarray]:
            return [exchanges.allgather(upstream, name=name, process_set=process_set)]

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            reduction.check_differentiable()
            factor = reduction.prescale * reduction.postscale
            if reduction.op == Sum:
                factor *= native.process_set_size(id_of(process_set))
            back, result = gradient_name(name), tf.TensorSpec(tensor.shape, tensor.dtype)
            scaled = upstream * tf.cast(factor, upstream.dtype)
            return _calls.call("reducescatter_gradient", back, run_back, [scaled], [result])[0]

        part = _calls.call("reducescatter", name, run, [tensor], [_rows_like(tensor)])[0]
        return part, gradient

    return scatter(tensor)


@plain
def grouped_reducescatter(
    tensors: Sequence[Any], name: str | None = None, **options: Any
) -> list[tf.Tensor]:
    """Like reducescatter(), for several tensors."""
    return [
        reducescatter(tensor, name=_member(name, i), **options) for i, tensor in enumerate(tensors)
    ]


@plain
def join() -> tf.Tensor:
    """Announces that this rank has no more data, and waits until every rank has called join().
    Until then, the other ranks' operations continue without this rank where possible.

    Returns:
        The rank that joined last.
    """
    return _number("join", lambda: exchanges.join())


@plain
def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of the set has called barrier()."""

    def run(name: str | None) -> list[np.ndarray]:
        del name  # calls are matched by order
        exchanges.barrier(process_set)
        return []

    _calls.call("barrier", None, run, [], [])


def _number(kind: str, read: Callable[[], int]) -> tf.Tensor:
    return _calls.call(kind, None, lambda _: [np.array(read(), np.int32)], [], [_INT32])[0]


@plain
def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Returns the number of ranks in the process set, as it is when the graph runs. In an elastic
    job this number may change.
    """
    del name
    return _number("size_op", lambda: native.process_set_size(process_set_id))


@plain
def local_size_op(name: str | None = None) -> tf.Tensor:
    """Returns the value that local_size() has when the graph runs."""
    del name
    return _number("local_size_op", _horovod.local_size)


@plain
def rank_op(name: str | None = None) -> tf.Tensor:
    """Returns the value that rank() has when the graph runs."""
    del name
    return _number("rank_op", rank)


@plain
def local_rank_op(name: str | None = None) -> tf.Tensor:
    """Returns the value that local_rank() has when the graph runs."""
    del name
    return _number("local_rank_op", _horovod.local_rank)


@plain
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Returns 1 if this rank is in the process set when the graph runs, otherwise 0."""
    del name
    return _number(
        "process_set_included_op", lambda: int(native.process_set_rank(process_set_id) >= 0)
    )
