# SPDX-License-Identifier: Apache-2.0

"""The reports that ranks exchange about the gradients of a step, before they wait for them.

A rank may not have some gradients that other ranks have. A rank does not submit zeros for missing
gradients at the end of its backward pass, because another pass may compute them. So the other ranks
must not wait for these gradients at the end of their own pass. Gradients that no rank has must not
be created. The reports of all ranks tell each rank which gradients are missing. A report consists
of bytes, and every rank gets the maximum of each byte over all ranks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from ronda import _rows
from ronda._library import native
from ronda.types import DType, ReduceOp

# The reason for a report: the end of a backward pass or step, or reduced gradients that the program
# has changed.
REDUCTION = 1
CHANGES = 2

_LARGEST = 255


@dataclass(frozen=True)
class Report:
    """The report of a rank, or of all ranks. The report of all ranks has the maximum of each
    number.
    """

    lacks: bytes  # by gradient: 1 if it has not been submitted
    kinds: bytes  # by gradient: its kind (_gradient.py)
    changed: bytes  # by gradient: 1 if the program has changed it in flight, or after its reduction
    is_open: bool  # more backward passes may follow
    stage: int = REDUCTION
    is_of_one_stage: bool = True

    def encode(self) -> bytes:
        """Encodes the report. The maximum of each byte over all ranks is the input of decode()."""
        rest = bytes((self.is_open, self.stage, _LARGEST - self.stage))
        return self.lacks + self.kinds + self.changed + rest

    @classmethod
    def decode(cls, data: bytes) -> Report:
        """Returns the report of all ranks."""
        count = len(data) // 3 - 1
        latest, earliest = data[-2], _LARGEST - data[-1]
        return cls(
            data[:count],
            data[count : 2 * count],
            data[2 * count : 3 * count],
            bool(data[-3]),
            latest,
            latest == earliest,
        )


class Exchange:
    """Exchanges the reports of the ranks of a process set, as a prepared group of one tensor."""

    def __init__(self, names: Sequence[str], process_set: int) -> None:
        """
        Args:
            names: the names of the gradients, the same on every rank.
            process_set: the id of the process set.
        """
        self._buffer = bytearray(3 * len(names) + 3)
        memory = (ctypes.c_char * len(self._buffer)).from_buffer(self._buffer)
        address = ctypes.addressof(memory)
        row = _rows.allreduce(
            name=f"what ranks have of {names[0]} and {len(names) - 1} more gradients",
            dtype=int(DType.UINT8),
            shape=(len(self._buffer),),
            input=address,
            output=address,
            keep=memory,
            op=int(ReduceOp.MAX),
            process_set=process_set,
        )
        self._group = native.prepare_group([row], "report")
        self.is_under_way = False  # begun, and not finished

    def begin(self, own: Report) -> None:
        """Starts to send the report of this rank to the other ranks."""
        self._buffer[:] = own.encode()
        native.group_ready(self._group, 0)
        self.is_under_way = True

    def finish(self) -> Report:
        """Waits until each rank has called begin(), and returns the report of all ranks."""
        native.group_wait(self._group)
        self.is_under_way = False
        return Report.decode(bytes(self._buffer))

    def close(self) -> None:
        """Releases the prepared group. Waits if a report is in flight."""
        native.group_release(self._group)
