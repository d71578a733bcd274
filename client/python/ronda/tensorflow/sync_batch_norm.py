# SPDX-License-Identifier: Apache-2.0

"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from ronda.tensorflow.mpi_ops import Sum, allreduce, size


class SyncBatchNormalization(keras.layers.BatchNormalization):
    """Keras's BatchNormalization, but with statistics over the batches of all ranks.

    Every rank must call the layer the same number of times. Batches may have different sizes. In
    inference the layer behaves like BatchNormalization.
    """

    def __init__(self, **kwargs: Any) -> None:
        """Takes the same arguments as BatchNormalization."""
        super().__init__(**kwargs)
        self.supports_jit = False

    def _moments(self, inputs: tf.Tensor, mask: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        if size() == 1:
            return super()._moments(inputs, mask)
        if mask is not None:
            raise ValueError(
                f"{self.name}: SyncBatchNormalization takes no mask: use BatchNormalization, or"
                " remove the masking layer before it"
            )
        # Computes the mean first, and then the mean of the squared deviations. The mean of the
        # squares minus the square of the mean would lose digits if the mean is large.
        axes = self._reduction_axes
        channels = tf.shape(inputs)[self.axis]
        count = tf.cast(tf.size(inputs) // channels, inputs.dtype)
        own = tf.concat([count[None], tf.reduce_sum(inputs, axes)], 0)
        total = allreduce(own, op=Sum)
        mean = total[1:] / total[0]
        shape = [1] * inputs.shape.rank
        shape[self.axis] = -1
        squares = tf.reduce_sum(tf.square(inputs - tf.reshape(mean, shape)), axes)
        return mean, allreduce(squares, op=Sum) / total[0]
