# SPDX-License-Identifier: Apache-2.0

"""Compression of gradients.

If a program calls a compressor directly, it casts the tensor, as in Horovod. DistributedOptimizer
does not call the compressors of this module: Ronda reduces the gradients in the compressor's
format, without a copy, and adds in 32 bits.
"""

from __future__ import annotations

import torch

from ronda.types import Wire


class Compressor:
    """Base class of compressors, also of the program's own ones."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, object]:
        """The tensor in its short form, and the context for decompress()."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: object) -> torch.Tensor:
        """The tensor in its long form; `ctx` comes from compress()."""
        raise NotImplementedError


class _WireCompressor(Compressor):
    """A compressor whose format Ronda knows."""

    wire: Wire
    dtype: torch.dtype | None  # None: not cast

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, object]:
        """Casts a tensor of floating-point numbers; other tensors stay."""
        is_tensor = isinstance(tensor, torch.Tensor)  # other objects are refused at the submission
        if cls.dtype is None or not is_tensor or not tensor.dtype.is_floating_point:
            return tensor, None
        return tensor.to(cls.dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: object) -> torch.Tensor:
        """Casts the tensor back."""
        return tensor.to(ctx) if isinstance(ctx, torch.dtype) else tensor


class NoneCompressor(_WireCompressor):
    """No compression."""

    wire = Wire.NONE
    dtype = None


class FP16Compressor(_WireCompressor):
    """16 bits, IEEE half precision."""

    wire = Wire.FP16
    dtype = torch.float16


class BF16Compressor(_WireCompressor):
    """16 bits with the range of 32."""

    wire = Wire.BF16
    dtype = torch.bfloat16


class FP8Compressor(_WireCompressor):
    """8 bits, in blocks with a scale each; only in DistributedOptimizer."""

    wire = Wire.FP8_E4M3
    dtype = None


class Compression:
    """The compressors, for the argument `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    fp8 = FP8Compressor


def wire_of(compression: type[Compressor] | Compressor) -> Wire | None:
    """The format of a compressor of this module; None for the program's own compressor."""
    own = compression if isinstance(compression, type) else type(compression)
    if issubclass(own, _WireCompressor) and own.__module__ == __name__:
        return own.wire
    return None
