# SPDX-License-Identifier: Apache-2.0

"""Builds the tables of a report."""

from __future__ import annotations

import dataclasses
import math

from runs import (
    Row,
    Run,
    case_label,
    format_size,
    fusion_text,
    grouped,
    implementation_labels,
    implementation_name,
    ranks_text,
    wire_text,
)


@dataclasses.dataclass
class Table:
    """A table that can be rendered as HTML and as Markdown."""

    title: str
    header: list[str]
    rows: list[list[str]] = dataclasses.field(default_factory=list)  # cells as in the header


def _cell(number: float, digits: int) -> str:
    return f"{number:.{digits}f}" if math.isfinite(number) else ""


def _readable(number: float) -> str:
    """Formats a number with about three significant digits, without an exponent."""
    return _cell(number, 0 if number >= 100 else 1 if number >= 10 else 2 if number >= 1 else 3)


# -- Noise --

# The names of the fields that hold the p10 and p90 over a row's rounds. The p10 and p90 of
# `latency` are not included, because they are over single calls, which always vary.
_SPREADS = (("p10_us", "p90_us"), ("step_ms_p10", "step_ms_p90"), ("p10_s", "p90_s"))


def _spread(row: Row) -> float:
    """Returns the p90 over the rounds divided by the p10, or NaN if the row has no rounds."""
    for low, high in _SPREADS:
        if row.number(low) > 0:
            return row.number(high) / row.number(low)
    return math.nan


def noise_in(run: Run) -> str:
    """Returns why the figures of a run cannot be trusted, or "" if they can.

    There are three such reasons: other programs used cores that the ranks needed; the distance
    between the cores changed by half; or the rounds (or steps) of most rows differ by a factor of
    two.
    """
    most_ranks = max((row.number("ranks") for row in run.rows if "ranks" in row), default=0)
    busy = max(run.busy_cores)
    if busy > max(0, run.cores - most_ranks) + 0.3:
        return (
            f"spoilt: other programs kept {busy:.1f} of {run.cores} cores busy before or after the "
            "run; run it again"
        )
    before, after = run.core_distance_ns
    # On virtual machines, this distance can change by a factor of five.
    if min(before, after) > 0 and max(before, after) > 1.5 * min(before, after):
        return (
            f"spoilt: the distance of the cores has changed from {before:.0f} to {after:.0f} ns; "
            "run it again"
        )
    spreads = [spread for spread in map(_spread, run.rows) if math.isfinite(spread)]
    wide = sum(spread > 2 for spread in spreads)
    if 2 * wide <= len(spreads):
        return ""
    return (
        f"spoilt: in {wide} of {len(spreads)} rows the slow rounds took more than twice as long as "
        "the quick ones; run it again"
    )


# -- The runs --


def table_of_runs(runs: list[Run]) -> Table:
    """Returns a table with each run's file, command, date, version, machine and noise."""
    table = Table(
        "runs",
        ["run", "command", "date", "measured", "machine", "cache line between cores, ns", "noise"],
    )
    for run in runs:
        before, after = run.core_distance_ns
        table.rows.append(
            [
                run.name,
                run.command_line(),
                run.date,
                ", ".join([f"Ronda {run.version}", *run.peers]),
                f"{run.cpu}, {run.cores} cores, {run.memory_gib:.0f} GiB, {run.kernel}",
                f"{before:.0f} - {after:.0f}",
                noise_in(run),
            ]
        )
    return table


# -- Fusion and compression --

Setting = tuple[float, str]  # fusion threshold, wire format


def _sweep_table(name: str, rows: list[Row], default: Setting) -> Table | None:
    """Returns the table of those rows of Ronda in one case that differ from the first row only in
    fusion threshold and wire format, or None if there are fewer than two settings.
    """

    def others(row: Row) -> list[object]:
        return [row.get(field) for field in ("cycle_time_us", "backend", "lock")]

    times: dict[Setting, float] = {}
    for row in rows:
        if others(row) == others(rows[0]):
            setting = (row.number("fusion_threshold"), row.text("wire"))
            times.setdefault(setting, row.number("step_ms"))
    if len(times) < 2:
        return None
    best = min(times, key=lambda setting: times[setting])

    def ratio(setting: Setting) -> str:
        return f"{times[default] / times[setting]:.2f}x" if default in times else ""

    def cell(setting: Setting) -> str:
        if setting not in times:
            return ""
        marks = [ratio(setting), "best" * (setting == best), "default" * (setting == default)]
        return ", ".join([f"{times[setting]:.2f}", *filter(None, marks)])

    speed = f"{ratio(best)} the speed of the default"
    verdict = speed if default in times else "the run has not measured the default"
    wires = list(dict.fromkeys(wire for _, wire in times))
    return Table(
        f"fusion x compression, {name}: ms of a step; best: {fusion_text(best[0])}, "
        f"{wire_text(best[1])}, {verdict}",
        ["", *map(wire_text, wires)],
        [
            [fusion_text(fusion), *(cell((fusion, wire)) for wire in wires)]
            for fusion in sorted({fusion for fusion, _ in times})
        ],
    )


def sweep_tables(runs: list[Run], default: Setting) -> list[Table]:
    """Returns a table for each case of each `step` run that varied the fusion threshold or the wire
    format. The table shows the times of all combinations, names the best, and compares each with
    Ronda's default.
    """
    tables = []
    for run in runs:
        if run.command != "step":
            continue
        noise = ", spoilt by noise" if noise_in(run) else ""
        # Rows without a wire format belong to a peer, or to the computation without communication.
        own = [row for row in run.rows if row.text("wire")]
        for label, rows in grouped(own, case_label).items():
            table = _sweep_table(f"{label} ({run.name}{noise})", rows, default)
            if table is not None:
                tables.append(table)
    return tables


