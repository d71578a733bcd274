"""Operations that have been started, and the memory that they use.

Operations on the same memory take effect in the order in which a rank starts them. Ronda's engine
orders operations by name and not by memory. So an operation that changes memory waits here until
those that were started before it have done with that memory, and one that reads memory waits for
those that change it.
"""

from __future__ import annotations

import bisect
import collections
import itertools
import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ronda.errors import RondaError

_LOOKED_AT = 8  # operations per call: more than are added


class Span(NamedTuple):
    """A range of addresses that an operation reads or writes."""

    begin: int
    end: int
    is_written: bool


class Started(Protocol):
    """An operation that has been submitted: a handle, or a Work of torch.distributed."""

    def poll(self) -> bool:
        """Whether the operation has ended. Never waits."""

    def settle(self) -> None:
        """Waits until the operation has ended, and leaves its error to the caller of wait()."""


class _Use(NamedTuple):
    begin: int
    number: int  # no two are equal, so that a comparison ends here
    end: int
    is_written: bool
    operation: Started


class InFlight:
    """The operations in flight, each kept until it has ended.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: list[_Use] = []  # ascending
        self._longest = 0  # bytes of a span, at least
        self._operations: collections.deque[tuple[Started, list[_Use]]] = collections.deque()
        self._numbers = itertools.count()

    def wait_for_users_of(self, spans: Iterable[Span]) -> None:
        """Waits for the operations after which one that uses `spans` must come."""
        if not self._operations:
            return
        self.forget_ended(_LOOKED_AT)
        with self._lock:
            earlier = [use.operation for span in spans for use in self._conflicts(span)]
        for operation in earlier:
            operation.settle()

    def has_users_of(self, span: Span) -> bool:
        """Whether wait_for_users_of() would wait."""
        with self._lock:
            conflicts = self._conflicts(span)
        return any(not _has_ended(use.operation) for use in conflicts)

    def operations(self) -> list[Started]:
        """Those that are in flight, and perhaps some that have ended."""
        with self._lock:
            return [operation for operation, _ in self._operations]

    def _conflicts(self, span: Span) -> list[_Use]:
        first = bisect.bisect_left(self._uses, (span.begin - self._longest,))
        last = bisect.bisect_left(self._uses, (span.end,))
        return [
            use
            for use in self._uses[first:last]
            if use.end > span.begin and (use.is_written or span.is_written)
        ]

    def add(self, operation: Started, spans: Iterable[Span]) -> None:
        """Remembers an operation, and forgets some that have ended."""
        self.forget_ended(_LOOKED_AT)
        with self._lock:
            uses = [
                _Use(begin, next(self._numbers), end, is_written, operation)
                for begin, end, is_written in spans
                if end > begin
            ]
            for use in uses:
                bisect.insort(self._uses, use)
                self._longest = max(self._longest, use.end - use.begin)
            self._operations.append((operation, uses))

    def forget_ended(self, most: int | None = None) -> None:
        """Lets go of operations that have ended.

        Args:
            most: how many to look at, those first that were looked at longest ago; None: all.
        """
        with self._lock:
            count = len(self._operations) if most is None else min(most, len(self._operations))
            looked_at = [self._operations.popleft() for _ in range(count)]
        for operation, uses in looked_at:
            # Not under the lock: a Work that has ended calls back.
            has_ended = _has_ended(operation)
            with self._lock:
                if has_ended:
                    self._forget(uses)
                else:
                    self._operations.append((operation, uses))

    def _forget(self, uses: list[_Use]) -> None:
        for use in uses:
            del self._uses[bisect.bisect_left(self._uses, use[:2])]
        if not self._uses:
            self._longest = 0


def _has_ended(operation: Started) -> bool:
    try:
        return operation.poll()
    except RondaError:
        return True  # another thread has waited for it, and has given its handle back meanwhile


IN_FLIGHT = InFlight()


def first_conflict(members: Sequence[Sequence[Span]]) -> tuple[int, int] | None:
    """Two of operations that are carried out together of which one changes the other's memory.

    Args:
        members: the memory of each operation, which may be its own input and output.
    """
    ordered = sorted((*span, i) for i, spans in enumerate(members) for span in spans)
    reaching: list[tuple[int, int, bool, int]] = []  # of those before, what reaches this far
    for begin, end, is_written, member in ordered:
        reaching = [each for each in reaching if each[1] > begin]
        for _, _, theirs_is_written, other in reaching:
            if other != member and (is_written or theirs_is_written):
                return other, member
        if end > begin:
            reaching.append((begin, end, is_written, member))
    return None
