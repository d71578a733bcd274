# SPDX-License-Identifier: Apache-2.0

"""Builds a page from the results of ronda-bench; started by `ronda-bench report`.

    python3 ronda-bench-report DIRECTORY MARKDOWN SPEED FUSION WIRE

`ronda-bench report --help` explains the first three arguments; "" means that the option was not
given. FUSION and WIRE are Ronda's default settings.
"""

from __future__ import annotations

import os
import pathlib
import sys

try:
    import drawing
except ImportError as error:
    # Debian's python3-matplotlib works only with Debian's Python, but another Python may come first
    # in PATH.
    if error.name != "matplotlib":
        raise
    debian = "/usr/bin/python3"
    if os.path.exists(debian) and os.path.realpath(debian) != os.path.realpath(sys.executable):
        os.execv(debian, [debian, *sys.argv])
    print(
        "ronda-bench: report draws with matplotlib, which Python does not find here: install "
        "Debian's python3-matplotlib, or pip install matplotlib",
        file=sys.stderr,
    )
    sys.exit(1)

from figures import Figure, figures_of, speed_against_peers
from pages import html_of, markdown_of, with_results
from runs import ReportError, read_runs
from tables import Setting


def _update_markdown(path: str, results: str) -> None:
    page = pathlib.Path(path)
    try:
        page.write_text(with_results(page.read_text(), results))
    except ReportError as error:
        raise ReportError(f"{path} {error}") from error


def _draw(figure: Figure, path: pathlib.Path) -> str:
    text = drawing.svg_of(figure)
    path.write_text(text)
    return text


def report(directory: pathlib.Path, markdown: str, speed: str, default: Setting) -> None:
    """Raises:
    ReportError, OSError: those of read_runs(), with_results() and speed_against_peers().
    """
    runs = read_runs(directory)
    drawings = [_draw(figure, directory / f"{figure.id}.svg") for figure in figures_of(runs)]
    page = directory / "index.html"
    page.write_text(html_of(runs, drawings, default))
    print(f"{page}: {len(runs)} runs, {len(drawings)} figures")
    if speed:
        _draw(speed_against_peers(runs), pathlib.Path(speed))
    if markdown:
        _update_markdown(markdown, markdown_of(runs, default))


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    directory, markdown, speed, fusion, wire = arguments
    try:
        report(pathlib.Path(directory), markdown, speed, (float(fusion), wire))
    except OSError as error:
        print(f"ronda-bench: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except ReportError as error:
        print(f"ronda-bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
