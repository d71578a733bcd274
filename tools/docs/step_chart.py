#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Draws what communication adds to a training step: step_chart.py STEPS.csv CHART.svg.

The table has the columns "model", "way", "without communication" and "step". The last two are in
milliseconds, and "way" names how the model was trained. Each model has a group of bars, with a bar
for each row of the table. The colours can be read on light and on dark pages.
"""

from __future__ import annotations

import csv
import itertools
import pathlib
import sys
from xml.sax.saxutils import escape

_WIDTH = 760
_LEFT = 230  # where the bars begin
_BAR, _LINE = 20, 28
_TEXT, _ALONE, _RONDA, _OTHER = "#768390", "#8c959f", "#0072b2", "#d55e00"


def chart(rows: list[dict[str, str]]) -> str:
    """Returns the chart of a table as SVG."""
    longest = max(float(row["step"]) for row in rows)
    scale = (_WIDTH - _LEFT - 90) / longest
    parts = []
    y = 24
    for model, group in itertools.groupby(rows, key=lambda row: row["model"]):
        parts.append(f'<text x="0" y="{y}" font-weight="bold">{escape(model)}</text>')
        y += 12
        for row in group:
            parts += _bar(row, y, scale)
            y += _LINE
        y += 26
    legend = [(_ALONE, "the step alone"), (_RONDA, "communication by Ronda"), (_OTHER, "by Gloo")]
    x = _LEFT
    for color, text in legend:
        parts.append(_box(x, y - 14, 14, 14, color))
        parts.append(f'<text x="{x + 20}" y="{y - 3}">{text}</text>')
        x += 40 + 8 * len(text)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 6}" width="{_WIDTH}"'
        f' height="{y + 6}" font-family="sans-serif" font-size="14" fill="{_TEXT}">'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def _bar(row: dict[str, str], y: int, scale: float) -> list[str]:
    alone, step = float(row["without communication"]), float(row["step"])
    color = _RONDA if "Ronda" in row["way"] else _OTHER
    end = _LEFT + step * scale
    return [
        f'<text x="{_LEFT - 10}" y="{y + 15}" text-anchor="end">{escape(row["way"])}</text>',
        _box(_LEFT, y, alone * scale, _BAR, _ALONE),
        _box(_LEFT + alone * scale, y, (step - alone) * scale, _BAR, color),
        f'<text x="{end + 8:.1f}" y="{y + 15}">+ {step - alone:.0f} ms</text>',
    ]


def _box(x: float, y: float, width: float, height: float, color: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{color}"/>'


def main(table: str, picture: str) -> None:
    """Draws `table` into the file `picture`."""
    with open(table, newline="") as file:
        pathlib.Path(picture).write_text(chart(list(csv.DictReader(file))))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
