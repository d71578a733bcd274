# SPDX-License-Identifier: Apache-2.0

"""Turns the plain text of comments and docstrings into Markdown."""

from __future__ import annotations

import re


def fence(code: str, language: str) -> str:
    """Returns `code` as a block of Markdown."""
    return f"```{language}\n{code.rstrip()}\n```\n"


def markdown(text: str, language: str) -> str:
    """Keeps paragraphs, but makes lines that are indented by two or more code of `language`."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        prose: list[str] = []
        code: list[str] = []
        for line in paragraph.split("\n"):
            if code or _is_code(line, prose):
                code.append(line)
            else:
                prose.append(line)
        if prose:
            parts.append(_escape("\n".join(prose)))
        if code:
            _add_code(parts, _dedent(code), language)
    return "\n\n".join(parts) + "\n"


def _is_code(line: str, prose: list[str]) -> bool:
    """Returns whether a line is indented, and does not continue an item of a list."""
    return line.startswith("  ") and not (prose and re.match(r"\s*([-*]|\d+\.) ", prose[-1]))


def _dedent(lines: list[str]) -> str:
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[indent:] for line in lines)


def _add_code(parts: list[str], code: str, language: str) -> None:
    """Adds a block of code. Joins it to the last block if only a blank line is between the two."""
    end = "\n```\n"
    if parts and parts[-1].endswith(end) and parts[-1].startswith(f"```{language}"):
        parts[-1] = parts[-1].removesuffix(end) + "\n\n" + code + end
    else:
        parts.append(fence(code, language))


def _escape(text: str) -> str:
    """Escapes Markdown's marks and tags outside of `code`, so that they are shown as they are."""
    pieces = re.split(r"(`[^`\n]*`)", text)
    for i in range(0, len(pieces), 2):
        pieces[i] = re.sub(r"[*_\[\]]", r"\\\g<0>", pieces[i]).replace("<", "&lt;")
        pieces[i] = re.sub(r"(?m)^(\s*)\\\* ", r"\1* ", pieces[i])  # an item of a list
    return "".join(pieces)
