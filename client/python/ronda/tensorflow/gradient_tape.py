# SPDX-License-Identifier: Apache-2.0

"""DistributedGradientTape: a tape whose gradients are reduced over the ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ronda._horovod import Average, ProcessSet, global_process_set
from ronda._reduction import Reduction, of_gradients
from ronda.tensorflow._calls import plain
from ronda.tensorflow._operations import reduce_gradients, wire_of
from ronda.tensorflow.compression import Compression, Compressor
from ronda.types import ReduceOp


class _DistributedTape:
    """Mixed into a tape's class. The class attributes are set for each wrapped tape."""

    _compression: type[Compressor]
    _reduction: Reduction
    _sparse_as_dense: bool
    _name: str

    @plain
    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """As the tape's, reduced over the ranks."""
        own = super().gradient(target, sources, *args, **kwargs)
        reduced = reduce_gradients(
            "DistributedGradientTape",
            self._name if tf.executing_eagerly() else None,
            tf.nest.flatten(own),
            self._compression,
            self._reduction,
            self._sparse_as_dense,
        )
        return tf.nest.pack_sequence_as(own, reduced)


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
) -> tf.GradientTape:
    """Wraps a tape: gradient() returns gradients that are reduced over the ranks.

        with tf.GradientTape() as tape:
            loss = loss_of(model(images), labels)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)

    Args:
        gradtape: before or after it has recorded. The result has a class derived from its class,
            and shares its recording.
        device_dense: accepted for Horovod's programs, as are device_sparse, num_groups and groups;
            not used. All dense gradients of a call travel together.
        compression: the format in which dense gradients travel.
        sparse_as_dense: turns IndexedSlices into tensors first.
        op: Average, Sum, Min, Max, Product or Adasum.
        gradient_predivide_factor: for an average, the part of the divisor that is applied before
            the sum.
        process_set: the ranks that take part.

    Raises:
        ValueError: an argument is wrong.
    """
    del device_dense, device_sparse, num_groups, groups
    own = type(gradtape)
    attributes = {
        "_compression": compression,
        "_reduction": of_gradients(
            op, wire_of(compression), gradient_predivide_factor, 1.0, process_set
        ),
        "_sparse_as_dense": sparse_as_dense,
        "_name": "DistributedGradientTape",
    }
    wrapped_class: Any = type(own.__name__, (_DistributedTape, own), attributes)
    wrapped = wrapped_class.__new__(wrapped_class)
    wrapped.__dict__.update(gradtape.__dict__)
    return wrapped
