# SPDX-License-Identifier: Apache-2.0

"""Runs random programs over torch.distributed. Each result must be bitwise equal to what one
process computes, or every rank of the group must get an error.
"""

from __future__ import annotations

import datetime
import random
import unittest
from typing import Any

import c10d_calls
import fuzzing
import ronda.torch.c10d  # noqa: F401
import torch
import torch.distributed as dist
from c10d_calls import Call, Started

_PROGRAMS = 200
_GROUPS: list[tuple[tuple[int, ...], Any]] = []  # the members of each, and the group


def setUpModule() -> None:
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=60)
    dist.init_process_group("ronda", timeout=timeout)
    everyone = tuple(range(dist.get_world_size()))
    sets = {everyone, everyone[:1], everyone[1:], everyone[:2], everyone[::2]} - {()}
    for members in sorted(sets):
        _GROUPS.append((members, dist.new_group(list(members), timeout=timeout)))


def tearDownModule() -> None:
    dist.destroy_process_group()


class _Rank:
    """Runs one program on this rank."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)  # the same numbers on every rank
        self._own = random.Random(f"{seed} {dist.get_rank()}")
        self._calls: list[tuple[Call, Any]] = []
        for index in range(self._draw.randint(1, 8)):
            members, group = self._draw.choice(_GROUPS)
            call = c10d_calls.random_call(self._draw, seed, index, members)
            if self._draw.random() < 0.08:
                call = c10d_calls.with_oddity(self._draw, call)
            self._calls.append((call, group))
        self._open: list[tuple[Call, Started]] = []
        self.failures: list[str] = []

    def run(self) -> list[str]:
        for call, group in self._calls:
            if dist.get_rank() in call.members:
                self._start(call, group)
            while self._open and self._own.random() < 0.3:
                self._end_one()
        while self._open:
            self._end_one()
        if self.failures:
            self.failures += ["the program:", *(str(call) for call, _ in self._calls)]
        return self.failures

    def _start(self, call: Call, group: Any) -> None:
        me = call.members.index(dist.get_rank())
        try:
            made = c10d_calls.as_made_by(call, me)
            started = c10d_calls.STARTS[made.kind](made, me, group)
        except Exception as error:
            self._note(call, error)
            return
        if started.works and started.tensor is not None and call.odd is None:
            self._swap_memory(started.tensor)
        if started.works:
            self._open.append((call, started))
        else:
            self._conclude(call, started)

    def _swap_memory(self, tensor: torch.Tensor) -> None:
        how = self._own.choice(["leave", "leave", "data", "set_"])
        if how == "data":
            tensor.data = torch.zeros_like(tensor)
        elif how == "set_":
            tensor.set_(torch.zeros_like(tensor))

    def _end_one(self) -> None:
        call, started = self._open.pop(self._own.randrange(len(self._open)))
        if call.odd is None and self._own.random() < 0.1:
            return  # no rank waits for it
        try:
            for work in started.works:
                self._wait(work)
        except Exception as error:
            self._note(call, error)
        else:
            self._conclude(call, started)

    def _wait(self, work: Any) -> None:
        how = self._own.choice(["once", "twice", "polls", "future"])
        if how == "future":
            work.get_future().wait()
        while how == "polls" and not work.is_completed():
            pass
        for _ in range(2 if how == "twice" else 1):
            work.wait()

    def _conclude(self, call: Call, started: Started) -> None:
        if call.must_fail(call.members.index(dist.get_rank())):
            self._fail(call, "no error")
        elif call.odd is None and (wrong := started.check()):
            self._fail(call, wrong)

    def _note(self, call: Call, error: Exception) -> None:
        if call.odd is None:
            self._fail(call, f"{type(error).__name__}: {error}")
        elif call.members[call.odd[0]] != dist.get_rank() and "rank" not in str(error):
            self._fail(call, f"the error names no rank: {type(error).__name__}: {error}")

    def _fail(self, call: Call, text: str) -> None:
        self.failures.append(f"rank {dist.get_rank()}, call {call}: {text}")


class FuzzTest(unittest.TestCase):
    def test_programs_compute_what_one_process_does_or_fail_on_every_rank(self) -> None:
        fuzzing.for_each_program("c10d", lambda seed: _Rank(seed).run(), _PROGRAMS)


if __name__ == "__main__":
    unittest.main()
