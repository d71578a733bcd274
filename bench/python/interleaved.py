# SPDX-License-Identifier: Apache-2.0

"""Measures several ways to do the same thing, alternating between them in the same processes."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ronda

Times = dict[str, list[float]]


def add_arguments(parser: argparse.ArgumentParser, turns: int) -> None:
    """Adds the options that all comparisons share."""
    parser.add_argument("--turns", type=int, default=turns)
    parser.add_argument("--calls", type=int, default=10, help="in a turn")
    parser.add_argument("--raw", metavar="FILE", help="each turn as CSV: case,way,turn,us")


def measure(ways: dict[str, Callable[[], Any]], turns: int, calls: int) -> Times:
    """Returns the microseconds of each way: for each turn, the median of the turn's calls on the
    slowest rank.

    Args:
        ways: functions that do their work and wait until it is done.
        turns: the turns per way. An additional first turn is not counted, because first calls are
            slow.
        calls: the calls per turn.
    """
    times: Times = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, way in ways.items():
            ronda.barrier()
            median = statistics.median(_seconds(way) for _ in range(calls))
            if turn:
                times[name].append(median * 1e6)
    every = ronda.allreduce(np.array(list(times.values())), ronda.ReduceOp.MAX)
    return dict(zip(times, every.tolist()))


def _seconds(way: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    way()
    return time.perf_counter() - begin


class Table:
    """Prints the median of each way on rank 0. The first way must be Ronda's. For each other way,
    prints its time divided by Ronda's time, and whether Ronda is faster or slower.
    """

    _LABEL, _COLUMN = 20, 22

    def __init__(self, raw: str | None = None) -> None:
        """
        Args:
            raw: a file to which each turn is written as one line.
        """
        self._raw = raw if ronda.rank() == 0 else None
        self._has_head = False
        if self._raw:
            Path(self._raw).write_text("case,way,turn,us\n")

    def add(self, case: str, times: Times) -> None:
        """Prints a row. Before the first row, prints the names of the ways as a header."""
        if not self._has_head:
            self._print("us", [*times, *(f"{each} / Ronda" for each in list(times)[1:])])
            self._has_head = True
        own, *others = (statistics.median(turns) for turns in times.values())
        figures = [f"{each:.1f}" for each in (own, *others)]
        self._print(case, [*figures, *(_verdict(each / own) for each in others)])
        if self._raw:
            with open(self._raw, "a") as file:
                for name, turns in times.items():
                    for turn, microseconds in enumerate(turns):
                        print(f'"{case}",{name},{turn},{microseconds:.1f}', file=file)

    def _print(self, label: str, cells: Sequence[str]) -> None:
        if ronda.rank() == 0:
            line = [label.ljust(self._LABEL), *(each.rjust(self._COLUMN) for each in cells)]
            print(*line, sep="  ", flush=True)


def _verdict(ratio: float) -> str:
    return f"{ratio:.2f}x {'ahead' if ratio > 1 else 'behind'}"


def say(text: str) -> None:
    """Prints a line on rank 0 that is not part of the table."""
    if ronda.rank() == 0:
        print(text, file=sys.stderr)
