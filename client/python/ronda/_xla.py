# SPDX-License-Identifier: Apache-2.0

"""The Ronda operations in programs that XLA has compiled."""

from __future__ import annotations

import enum


class Kind(enum.IntEnum):
    """Operations, numbered as in _native_xla.c."""

    ALLREDUCE = 0
    BROADCAST = 1
    ALLGATHER = 2
    REDUCESCATTER = 3
    ALLTOALL = 4
    SEND = 5
    RECV = 6
    BARRIER = 7


REDUCTIONS = (Kind.ALLREDUCE, Kind.REDUCESCATTER)
# Operations on rows: the first dimension counts the rows.
OF_ROWS = (Kind.ALLGATHER, Kind.REDUCESCATTER, Kind.ALLTOALL)
# Operations whose results reuse the memory of the arguments.
IN_PLACE = (Kind.BROADCAST, Kind.SEND, Kind.BARRIER)
# Operations that Ronda matches by their order or their tag, because they have no name.
NAMELESS = (Kind.SEND, Kind.RECV, Kind.BARRIER)