# -- The results of one run, in the form that suits its command --


def _collectives_cell(row: Row, fastest_peer: float) -> str:
    time, bandwidth = row.number("median_us"), row.number("algbw_gbs")
    parts = [f"{_readable(time)} us"]
    if bandwidth > 0:
        parts.append(f"{_readable(bandwidth)} GB/s")
    if row.text("kind") != "peer" and math.isfinite(fastest_peer):
        parts.append(f"{_cell(fastest_peer / time, 2)}x")
    return ", ".join(parts)


def _collectives_title(row: Row) -> str:
    place = ", out of place" if row.text("placement") == "out" else ""
    return (
        f"{row.text('op')}, {row.text('dtype')}{place}, {ranks_text(row)}: time, algbw, and how "
        "many times faster than the fastest peer"
    )


def _collectives_tables(run: Run) -> list[Table]:
    """Returns a table per operation and dtype: a row per size, a column per implementation."""
    tables = []
    for title, rows in grouped(run.rows, _collectives_title).items():
        names = list(dict.fromkeys(map(implementation_name, rows)))
        table = Table(title, ["size", *names])
        for size, of_size in grouped(rows, lambda row: format_size(row.number("bytes"))).items():
            peers = (row.number("median_us") for row in of_size if row.text("kind") == "peer")
            fastest = min(peers, default=math.nan)
            cells = {implementation_name(row): _collectives_cell(row, fastest) for row in of_size}
            table.rows.append([size, *(cells.get(name, "") for name in names)])
        tables.append(table)
    return tables


def _step_tables(run: Run) -> list[Table]:
    tables: dict[str, Table] = {}
    for row, label in zip(run.rows, implementation_labels(run.rows)):
        header = ["implementation", "step, ms", "p10 - p90", "exposed, ms", "efficiency"]
        header += ["wire, MB", "control messages a step", "times faster than the fastest peer"]
        table = tables.setdefault(case_label(row), Table(case_label(row), header))
        # If several forms of a peer were measured, the fastest form counts.
        ratios = [row.number(field) for field in row if field.startswith("ratio_")]
        table.rows.append(
            [
                label,
                _readable(row.number("step_ms")),
                f"{_readable(row.number('step_ms_p10'))} - {_readable(row.number('step_ms_p90'))}",
                _readable(row.number("exposed_ms")),
                _cell(row.number("efficiency"), 3),
                _readable(row.number("wire_bytes") * 1e-6),
                _cell(row.number("control_messages"), 1),
                _cell(min(filter(math.isfinite, ratios), default=math.nan), 2),
            ]
        )
    return list(tables.values())


def _latency_tables(run: Run) -> list[Table]:
    names = ["min", "median", "p90", "p99", "max"]
    calls = Table("blocking allreduce, us", ["implementation", "ranks", "size", *names])
    idle = Table(
        "idle job, of one rank", ["ranks", "seconds", "CPU of all threads, us", "context switches"]
    )
    for row in run.rows:
        ranks = _cell(row.number("ranks"), 0)
        if row.text("measure") == "idle":
            seconds, switches = row.number("seconds"), row.number("context_switches")
            cpu = _readable(row.number("cpu_us"))
            idle.rows.append([ranks, _cell(seconds, 0), cpu, _cell(switches, 0)])
        else:
            times = [_readable(row.number(f"{name}_us")) for name in names]
            size = format_size(row.number("bytes"))
            calls.rows.append([implementation_name(row), ranks, size, *times])
    return [calls, idle] if idle.rows else [calls]


def _startup_tables(run: Run) -> list[Table]:
    table = Table(
        "from the launcher to the end of the first allreduce, s",
        ["implementation", "ranks", "median", "p10 - p90", "until the job has ended"],
    )
    for row in run.rows:
        fields = ("median_s", "p10_s", "p90_s", "total_median_s")
        median, low, high, total = (_cell(row.number(field), 3) for field in fields)
        ranks = _cell(row.number("ranks"), 0)
        table.rows.append([row.text("contestant"), ranks, median, f"{low} - {high}", total])
    return [table]


def _negotiation_tables(run: Run) -> list[Table]:
    counts = {
        "messages": "messages of a rank",
        "report_bytes": "report, bytes",
        "list_bytes": "list, bytes",
        "received_bytes": "rank 0 receives, bytes",
        "sent_bytes": "rank 0 sends, bytes",
    }
    header = ["ranks", "step", "rank 0, us of CPU", "another rank, us", *counts.values()]
    table = Table("agreeing on a step, simulated ranks", header)
    for row in run.rows:
        table.rows.append(
            [
                _cell(row.number("ranks"), 0),
                row.text("step"),
                _readable(row.number("coordinator_us")),
                _readable(row.number("other_us")),
                *(_cell(row.number(field), 0) for field in counts),
            ]
        )
    return [table]


_TABLES_BY_COMMAND = {
    "collectives": _collectives_tables,
    "step": _step_tables,
    "latency": _latency_tables,
    "startup": _startup_tables,
    "negotiation": _negotiation_tables,
}


def tables_of(run: Run) -> list[Table]:
    """Returns the tables of one run, or [] if its command has no tables."""
    make = _TABLES_BY_COMMAND.get(run.command)
    return make(run) if make else []
