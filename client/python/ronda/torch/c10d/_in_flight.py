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

    Older versions of PyTorch drop the Python half of a Work that only C++ code holds. The C++ half
    then waits for ever. There the last 64 works stay as they are, and more of them without their
    tensors, so that C++ code may wait again.

    Thread-safety: all methods may be called from any thread.
    """

    _LOOKED_AT = 4  # works per call: more than are added
    _KEPT = 0 if _versions.HAS_BACKENDS else 64
    _KEPT_HALVES = 0 if _versions.HAS_BACKENDS else 16384

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: collections.deque[tuple[Work, list[Span]]] = collections.deque()
        self._halves: collections.deque[Work] = collections.deque(maxlen=self._KEPT_HALVES)

    def wait_for_users_of(self, uses: list[Span]) -> None:
        """Waits for the works whose memory a collective is about to change, or to read changed."""
        if not self._works:
            return
        with self._lock:
            earlier = [
                work
                for work, theirs in self._works
                if any(mine.conflicts(other) for mine in uses for other in theirs)
            ]
        for work in earlier:
            # An error is told to the one who waits for that work.
            work.wait_quietly()

    def add(self, work: Work, uses: list[Span]) -> None:
        """Remembers a work, and forgets some that have ended."""
        with self._lock:
            self._works.append((work, uses))
            looked_at = [
                self._works.popleft()
                for _ in range(min(self._LOOKED_AT, len(self._works) - self._KEPT))
            ]
        for entry in looked_at:
            if not entry[0].is_completed():
                with self._lock:
                    self._works.append(entry)
            elif self._KEPT_HALVES:
                self._keep_half(entry[0])

    def _keep_half(self, work: Work) -> None:
        # Only `entry`, `work` and the argument of getrefcount() refer to it: no one reads results.
        if sys.getrefcount(work) <= 3:
            work.forget_tensors()
        self._halves.append(work)


IN_FLIGHT = InFlight()
