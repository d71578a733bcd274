# SPDX-License-Identifier: Apache-2.0

"""Reads and checks expected.txt, the table of failing tests of third-party suites."""

from __future__ import annotations

import dataclasses
import fnmatch
import pathlib
from collections.abc import Iterable

from cases import Case, Result


@dataclasses.dataclass(frozen=True)
class Expectation:
    """A row of the table."""

    suite: str
    test: str  # a name, or a shell pattern
    torch: str  # "*", "2.6", "2.6+" or "1.13-2.6"
    ranks: str  # "*" or a number
    how: str  # "fails", or "may fail": the test itself has a race
    reason: str

    def covers(self, case: Case, torch: str) -> bool:
        return (
            self.suite == case.suite
            and fnmatch.fnmatchcase(case.test, self.test)
            and self.ranks in ("*", str(case.ranks))
            and _is_in(torch, self.torch)
        )


def read(path: pathlib.Path) -> list[Expectation]:
    """Reads the table.

    Raises:
        ValueError: a line is not a row. The error's text names the line.
    """
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 6 or not all(cells) or cells[4] not in ("fails", "may fail"):
            raise ValueError(
                f"{path.name}:{number}: want suite | test | torch | ranks | fails or may fail | why"
            )
        rows.append(Expectation(*cells))
    return rows


def surprises(results: Iterable[Result], rows: Iterable[Expectation], torch: str) -> list[str]:
    """Returns a sentence about each result that differs from the table."""
    sentences = []
    for result in results:
        row = expectation(result.case, rows, torch)
        if result.outcome == "fail" and row is None:
            sentences.append(f"{result.case.test} fails and is not listed")
        if result.outcome != "fail" and row is not None and row.how == "fails":
            ended = {"pass": "passes", "skip": "is skipped"}[result.outcome]
            sentences.append(f"{result.case.test} {ended}, and is listed: {row.reason}")
    return sentences


def expectation(case: Case, rows: Iterable[Expectation], torch: str) -> Expectation | None:
    """Returns the first row that covers a case with this version of torch."""
    return next((row for row in rows if row.covers(case, torch)), None)


def _is_in(version: str, span: str) -> bool:
    if span == "*":
        return True
    first, _, last = span.removesuffix("+").partition("-")
    is_open = span.endswith("+")
    return _numbers(first) <= _numbers(version) and (
        is_open or _numbers(version) <= _numbers(last or first)
    )


def _numbers(version: str) -> tuple[int, int]:
    """Returns (2, 6) for the version 2.6.0+cpu."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
