"""Works for C++ code of older versions of PyTorch, which drop the Python half of a Work that only
C++ code holds: its C++ half then waits for ever.
"""

from __future__ import annotations

import collections
import sys
import threading

from ronda.torch.c10d._work import Work

_WHOLE = 8  # works that stay as they are
_LOOKED_AT = 8  # works per call: more than are added


class Halves:
    """Keeps the last works as they are, and 16384 before them without their tensors, so that C++
    code may wait for them again.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._whole: collections.deque[Work] = collections.deque()
        self._halves: collections.deque[Work] = collections.deque(maxlen=16384)

    def keep(self, work: Work) -> None:
        """Keeps one more, and lets go of the tensors of some others that have ended."""
        with self._lock:
            self._whole.append(work)
            count = min(_LOOKED_AT, len(self._whole) - _WHOLE)
            looked_at = [self._whole.popleft() for _ in range(count)]
        while looked_at:
            self._halve(looked_at)

    def _halve(self, works: list[Work]) -> None:
        oldest = works.pop()
        # Only `oldest` and the argument of getrefcount() refer to it: nobody reads its result.
        if oldest.is_completed() and sys.getrefcount(oldest) <= 2:
            oldest.forget_tensors()
            self._halves.append(oldest)
        else:
            with self._lock:
                self._whole.append(oldest)


HALVES = Halves()
