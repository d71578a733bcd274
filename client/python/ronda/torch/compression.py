# SPDX-License-Identifier: Apache-2.0

"""Compression of gradients.

A compressor casts the tensor if the program calls it directly, as in Horovod. DistributedOptimizer
does not call the compressors of this module: Ronda reduces the gradients in the compressor's
format, without a copy, and adds in 32 bits.
"""

from __future__ import annotations

import torch

from ronda.types import Wire


class Compressor:
    """The base class of compressors, also of compressors that the program defines."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, object]:
        """Returns the compressed tensor, and the context for decompress()."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: object) -> torch.Tensor:
        """Returns the decompressed tensor. `ctx` is the context that compress() has returned."""
        raise NotImplementedError


class _WireCompressor(Compressor):
    """A compressor to a format in which Ronda can send tensors."""

    wire: Wire
    dtype: torch.dtype | None  # None: not cast

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, object]:
        """Casts a floating-point tensor, and returns other tensors unchanged."""
        is_tensor = isinstance(tensor, torch.Tensor)  # other objects are refused at the submission
        if cls.dtype is None or not is_tensor or not tensor.dtype.is_floating_point:
            return tensor, None
        return tensor.to(cls.dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: object) -> torch.Tensor:
        """Casts the tensor back."""
        return tensor.to(ctx) if isinstance(ctx, torch.dtype) else tensor


class NoneCompressor(_WireCompressor):
    """Does not compress."""

    wire = Wire.NONE
    dtype = None


class FP16Compressor(_WireCompressor):
    """Compresses to 16 bits, IEEE half precision."""

    wire = Wire.FP16
    dtype = torch.float16


class BF16Compressor(_WireCompressor):
    """Compresses to 16 bits (bfloat16) with the range of 32-bit numbers."""

    wire = Wire.BF16
    dtype = torch.bfloat16


class FP8Compressor(_WireCompressor):
    """Compresses to 8 bits, with a scale for each block of numbers. Only for
    DistributedOptimizer.
    """

    wire = Wire.FP8_E4M3
    dtype = None


class Compression:
    """The possible values of the argument `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    fp8 = FP8Compressor


def wire_of(compression: type[Compressor] | Compressor) -> Wire | None:
    """Returns the format of a compressor of this module, or None for a compressor that the program
    defines.
    """
    own = compression if isinstance(compression, type) else type(compression)
    if issubclass(own, _WireCompressor) and own.__module__ == __name__:
        return own.wire
    return None
