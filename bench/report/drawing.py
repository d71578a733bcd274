# SPDX-License-Identifier: Apache-2.0

"""Draws figures with matplotlib."""

from __future__ import annotations

import io

import figures
import matplotlib
import matplotlib.axes
import matplotlib.figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from runs import format_size

# These colors are legible on light and dark pages, and to people who are color-blind. The first six
# are from the palette of Okabe and Ito. Lines of the same color have different dash patterns.
_COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c959f"]
_DASHES = ["-", (0, (9, 4)), (0, (2, 3)), (0, (9, 3, 2, 3))]
_GRAY = "#6e7781"

_STYLE = {
    "svg.fonttype": "none",  # texts stay texts
    "text.parse_math": False,
    "font.family": "sans-serif",
    "axes.grid": True,
    "grid.color": "#8c959f",
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    "axes.autolimit_mode": "round_numbers",  # an axis begins and ends at a tick
    "axes.xmargin": 0,
    "axes.ymargin": 0,
    "axes.titlesize": "medium",
    "legend.frameon": False,
    **{f"axes.spines.{side}": False for side in ("left", "right", "top", "bottom")},
    **{name: _GRAY for name in ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")},
}

# All lengths are in inches.
_WIDTH = 9.0
_TOP = 0.4  # the title
_BOTTOM = 0.7  # the labels of the axis
_RIGHT = 0.6
_LINE = 0.2  # of a legend


def short(number: float) -> str:
    """Returns a number with three significant digits ("0.00123", "1.23e+06"), but with all digits
    before the decimal point from 1,000 to a million.
    """
    return f"{number:.0f}" if 1000 <= abs(number) < 1e6 else f"{number:.3g}"


def _set_up(
    axes: matplotlib.axes.Axes, name: str, kind: figures.Axis, numbers: list[float]
) -> None:
    """Sets up the axis `name` ("x" or "y") of `axes` for `numbers`."""
    axis = getattr(axes, f"{name}axis")
    # matplotlib can draw a logarithmic axis only if there is a positive number.
    if kind != "linear" and any(number > 0 for number in numbers):
        base = 4 if kind == "bytes" else 10
        getattr(axes, f"set_{name}scale")("log", base=base, nonpositive="mask")
        axis.set_major_locator(LogLocator(base=base, numticks=13))
        axis.set_minor_locator(NullLocator())
    text = format_size if kind == "bytes" else short
    axis.set_major_formatter(FuncFormatter(lambda number, _: text(number)))


def _draw_lines(chart: figures.LineChart, axes: matplotlib.axes.Axes) -> None:
    for index, (name, points) in enumerate(chart.series.items()):
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            label=name,
            color=_COLORS[index % len(_COLORS)],
            linestyle=_DASHES[index // len(_COLORS) % len(_DASHES)],
            drawstyle="steps-post" if chart.is_histogram else "default",
            marker="" if chart.is_histogram else "o",
            markersize=4,
        )
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    points = [point for series in chart.series.values() for point in series]
    _set_up(axes, "x", chart.x_axis, [x for x, _ in points])
    _set_up(axes, "y", chart.y_axis, [y for _, y in points])
    if chart.y_axis == "linear":
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))


def _draw_bars(chart: figures.StackedBars, axes: matplotlib.axes.Axes) -> None:
    rows = range(len(chart.bars))
    ends = [0.0] * len(chart.bars)
    for index, part in enumerate(chart.parts):
        lengths = [max(0.0, parts[index]) for _, parts in chart.bars]
        color = _COLORS[index % len(_COLORS)]
        axes.barh(rows, lengths, left=ends, height=0.7, label=part, color=color)
        ends = [end + length for end, length in zip(ends, lengths)]
    for row, end in zip(rows, ends):
        axes.text(end, row, f" {short(end)}", verticalalignment="center")
    axes.set_yticks(rows, [name for name, _ in chart.bars])
    axes.set_ylim(max(1, len(chart.bars)) - 0.5, -0.5)  # the first one is on top
    axes.set_xlabel(chart.value_label)
    axes.grid(axis="y", visible=False)


def svg_of(figure: figures.Figure) -> str:
    """Returns the figure as an <svg> element for an HTML page or a file."""
    is_chart = isinstance(figure, figures.LineChart)
    names = list(figure.series) if is_chart else figure.parts
    left = 0.8 if is_chart else 2.6  # the names of implementations
    height = 3.1 if is_chart else 0.28 * max(1, len(figure.bars))
    bottom = _BOTTOM + _LINE * len(names)
    total = _TOP + height + bottom
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": figure.id}):
        drawn = matplotlib.figure.Figure(figsize=(_WIDTH, total))
        width = (_WIDTH - left - _RIGHT) / _WIDTH
        axes = drawn.add_axes((left / _WIDTH, bottom / total, width, height / total))
        axes.set_title(figure.title)
        if is_chart:
            _draw_lines(figure, axes)
        else:
            _draw_bars(figure, axes)
        drawn.legend(loc="lower left", borderaxespad=0)
        file = io.StringIO()
        drawn.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]
