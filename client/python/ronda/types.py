# SPDX-License-Identifier: Apache-2.0

"""Enumerations of the C ABI: made by `make bindings` from client/ronda.h."""

from __future__ import annotations

import enum


class ReduceOp(enum.IntEnum):
    """How elements of the ranks' tensors are combined."""

    SUM = 0
    MIN = 1
    MAX = 2
    PRODUCT = 3
    AVERAGE = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    ADASUM = 8


class DType(enum.IntEnum):
    """Types of elements."""

    UINT8 = 0
    INT8 = 1
    INT32 = 2
    INT64 = 3
    FLOAT16 = 4
    BFLOAT16 = 5
    FLOAT32 = 6
    FLOAT64 = 7
    BOOL = 8
    UINT16 = 9
    INT16 = 10
    UINT32 = 11
    UINT64 = 12


class Wire(enum.IntEnum):
    """Formats in which floating-point elements travel when they are reduced: ronda_compression."""

    NONE = 0
    FP16 = 1
    BF16 = 2
    FP8_E4M3 = 3
    FP8_E5M2 = 4
