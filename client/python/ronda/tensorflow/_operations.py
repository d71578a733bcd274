# SPDX-License-Identifier: Apache-2.0

"""Reductions of several tensors at once, dense and sparse, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ronda import _buffers, handles, process_sets, reductions
from ronda._library import native
from ronda._reduction import Reduction
from ronda._refusals import Told
from ronda.tensorflow import _calls
from ronda.tensorflow.compression import Compressor
from ronda.types import ReduceOp, Wire


def wire_of(compression: type[Compressor]) -> Wire:
    """Returns the format in which Ronda sends tensors, or NONE if the program's own compressor
    casts them.
    """
    return Wire.NONE if compression.wire is None else compression.wire


def reduce_dense(
    kind: str,
    name: str | None,
    tensors: Sequence[tf.Tensor],
    compression: type[Compressor],
    reduction: Reduction,
) -> list[tf.Tensor]:
    """Returns the reduced tensors. Either all tensors are reduced, or none.
    Differentiable.
    """
    if compression.wire is not None:
        return _reduce(kind, name, tensors, reduction)
    pairs = [compression.compress(tensor) for tensor in tensors]
    reduced = _reduce(kind, name, [short for short, _ in pairs], reduction)
    return [compression.decompress(each, context) for each, (_, context) in zip(reduced, pairs)]


def _reduce(
    kind: str, name: str | None, tensors: Sequence[tf.Tensor], reduction: Reduction
) -> list[tf.Tensor]:
    @tf.custom_gradient
    def reduce(*tensors: tf.Tensor) -> Any:
        results = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]

        def run(name: str | None, *arrays: np.ndarray) -> Sequence[np.ndarray]:
            options = reduction.options()
            if len(arrays) == 1:
                return [reductions.allreduce(arrays[0], name=name, **options)]
            return reductions.grouped_allreduce(arrays, name=name, **options)

        def gradient(*upstream: tf.Tensor) -> list[tf.Tensor]:
            reduction.check_differentiable()
            return _reduce(f"{kind}_gradient", gradient_name(name), upstream, reduction)

        return _calls.call(kind, name, run, tensors, results, reduction), gradient

    return list(reduce(*tensors)) if tensors else []


def gradient_name(name: str | None) -> str | None:
    """Returns the name of an operation's gradient."""
    return None if name is None else f"{name}.gradient"


def reduce_sparse(
    kind: str, name: str | None, slices: tf.IndexedSlices, reduction: Reduction
) -> tf.IndexedSlices:
    """Adds or averages IndexedSlices. Every rank gets the values and indices of all ranks.

    Raises:
        ValueError: the operation is neither Average nor Sum.
    """
    if reduction.op not in (ReduceOp.AVERAGE, ReduceOp.SUM):
        raise ValueError(
            f"{kind}: IndexedSlices are added up or averaged, and have no {reduction.op.name}:"
            " use tf.convert_to_tensor(), or sparse_as_dense=True"
        )
    factor = reduction.prescale * reduction.postscale

    def run(name: str | None, values: np.ndarray, indices: np.ndarray) -> Sequence[np.ndarray]:
        return _gather_slices(kind, name or kind, values, indices, reduction)

    values, indices = tf.convert_to_tensor(slices.values), tf.convert_to_tensor(slices.indices)
    rows = tf.TensorSpec([None, *values.shape[1:]], values.dtype)
    all_values, all_indices = _calls.call(
        kind,
        name,
        run,
        [values, tf.cast(indices, tf.int64)],
        [rows, tf.TensorSpec([None], tf.int64)],
    )
    if factor != 1.0:
        all_values *= tf.cast(factor, all_values.dtype)
    return tf.IndexedSlices(all_values, tf.cast(all_indices, indices.dtype), slices.dense_shape)


def _gather_slices(
    kind: str, name: str, values: np.ndarray, indices: np.ndarray, reduction: Reduction
) -> Sequence[np.ndarray]:
    set_id = process_sets.id_of(reduction.process_set)
    with Told(set_id, name), Told(set_id, f"{name}/indices"):
        own = _buffers.buffer_of(np.ascontiguousarray(values), f"{kind}: the values")
        rows = _buffers.buffer_of(np.ascontiguousarray(indices), f"{kind}: the indices")
        ids = native.sparse_allreduce_async(
            name,
            own.dtype,
            own.shape,
            own.address,
            rows.address,
            (own.keep, rows.keep),
            int(reduction.op),
            set_id,
            0.0,
            None,
        )
    owned = [handles.OwnedHandle(id) for id in ids]
    for handle in owned:
        native.synchronize(handle.id)
    all_rows, _ = handles.rows_of(owned[0], rows.dtype, (), None)
    all_values, _ = handles.rows_of(owned[1], own.dtype, own.shape[1:], None)
    return all_values, all_rows


def reduce_gradients(
    kind: str,
    name: str | None,
    gradients: Sequence[Any],
    compression: type[Compressor],
    reduction: Reduction,
    sparse_as_dense: bool,
) -> list[Any]:
    """Reduces gradients, which are tensors, IndexedSlices, or None. None stays None.

    Args:
        sparse_as_dense: turns IndexedSlices into tensors first.
    """
    reduced = [
        tf.convert_to_tensor(each)
        if sparse_as_dense and isinstance(each, tf.IndexedSlices)
        else each
        for each in gradients
    ]
    dense = [i for i, each in enumerate(reduced) if tf.is_tensor(each)]
    dense = [i for i in dense if not isinstance(reduced[i], tf.IndexedSlices)]
    together = reduce_dense(kind, name, [reduced[i] for i in dense], compression, reduction)
    for i, each in zip(dense, together):
        reduced[i] = each
    for i, each in enumerate(reduced):
        if isinstance(each, tf.IndexedSlices):
            own_name = f"{name or kind}.sparse.{i}" if name or tf.executing_eagerly() else None
            reduced[i] = reduce_sparse(kind, own_name, each, reduction)
    return reduced
