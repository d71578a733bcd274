# SPDX-License-Identifier: Apache-2.0

"""DistributedGradientTape, which makes a tape reduce its gradients over the ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ronda import _groups
from ronda._horovod import Average, ProcessSet, global_process_set
from ronda._reduction import Reduction, of_gradients
from ronda.tensorflow._calls import plain
from ronda.tensorflow._operations import reduce_gradients, wire_of
from ronda.tensorflow.compression import Compression, Compressor
from ronda.types import ReduceOp


class _DistributedTape:
    """A mixin for a tape's class. The class attributes are set for each wrapped tape."""

    _compression: type[Compressor]
    _reduction: Reduction
    _sparse_as_dense: bool
    _chosen_groups: _groups.Groups
    _name: str

    @plain
    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """Like the tape's gradient(), but the gradients are reduced over the ranks."""
        own = super().gradient(target, sources, *args, **kwargs)

        def reduce(ending: str, gradients: list[Any]) -> list[Any]:
            return reduce_gradients(
                "DistributedGradientTape",
                self._name + ending if tf.executing_eagerly() else None,
                gradients,
                self._compression,
                self._reduction,
                self._sparse_as_dense,
            )

        flat = tf.nest.flatten(own)
        reduced = _groups.reduce_in_groups(
            self._chosen_groups, flat, tf.nest.flatten(sources), reduce
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
    """Wraps a tape so that gradient() returns gradients that are reduced over the ranks.

        with tf.GradientTape() as tape:
            loss = loss_of(model(images), labels)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)

    Args:
        gradtape: the tape, before or after it has recorded. The result is of a class derived from
            the tape's class, and shares the tape's recording.
        device_dense: accepted for compatibility with Horovod, as is device_sparse; not used.
        compression: the format in which dense gradients are sent.
        sparse_as_dense: turns IndexedSlices into tensors first.
        op: Average, Sum, Min, Max, Product or Adasum.
        gradient_predivide_factor: for an average, the part of the divisor that is applied before
            the sum.
        num_groups: deprecated; use groups.
        groups: lists of variables, or a number of groups. The gradients of a list are reduced
            together, and every other gradient is reduced on its own. With a number, the gradients
            are divided into this many groups of about equal length. None means that all dense
            gradients of a call are reduced together.
        process_set: the ranks that take part.

    Raises:
        ValueError: an argument is wrong.
    """
    del device_dense, device_sparse
    groups = _groups.chosen(groups, num_groups)
    _groups.check(groups, "variables", lambda each: hasattr(each, "assign"))
    own = type(gradtape)
    attributes = {
        "_compression": compression,
        "_reduction": of_gradients(
            op, wire_of(compression), gradient_predivide_factor, 1.0, process_set
        ),
        "_sparse_as_dense": sparse_as_dense,
        "_chosen_groups": groups,
        "_name": "DistributedGradientTape",
    }
    wrapped_class: Any = type(own.__name__, (_DistributedTape, own), attributes)
    wrapped = wrapped_class.__new__(wrapped_class)
    wrapped.__dict__.update(gradtape.__dict__)
    return wrapped
