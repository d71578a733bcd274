# SPDX-License-Identifier: Apache-2.0

"""Arguments with names, for functions of ronda._native that take them by position: made by
`make bindings` from client/ronda/operations.h. _native.pyi says what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence

Allreduce = tuple[
    str | None,
    int,
    Sequence[int],
    int,
    int,
    object,
    int,
    int,
    float,
    float,
    int,
    bool,
    bool,
    float,
    int | None,
]


def allreduce(
    *,
    name: str | None,
    dtype: int,
    shape: Sequence[int],
    input: int,
    output: int,
    keep: object,
    op: int,
    compression: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: int = 0,
    error_feedback: bool = False,
    detect_overflow: bool = False,
    deadline_s: float = 0.0,
    stream: int | None = None,
) -> Allreduce:
    """For native.allreduce(), native.allreduce_async(), and for a member of a group."""
    return (
        name,
        dtype,
        shape,
        input,
        output,
        keep,
        op,
        compression,
        prescale,
        postscale,
        process_set,
        error_feedback,
        detect_overflow,
        deadline_s,
        stream,
    )
