"""The works of this process that are in flight, and the memory that they use.

Collectives of one tensor that are started one behind the other take effect in that order, as on a
stream of a GPU. Ronda's engine orders operations by name and not by memory, so a collective waits
here for those before it that use its memory.
"""

from __future__ import annotations

import collections
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ronda.torch.c10d import _versions

if TYPE_CHECKING:
    from ronda.torch.c10d._work import Work


LOOKED_AT = 8  # works per call: more than are added


class Span(NamedTuple):
    """A range of addresses that a collective reads or writes."""

    begin: int
    end: int
    is_written: bool

    def conflicts(self, other: Span) -> bool:
        """Whether the order of the two collectives matters."""
        return (
            (self.is_written or other.is_written)
            and self.begin < other.end
            and other.begin < self.end
        )


def spans(reads: Iterable[torch.Tensor], writes: Iterable[torch.Tensor]) -> list[Span]:
    """The memory of a collective's tensors, as the caller passed them."""
    return [_span(each, False) for each in reads] + [_span(each, True) for each in writes]


def _span(tensor: Any, is_written: bool) -> Span:
    if tensor.layout is not torch.strided or not tensor.numel():
        return Span(0, 0, False)
    begin = tensor.data_ptr()
    if tensor.is_contiguous():
        return Span(begin, begin + tensor.numel() * tensor.element_size(), is_written)
    # With gaps: all that lies between its first element and its last.
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    return Span(begin, begin + (last + 1) * tensor.element_size(), is_written)


class InFlight:
    """Holds each work until it has ended, and so the tensors of those that nobody waits for.

    Older versions of PyTorch drop the Python half of a Work that only C++ code holds, and the C++
    half then waits for ever. There the last 8 works that have ended stay as they are, and 16384
    before them without their tensors, so that C++ code may wait again.

    Thread-safety: all methods may be called from any thread.
    """

    _KEPT = 0 if _versions.HAS_BACKENDS else 8
    _KEPT_HALVES = 0 if _versions.HAS_BACKENDS else 16384

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: collections.deque[tuple[Work, list[Span]]] = collections.deque()
        self._ended: collections.deque[Work] = collections.deque()
        self._halves: collections.deque[Work] = collections.deque(maxlen=self._KEPT_HALVES)

    def wait_for_users_of(self, uses: list[Span]) -> None:
        """Waits for the works whose memory a collective is about to change, or to read changed."""
        if not self._works:
            return
        self.forget_ended(LOOKED_AT)
        with self._lock:
            earlier = [
                work
                for work, theirs in self._works
                if any(mine.conflicts(other) for mine in uses for other in theirs)
            ]
        for work in earlier:
            # An error is told to the one who waits for that work.
            work.wait_quietly()

    def wait_for_collectives(self, process_set: int) -> None:
        """Waits for all collectives of a process set. Messages may wait for what comes later."""
        with self._lock:
            works = [work for work, _ in self._works if work.process_set == process_set]
        for work in works:
            work.wait_quietly()
        self.forget_ended(len(self._works))

    def add(self, work: Work, uses: list[Span]) -> None:
        """Remembers a work."""
        self.forget_ended(LOOKED_AT)
        with self._lock:
            self._works.append((work, uses))

    def forget_ended(self, most: int) -> None:
        """Lets go of works that have ended; looks at so many, in turn."""
        with self._lock:
            looked_at = [self._works.popleft() for _ in range(min(most, len(self._works)))]
        for entry in looked_at:
            if not entry[0].is_completed():
                with self._lock:
                    self._works.append(entry)
            elif self._KEPT:
                self._keep(entry[0])

    def _keep(self, work: Work) -> None:
        self._ended.append(work)
        if len(self._ended) > self._KEPT:
            oldest = self._ended.popleft()
            # Only `oldest` and the argument of getrefcount() refer to it: no one reads results.
            if sys.getrefcount(oldest) <= 2:
                oldest.forget_tensors()
            self._halves.append(oldest)


IN_FLIGHT = InFlight()
