# SPDX-License-Identifier: Apache-2.0

"""The formats in which gradients are sent between ranks."""

from __future__ import annotations

import dataclasses

from ronda.types import Wire


@dataclasses.dataclass(frozen=True)
class Compressor:
    """A format in which Ronda sends and adds gradients."""

    wire: Wire


class Compression:
    """The possible values of the argument `compression`."""

    none = Compressor(Wire.NONE)
    fp16 = Compressor(Wire.FP16)
    bf16 = Compressor(Wire.BF16)
