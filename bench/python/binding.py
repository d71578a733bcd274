# SPDX-License-Identifier: Apache-2.0

"""Measures the cost of calls to the low-level Python binding on the calling thread.

    rondarun -np 2 python3 bench/python/binding.py

Prints the CPU time of a submission, a poll and so on in ns, including the loop. Each figure is the
best of many steps of 200 tensors. Also prints the latency of blocking 4-byte allreduces, in us.
"""

from __future__ import annotations

import array
import time
from collections.abc import Callable, Sequence
from typing import Any

from ronda import job
from ronda._library import native

_TENSORS = 200
_STEPS = 300
_CALLS = 40000
_FLOAT32 = 6


def _arguments(name: str, count: int) -> tuple[Any, ...]:
    """Returns the arguments of an in-place allreduce."""
    numbers = array.array("f", [1.0] * count)
    address = numbers.buffer_info()[0]
    return name, _FLOAT32, (count,), address, address, numbers, 0


def _cpu_time(call: Callable[[Any], object], values: Sequence[Any]) -> tuple[float, list[Any]]:
    """Returns the mean time of a call in nanoseconds, and the results of the calls."""
    begin = time.thread_time_ns()
    results = [call(value) for value in values]
    return (time.thread_time_ns() - begin) / len(values), results


def measure_calls() -> dict[str, float]:
    """Returns the shortest time for each kind of call, in nanoseconds."""
    rows = [_arguments(f"gradient.{i}", 4) for i in range(_TENSORS)]
    best: dict[str, float] = {}

    def step(kind: str, call: Callable[[Any], object], values: Sequence[Any]) -> list[Any]:
        spent, results = _cpu_time(call, values)
        best[kind] = min(spent, best.get(kind, spent))
        return results

    for _ in range(_STEPS):
        handles = step("allreduce_async", lambda row: native.allreduce_async(*row), rows)
        for kind in ("synchronize", "poll", "release"):
            step(kind, getattr(native, kind), handles)
        step("(an empty function of Python's)", lambda _: None, rows)
    return best


def measure_latency() -> list[float]:
    """Returns the latencies of blocking allreduces in microseconds, in ascending order."""
    row = _arguments("x", 1)
    latencies = []
    for _ in range(_CALLS):
        begin = time.perf_counter_ns()
        native.allreduce(*row)
        latencies.append((time.perf_counter_ns() - begin) / 1e3)
    return sorted(latencies)


def main() -> None:
    """Prints rank 0's figures."""
    job.init()
    calls, latencies = measure_calls(), measure_latency()
    if native.rank() == 0:
        for kind, nanoseconds in calls.items():
            print(f"{kind:32} {nanoseconds:6.0f} ns")
        shown = [
            f"{percent} %: {latencies[_CALLS * percent // 100]:.2f}" for percent in (1, 10, 50)
        ]
        print(f"allreduce of 4 bytes, {native.size()} ranks, us: {', '.join(shown)}")
    job.shutdown()


if __name__ == "__main__":
    main()
