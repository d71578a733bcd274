# SPDX-License-Identifier: Apache-2.0

"""Writes the pages of a report, as HTML and Markdown."""

from __future__ import annotations

import html

from runs import ReportError, Run
from tables import Setting, Table, noise_in, sweep_tables, table_of_runs, tables_of

RESULTS_BEGIN = "<!-- results: written by ronda-bench report -->"
RESULTS_END = "<!-- end of results -->"

_STYLE = (
    "body{font-family:sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}"
    "svg{max-width:100%;height:auto;display:block;margin:1em 0}"
    "table{border-collapse:collapse;font-size:13px;margin:.5em 0 1.5em}"
    "th,td{border-bottom:1px solid #ddd;padding:3px 10px;text-align:left;vertical-align:top}"
    "th{background:#f4f4f4}code{font-size:12px}h3{margin-bottom:.2em;font-size:1em}"
)


def _html_row(cells: list[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>\n"


def _html_table(table: Table) -> str:
    rows = "".join(_html_row(row, "td") for row in table.rows)
    header = _html_row(table.header, "th")
    return f"<h3>{html.escape(table.title)}</h3>\n<table>\n{header}{rows}</table>\n"


def _html_run(run: Run) -> str:
    noise = noise_in(run)
    return (
        f"<h2>{html.escape(run.name)}</h2>\n<p><code>{html.escape(run.command_line())}</code></p>\n"
        + (f"<p>{html.escape(noise)}</p>\n" if noise else "")
        + "".join(map(_html_table, tables_of(run)))
    )


def html_of(runs: list[Run], drawings: list[str], default: Setting) -> str:
    """Returns a self-contained page with the sweeps, the runs, the figures, and all tables."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        f"<title>ronda-bench</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        "<h1>ronda-bench</h1>\n<p>Implementations of one run are measured interleaved: compare "
        "these, rather than figures of different runs. Ratios are of medians.</p>\n"
        + "".join(map(_html_table, [*sweep_tables(runs, default), table_of_runs(runs)]))
        + "<h2>Figures</h2>\n"
        + "".join(drawings)
        + "<h2>Tables</h2>\n"
        + "".join(map(_html_run, runs))
        + "</body>\n</html>\n"
    )


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _markdown_table(table: Table) -> str:
    rows = "".join(map(_markdown_row, table.rows))
    header = _markdown_row(table.header)
    return f"**{table.title}**\n\n{header}|{'---|' * len(table.header)}\n{rows}\n"


def markdown_of(runs: list[Run], default: Setting) -> str:
    """Returns all tables of the runs."""
    text = "".join(map(_markdown_table, [*sweep_tables(runs, default), table_of_runs(runs)]))
    for run in runs:
        noise = noise_in(run)
        text += f"### {run.name}\n\n`{run.command_line()}`\n\n" + (f"{noise}\n\n" if noise else "")
        text += "".join(map(_markdown_table, tables_of(run)))
    return text


def with_results(page: str, results: str) -> str:
    """Returns `page` with `results` between its two marker lines.

    Raises:
        ReportError: a marker line is missing.
    """
    before, begin, rest = page.partition(RESULTS_BEGIN)
    _, end, after = rest.partition(RESULTS_END)
    if not begin or not end:
        raise ReportError(
            f'has no lines "{RESULTS_BEGIN}" and "{RESULTS_END}" between which results could go'
        )
    return f"{before}{begin}\n\n{results}{end}{after}"
