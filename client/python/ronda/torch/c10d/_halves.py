# SPDX-License-Identifier: Apache-2.0

"""Keeps Works alive for older versions of PyTorch. Older versions destroy the Python part of a Work
that only C++ code holds, and its C++ part would then wait forever.
"""

from __future__ import annotations

import collections
import sys
import threading

from ronda.torch.c10d._work import Work

_WHOLE = 8  # works that keep their tensors
_LOOKED_AT = 8  # works that each call checks: more than a call adds


class Halves:
    """Keeps the newest works unchanged. Keeps 16384 earlier works without their tensors, so that
    C++ code may wait for them again.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._whole: collections.deque[Work] = collections.deque()
        self._halves: collections.deque[Work] = collections.deque(maxlen=16384)

    def keep(self, work: Work) -> None:
        """Keeps `work`, and drops the tensors of some earlier works that have ended."""
        with self._lock:
            self._whole.append(work)
            count = min(_LOOKED_AT, len(self._whole) - _WHOLE)
            looked_at = [self._whole.popleft() for _ in range(count)]
        while looked_at:
            self._halve(looked_at)

    def _halve(self, works: list[Work]) -> None:
        oldest = works.pop()
        # If only `oldest` and the argument of getrefcount() refer to the Work, its result is no
        # longer needed.
        if oldest.is_completed() and sys.getrefcount(oldest) <= 2:
            oldest.forget_tensors()
            self._halves.append(oldest)
        else:
            with self._lock:
                self._whole.append(oldest)


HALVES = Halves()
