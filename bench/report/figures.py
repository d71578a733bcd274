# SPDX-License-Identifier: Apache-2.0

"""Selects the data for the figures of a report, which drawing.py draws."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Literal

from runs import (
    ReportError,
    Row,
    Run,
    case_label,
    format_size,
    grouped,
    implementation_labels,
    implementation_name,
    ranks_text,
)

Axis = Literal["linear", "logarithmic", "bytes"]  # bytes: logarithmic, labelled 64 KiB, 1 MiB
Points = list[tuple[float, float]]


@dataclasses.dataclass
class LineChart:
    """Lines over a common axis, one line per implementation."""

    id: str  # the name of its file, without ".svg"
    title: str
    x_label: str
    y_label: str
    x_axis: Axis = "logarithmic"
    y_axis: Axis = "logarithmic"
    is_histogram: bool = False  # whose points are the beginnings of its bins
    series: dict[str, Points] = dataclasses.field(default_factory=dict)  # x ascends


@dataclasses.dataclass
class StackedBars:
    """The parts of a total, as one bar per implementation."""

    id: str
    title: str
    value_label: str
    parts: list[str]
    bars: list[tuple[str, list[float]]] = dataclasses.field(default_factory=list)


Figure = LineChart | StackedBars


def _titles(kind: str, name: str, run: Run) -> tuple[str, str]:
    """Returns the id and the title of a figure. Both include the name of the run, because figures
    of different runs are not comparable.
    """
    title = f"{name} ({run.name})"
    return re.sub(r"[^a-z0-9]+", "-", f"{kind} {title}".lower()).strip("-"), title


def _bandwidths(run: Run) -> Iterator[Figure]:
    def title(row: Row) -> str:
        if not (row.number("bytes") > 0 and row.number("algbw_gbs") > 0):
            return ""
        place = ", out of place" if row.text("placement") == "out" else ""
        return f"{row.text('op')}, {row.text('dtype')}, {ranks_text(row)}{place}"

    for name, rows in grouped(run.rows, title).items():
        id, text = _titles("bandwidth", name, run)
        chart = LineChart(id, f"Bandwidth: {text}", "size", "algbw, GB/s", x_axis="bytes")
        for label, own in grouped(rows, implementation_name).items():
            points = ((row.number("bytes"), row.number("algbw_gbs")) for row in own)
            chart.series[label] = sorted(points)
        yield chart


def _latencies(run: Run) -> Iterator[Figure]:
    def title(row: Row) -> str:
        if row.text("measure") != "calls" or not row.numbers("histogram_begin_us"):
            return ""
        return f"allreduce of {format_size(row.number('bytes'))}, {ranks_text(row)}"

    for name, rows in grouped(run.rows, title).items():
        id, text = _titles("latency", name, run)
        chart = LineChart(id, f"Latency: blocking {text}", "us", "% of the calls", y_axis="linear")
        chart.is_histogram = True
        for row in rows:
            bins = zip(row.numbers("histogram_begin_us"), row.numbers("histogram_count"))
            shares = [(begin, 100 * count / row.number("calls")) for begin, count in bins]
            chart.series[implementation_name(row)] = shares
        yield chart


def _breakdowns(run: Run) -> Iterator[Figure]:
    labels = {id(row): label for row, label in zip(run.rows, implementation_labels(run.rows))}
    for name, rows in grouped(run.rows, case_label).items():
        if len(rows) > 24:
            continue  # a larger sweep has its table
        id_, text = _titles("step", name, run)
        figure = StackedBars(id_, f"Step: {text}", "ms", ["compute", "exposed communication"])
        for row in rows:
            if row.text("contestant") != "compute only":
                parts = [row.number("compute_only_ms"), row.number("exposed_ms")]
                figure.bars.append((labels[id(row)], parts))
        yield figure


def _startups(run: Run) -> Iterator[Figure]:
    for name, rows in grouped(run.rows, ranks_text).items():
        id, text = _titles("startup", name, run)
        title = f"From the launcher to the end of the first allreduce: {text}"
        bars = [(implementation_name(row), [row.number("median_s")]) for row in rows]
        yield StackedBars(id, title, "s", ["median"], bars)


def _speedups(run: Run) -> Iterator[Figure]:
    """Yields the figure with the predictions of `advise`, and a line for ideal scaling."""
    if not run.rows:
        return
    _, title = _titles("advise", "How many times as fast as one rank", run)
    chart = LineChart(f"advise-{run.name}", title, "ranks", "times as fast")
    ranks = sorted({row.number("ranks") for row in run.rows})
    chart.series["ideal"] = [(1, 1), *((each, each) for each in ranks)]
    for wire, rows in grouped(run.rows, lambda row: row.text("wire")).items():
        points = (
            (row.number("ranks"), row.number("ranks") * row.number("efficiency")) for row in rows
        )
        chart.series[wire] = [(1, 1), *sorted(points)]
    yield chart


_FIGURES_BY_COMMAND: dict[str, Callable[[Run], Iterator[Figure]]] = {
    "collectives": _bandwidths,
    "step": _breakdowns,
    "latency": _latencies,
    "startup": _startups,
    "advise": _speedups,
}


def figures_of(runs: list[Run]) -> list[Figure]:
    """Returns the figures of all runs. Each figure shows one run.

    A run of `collectives` has a figure per operation, dtype, number of ranks and placement, which
    shows bandwidth over size. A run of `step` has a figure per case with the parts of a step, and a
    run of `latency` has a histogram per case. A run of `startup` has a figure per number of ranks
    with its times, and a run of `advise` has one figure with its predictions.
    """
    return [
        figure
        for command, make in _FIGURES_BY_COMMAND.items()
        for run in runs
        if run.command == command
        for figure in make(run)
    ]


# -- The speed against peers --


def _speed_lines(run: Run) -> dict[str, list[Row]]:
    """Returns the rows by implementation. The implementations are Ronda's client (or its
    communicator, if there is no client) and the peers with their versions.
    """
    plain = {"op": "allreduce", "dtype": "float32", "placement": "in", "wire": "none"}
    rows = [row for row in run.rows if plain.items() <= row.items()]
    own = {row.text("contestant") for row in rows if row.text("kind") == "ronda"}
    layer = "client" if "client" in own else "communicator"

    def label(row: Row) -> str:
        name = row.text("contestant")
        if row.text("kind") == "ronda":
            return "Ronda" if name == layer else ""
        versions = (p for p in run.peers if p.lower().replace(" ", "").startswith(name))
        return next(versions, name)

    return grouped(rows, label)


def speed_against_peers(runs: list[Run]) -> Figure:
    """Returns the bus bandwidth over size of an in-place float32 allreduce, for Ronda and its
    peers.

    Uses the run that measured the most implementations, or the first of several such runs.

    Raises:
        ReportError: no run measured such an allreduce.
    """
    candidates = [(run, _speed_lines(run)) for run in runs if run.command == "collectives"]
    run, lines = max(candidates, key=lambda each: len(each[1]), default=(None, {}))
    if run is None or not lines:
        raise ReportError("no run of collectives has an allreduce of float32 in place")
    first = next(iter(lines.values()))[0]
    machine = f"{run.cpu}, {run.cores} cores"
    chart = LineChart(
        "speed",
        f"Allreduce of float32, {ranks_text(first)}, {machine}",
        "message size",
        "bus bandwidth, GB/s",
        x_axis="bytes",
    )
    for name in sorted(lines, key=lambda name: name != "Ronda"):
        own = [row for row in lines[name] if row.number("ranks") == first.number("ranks")]
        points = ((row.number("bytes"), row.number("busbw_gbs")) for row in own)
        chart.series[name] = sorted(points)
    return chart
