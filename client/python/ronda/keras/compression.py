# SPDX-License-Identifier: Apache-2.0

"""The formats in which gradients travel."""

from __future__ import annotations

import dataclasses

from ronda.types import Wire


@dataclasses.dataclass(frozen=True)
class Compressor:
    """A format that Ronda itself sends and adds up."""

    wire: Wire


class Compression:
    """The formats, for the argument `compression`."""

    none = Compressor(Wire.NONE)
    fp16 = Compressor(Wire.FP16)
    bf16 = Compressor(Wire.BF16)
