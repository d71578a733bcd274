# SPDX-License-Identifier: Apache-2.0

"""Converts the plain text of comments and docstrings to Markdown."""

from __future__ import annotations

import re


def fence(code: str, language: str) -> str:
    """Returns `code` as a Markdown code block."""
    return f"```{language}\n{code.rstrip()}\n```\n"


def markdown(text: str, language: str) -> str:
    """Keeps paragraphs, but turns lines indented by two or more into code blocks of `language`."""
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
    """Returns whether a line is indented and does not continue a list item."""
    return line.startswith("  ") and not (prose and re.match(r"\s*([-*]|\d+\.) ", prose[-1]))


def _dedent(lines: list[str]) -> str:
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[indent:] for line in lines)


def _add_code(parts: list[str], code: str, language: str) -> None:
    """Appends a code block, or merges it with the last one across a single blank line."""
    end = "\n```\n"
    if parts and parts[-1].endswith(end) and parts[-1].startswith(f"```{language}"):
        parts[-1] = parts[-1].removesuffix(end) + "\n\n" + code + end
    else:
        parts.append(fence(code, language))


def _escape(text: str) -> str:
    """Escapes Markdown and HTML outside `code`, so that it is displayed literally."""
    pieces = re.split(r"(`[^`\n]*`)", text)
    for i in range(0, len(pieces), 2):
        pieces[i] = re.sub(r"[*_\[\]]", r"\\\g<0>", pieces[i]).replace("<", "&lt;")
        pieces[i] = re.sub(r"(?m)^(\s*)\\\* ", r"\1* ", pieces[i])  # an item of a list
    return "".join(pieces)
