# SPDX-License-Identifier: Apache-2.0

"""Compression of tensors that are reduced.

A compressor casts the tensor if the program calls it directly, as in Horovod. The reductions of
ronda.tensorflow do not call the compressors of this module: Ronda sends the tensors in the
compressor's format and adds in 32 bits. If the program has its own compressor, the reductions call
it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ronda.types import Wire


class Compressor:
    """The base class of compressors, also of compressors that the program defines."""

    wire: Wire | None = None  # the format in which Ronda itself sends; None: compress() is called

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Returns the compressed tensor, and the context for decompress()."""
        raise NotImplementedError

    @classmethod
    def decompress(cls, tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Returns the decompressed tensor. `ctx` is the context that compress() has returned."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """No compression."""

    wire = Wire.NONE
    _dtype: tf.DType | None = None

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Casts a floating-point tensor, and returns other tensors unchanged."""
        if cls._dtype is None or not tensor.dtype.is_floating:
            return tensor, None
        return tf.cast(tensor, cls._dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Casts the tensor back."""
        return tensor if ctx is None else tf.cast(tensor, ctx)


class FP16Compressor(NoneCompressor):
    """Compresses to 16 bits, IEEE half precision."""

    wire = Wire.FP16
    _dtype = tf.float16


class BF16Compressor(NoneCompressor):
    """Compresses to 16 bits (bfloat16) with the range of 32-bit numbers."""

    wire = Wire.BF16
    _dtype = tf.bfloat16


class Compression:
    """The possible values of the argument `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
