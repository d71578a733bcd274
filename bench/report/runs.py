# SPDX-License-Identifier: Apache-2.0

"""Reads the result documents of ronda-bench (bench/harness/results.h), and names their rows."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Iterable
from typing import Any


class ReportError(Exception):
    """Raised if no report can be written. The message names the file and the reason."""


class Row(dict[str, Any]):
    """A measurement: a mapping from field names to values. None stands for a number that is not
    finite.
    """

    def number(self, name: str) -> float:
        """Returns the value of a field, or NaN if it is not a number."""
        value = self.get(name)
        return float(value) if isinstance(value, (int, float)) else math.nan

    def text(self, name: str) -> str:
        """Returns the value of a field, or "" if it is not a string."""
        value = self.get(name)
        return value if isinstance(value, str) else ""

    def numbers(self, name: str) -> list[float]:
        """Returns the value of a field, or [] if it is not a list."""
        value = self.get(name)
        if not isinstance(value, list):
            return []
        return [math.nan if each is None else float(each) for each in value]


@dataclasses.dataclass
class Run:
    """One run of ronda-bench."""

    name: str  # of its file, without folder and ".json"
    command: str
    rows: list[Row]
    version: str = ""
    arguments: list[str] = dataclasses.field(default_factory=list)
    date: str = ""
    cpu: str = ""
    cores: int = 0
    memory_gib: float = 0.0
    kernel: str = ""
    peers: list[str] = dataclasses.field(default_factory=list)  # with their versions
    busy_cores: list[float] = dataclasses.field(default_factory=lambda: [0, 0])  # before and after
    core_distance_ns: list[float] = dataclasses.field(default_factory=lambda: [0, 0])  # 0: unknown

    def command_line(self) -> str:
        """Returns the command line, such as "ronda-bench step --preset resnet50"."""
        return " ".join(["ronda-bench", self.command, *self.arguments])


# -- Reading --

_TEXTS = ("version", "command", "date")
_PAIRS = ("core_distance_ns", "busy_cores")


def _check(is_right: bool, what: str) -> None:
    if not is_right:
        raise ValueError(what)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _run_of(document: dict[str, Any], name: str) -> Run:
    # Earlier versions of ronda-bench wrote neither "peers" nor "busy_cores".
    document = {"peers": [], "busy_cores": [0, 0], **document}
    machine = document["machine"]
    for field in _TEXTS:
        _check(isinstance(document[field], str), f"{field} is no text")
    for field in _PAIRS:
        pair = document[field]
        _check(len(pair) == 2 and all(map(_is_number, pair)), f"{field} are not two numbers")
    for field in ("cores", "memory_gib"):
        _check(_is_number(machine[field]), f"machine.{field} is no number")
    return Run(
        name=name,
        rows=[Row(row) for row in document["rows"]],
        cpu=str(machine["cpu"]),
        cores=int(machine["cores"]),
        memory_gib=machine["memory_gib"],
        kernel=str(machine["kernel"]),
        arguments=[str(each) for each in document["arguments"]],
        peers=[str(each) for each in document["peers"]],
        **{field: document[field] for field in (*_TEXTS, *_PAIRS)},
    )


def parse_run(text: str, file: str) -> Run:
    """Raises:
    ReportError: `text`, the content of `file`, is not a result of ronda-bench.
    """
    refused = f"{file}: not a result of ronda-bench"
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("tool") != "ronda-bench":
            raise ReportError(refused)
        return _run_of(document, pathlib.Path(file).stem)
    except KeyError as error:
        raise ReportError(f"{refused}: it has no {error}") from error
    except (TypeError, ValueError) as error:
        raise ReportError(f"{refused}: {error}") from error


def read_runs(directory: pathlib.Path) -> list[Run]:
    """Returns the runs in all *.json files of a folder, sorted by name.

    Raises:
        ReportError: a file is not a result of ronda-bench, or there is no file.
        OSError: a file or the folder cannot be read.
    """
    files = sorted(file for file in directory.iterdir() if file.suffix == ".json")
    if not files:
        raise ReportError(f"{directory}: there is no file *.json in this folder")
    return [parse_run(file.read_text(errors="replace"), str(file)) for file in files]


# -- Names --


def format_size(count: float) -> str:
    """Formats a number of bytes for people, such as "64 KiB"."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{count:.4g} {units[0]}"


def ranks_text(row: Row) -> str:
    return f"{row.number('ranks'):g} ranks"


def fusion_text(threshold: float) -> str:
    return "no fusion" if threshold == 0 else f"fusion {format_size(threshold)}"


def wire_text(wire: str) -> str:
    return "fp32" if wire == "none" else wire


def implementation_name(row: Row) -> str:
    """Returns the implementation that a row of `collectives`, `latency` or `startup` measured, with
    the wire format unless it is fp32: "ronda client, fp16", "openmpi".
    """
    name = row.text("contestant")
    # The names of Ronda's layers may already start with "ronda".
    if row.text("kind") == "ronda" and not name.startswith("ronda"):
        name = f"ronda {name}"
    return name if row.text("wire") in ("", "none") else f"{name}, {row.text('wire')}"


def case_label(row: Row) -> str:
    """Returns the case of a `step` row: "resnet50, 2 ranks, 100 ms of backward (spin)"."""
    compute = row.number("compute_ms")
    computation = f"{compute:g} ms of backward ({row.text('compute_kind')})"
    return f"{row.text('preset')}, {ranks_text(row)}, " + (
        computation if compute > 0 else "no computation"
    )


# Functions that format a setting of a `step` row as text, by field name.
_SETTINGS: dict[str, Callable[[Row], str]] = {
    "fusion_threshold": lambda row: fusion_text(row.number("fusion_threshold")),
    "wire": lambda row: wire_text(row.text("wire")),
    "cycle_time_us": lambda row: f"cycle {row.number('cycle_time_us'):g} us",
    "backend": lambda row: row.text("backend"),
    "lock": lambda row: f"lock {row.text('lock')}",
}


def implementation_labels(rows: list[Row]) -> list[str]:
    """Returns a label for each row of a `step` run. The label has the implementation and the
    settings that vary within the run: "ronda fp16, lock off".
    """
    settings = [
        {field: tell(row) for field, tell in _SETTINGS.items() if row.get(field) is not None}
        for row in rows
    ]
    varied = [field for field in _SETTINGS if len({s[field] for s in settings if field in s}) > 1]
    texts = (", ".join(own[field] for field in varied if field in own) for own in settings)
    return [f"{row.text('contestant')} {text}".strip() for row, text in zip(rows, texts)]


def grouped(rows: Iterable[Row], title: Callable[[Row], str]) -> dict[str, list[Row]]:
    """Groups the rows by title, in the order in which the titles first appear. Drops rows with an
    empty title.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if name := title(row):
            groups.setdefault(name, []).append(row)
    return groups
