# SPDX-License-Identifier: Apache-2.0

"""Arguments with names, for functions of ronda._native that take them by position: made by
`make bindings` from client/ronda/operations.h. _native.pyi says what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class AllreduceRow(NamedTuple):
    """For allreduce(), allreduce_async() and, as a member, for groups."""

    name: str | None
    dtype: int
    shape: Sequence[int]
    input: int
    output: int
    keep: object
    op: int
    compression: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    process_set: int = 0
    error_feedback: bool = False
    detect_overflow: bool = False
    deadline_s: float = 0.0
    stream: int | None = None
