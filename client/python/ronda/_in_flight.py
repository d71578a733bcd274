"""Operations that have been started, and the memory that they use.

Operations on the same memory take effect in the order in which a rank starts them. Ronda's engine
orders operations by name and not by memory. So an operation that changes memory waits here until
those that were started before it have done with that memory, and one that reads memory waits for
those that change it.
"""

from __future__ import annotations

import bisect
import itertools
import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ronda.errors import RondaError

_LOOKED_AT = 2  # operations per call: more than are added


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


# Where the memory begins, a number that no other use has, where the memory ends, whether the
# operation writes to it, and the operation. Numbers decide every comparison of two uses.
_Use = tuple[int, int, int, bool, Started]


class InFlight:
    """The operations in flight, each kept until it has ended.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: list[_Use] = []  # ascending
        self._longest = 0  # bytes of a span, at least
        # In the order in which they were looked at last.
        self._operations: dict[Started, list[_Use]] = {}
        self._numbers = itertools.count()
        # In none of the others until the next operation comes: most are waited for before.
        self._newest: tuple[Started, Sequence[Span]] | None = None

    def __bool__(self) -> bool:
        """Whether wait_for_users_of() has anything to look at."""
        return self._newest is not None or bool(self._operations)

    def wait_for_users_of(self, spans: Sequence[Span]) -> None:
        """Waits for the operations after which one that uses `spans` must come, and forgets some
        that have ended.
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
        """Those that are in flight, and perhaps some that have ended."""
        with self._lock:
            self._enter_newest()
            return list(self._operations)

    def _users_of(self, span: Span) -> list[Started]:
        begin, end, is_written = span
        first = bisect.bisect_left(self._uses, (begin - self._longest,))
        last = bisect.bisect_left(self._uses, (end,))
        return [
            operation
            for _, _, its_end, its_is_written, operation in self._uses[first:last]
            if its_end > begin < end and (its_is_written or is_written)
        ]

    def add(self, operation: Started, spans: Sequence[Span]) -> None:
        """Remembers an operation until it has ended."""
        with self._lock:
            self._enter_newest()
            self._newest = operation, spans

    def _enter_newest(self) -> None:
        if self._newest is None:
            return
        operation, spans = self._newest
        self._newest = None
        uses = []
        for begin, end, is_written in spans:
            if end > begin:
                use = (begin, next(self._numbers), end, is_written, operation)
                bisect.insort(self._uses, use)
                self._longest = max(self._longest, end - begin)
                uses.append(use)
        self._operations[operation] = uses

    def forget(self, operation: Started) -> None:
        """Lets go of an operation that has ended, if it is remembered."""
        with self._lock:
            if self._newest is not None and self._newest[0] is operation:
                self._newest = None
                return
            for begin, number, *_ in self._operations.pop(operation, ()):
                del self._uses[bisect.bisect_left(self._uses, (begin, number))]
            if not self._uses:
                self._longest = 0

    def forget_ended(self, most: int | None = None) -> None:
        """Lets go of operations that have ended.

        Args:
            most: how many to look at, those first that were looked at longest ago; None: all.
        """
        with self._lock:
            self._enter_newest()
            looked_at = list(itertools.islice(self._operations, most))
            for operation in looked_at:
                self._operations[operation] = self._operations.pop(operation)
        for operation in looked_at:
            # Not under the lock: a Work that has ended calls back.
            if _has_ended(operation):
                self.forget(operation)


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
    ordered = sorted(
        (*span, i) for i, spans in enumerate(members) for span in spans if span.begin < span.end
    )
    reaching: list[tuple[int, int, bool, int]] = []  # of those before, what reaches this far
    for begin, end, is_written, member in ordered:
        reaching = [each for each in reaching if each[1] > begin]
        for _, _, theirs_is_written, other in reaching:
            if other != member and (is_written or theirs_is_written):
                return other, member
        reaching.append((begin, end, is_written, member))
    return None
