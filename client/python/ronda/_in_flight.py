# SPDX-License-Identifier: Apache-2.0

"""Tracks the operations in flight, and the memory that they use.

Operations on the same memory take effect in the order in which a rank starts them. Ronda's engine
orders operations by name, not by memory. For this reason, an operation that changes memory waits
here until earlier operations have finished with that memory. An operation that reads memory waits
for earlier operations that change this memory.
"""

from __future__ import annotations

import bisect
import itertools
import math
import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ronda.errors import RondaError

_LOOKED_AT = 2  # operations that each call checks: more than a call adds


class Span(NamedTuple):
    """The memory that an operation reads or writes.

    The memory is a range of addresses. With a period, as for a column of a matrix, only the first
    `width` bytes of each `period` bytes of the range belong to it.
    """

    begin: int
    end: int
    is_written: bool
    period: int = 0
    width: int = 0

    def shares_memory_with(self, other: Span) -> bool:
        """Whether the two may have a byte in common. If in doubt, returns True."""
        if max(self.begin, other.begin) >= min(self.end, other.end):
            return False
        period = math.gcd(self.period, other.period)
        if period == 0:
            return True
        # Modulo the common period, each span has `width` consecutive addresses.
        offset = (other.begin - self.begin) % period
        return offset < self._run() or offset + other._run() > period

    def _run(self) -> int:
        return self.width if self.period else self.end - self.begin

    def conflicts_with(self, other: Span) -> bool:
        """Whether the order of operations on these spans matters."""
        return (self.is_written or other.is_written) and self.shares_memory_with(other)


class Started(Protocol):
    """An operation that has been submitted: a handle, or a Work of torch.distributed."""

    def poll(self) -> bool:
        """Whether the operation has ended. Never waits."""

    def settle(self) -> None:
        """Waits until the operation has ended. Does not raise its error; wait() does."""


# A use of memory: the first address, a unique number, the span and the operation. A comparison of
# two uses never compares the operations, because the numbers differ.
_Use = tuple[int, int, Span, Started]


class InFlight:
    """The operations in flight, each kept until it has ended.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: list[_Use] = []  # in ascending order
        self._longest = 0  # an upper limit of the bytes of a span
        # The operations, from the least to the most recently checked.
        self._operations: dict[Started, list[_Use]] = {}
        self._numbers = itertools.count()
        # The newest operation. It is added to the two collections above only when the next
        # operation arrives, because most operations have ended by then.
        self._newest: tuple[Started, Sequence[Span]] | None = None

    def __bool__(self) -> bool:
        """Whether wait_for_users_of() has anything to check."""
        return self._newest is not None or bool(self._operations)

    def wait_for_users_of(self, spans: Sequence[Span]) -> None:
        """Waits for the earlier operations that conflict with an operation on `spans`. Also drops
        some ended operations from the collection.
        """
        if not self:
            return
        self.forget_ended(_LOOKED_AT)
        with self._lock:
            earlier = [operation for span in spans for operation in self._users_of(span)]
        for operation in earlier:
            operation.settle()

    def has_users_of(self, span: Span) -> bool:
        """Whether wait_for_users_of() would wait."""
        with self._lock:
            self._enter_newest()
            users = self._users_of(span)
        return any(not _has_ended(operation) for operation in users)

    def operations(self) -> list[Started]:
        """The operations in flight, and perhaps some that have ended."""
        with self._lock:
            self._enter_newest()
            return list(self._operations)

    def _users_of(self, span: Span) -> list[Started]:
        first = bisect.bisect_left(self._uses, (span.begin - self._longest,))
        last = bisect.bisect_left(self._uses, (span.end,))
        return [
            operation
            for _, _, theirs, operation in self._uses[first:last]
            if theirs.conflicts_with(span)
        ]

    def add(self, operation: Started, spans: Sequence[Span]) -> None:
        """Adds an operation to the collection, where it stays until it has ended."""
        with self._lock:
            self._enter_newest()
            self._newest = operation, spans

    def _enter_newest(self) -> None:
        if self._newest is None:
            return
        operation, spans = self._newest
        self._newest = None
        uses = []
        for span in spans:
            if span.end > span.begin:
                use = (span.begin, next(self._numbers), span, operation)
                bisect.insort(self._uses, use)
                self._longest = max(self._longest, span.end - span.begin)
                uses.append(use)
        self._operations[operation] = uses

    def forget(self, operation: Started) -> None:
        """Drops an ended operation, if the collection still has it."""
        with self._lock:
            if self._newest is not None and self._newest[0] is operation:
                self._newest = None
                return
            for begin, number, *_ in self._operations.pop(operation, ()):
                del self._uses[bisect.bisect_left(self._uses, (begin, number))]
            if not self._uses:
                self._longest = 0

    def forget_ended(self, most: int | None = None) -> None:
        """Drops ended operations from the collection.

        Args:
            most: how many operations to check, starting with the least recently checked. None means
                all.
        """
        with self._lock:
            self._enter_newest()
            looked_at = list(itertools.islice(self._operations, most))
            for operation in looked_at:
                self._operations[operation] = self._operations.pop(operation)
        for operation in looked_at:
            # The check runs outside the lock, because a Work that has ended may call a function
            # that takes the lock.
            if _has_ended(operation):
                self.forget(operation)


def _has_ended(operation: Started) -> bool:
    try:
        return operation.poll()
    except RondaError:
        return True  # another thread has waited for the operation, and has released its handle


IN_FLIGHT = InFlight()


def first_conflict(members: Sequence[Sequence[Span]]) -> tuple[int, int] | None:
    """Returns two operations of a group, one of which writes to memory that the other uses, or
    None.

    Args:
        members: the memory of each operation. An operation's own input and output may overlap.
    """
    ordered = sorted(
        (span, i) for i, spans in enumerate(members) for span in spans if span.begin < span.end
    )
    reaching: list[tuple[Span, int]] = []  # earlier spans that reach up to this address
    for span, member in ordered:
        reaching = [each for each in reaching if each[0].end > span.begin]
        for theirs, other in reaching:
            if other != member and span.conflicts_with(theirs):
                return other, member
        reaching.append((span, member))
    return None
