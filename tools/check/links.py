# SPDX-License-Identifier: Apache-2.0

"""Checks links between documentation pages, and references to pages in the sources."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterator

from sources import Finding, Sources
from text_rules import SOURCES

_LINK = re.compile(r"\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)?\]\(([^()\s]+)\)")
_MENTION = re.compile(r"(?<![\w/.-])(docs/[\w/.-]+\.md)(#[\w-]+)?")
_FENCE = re.compile(r"^ *```.*?^ *```[^\n]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")


def _blank(match: re.Match[str]) -> str:
    """Returns only the line ends of the match, so that later line numbers stay correct."""
    return "\n" * match[0].count("\n")


def anchor(heading: str) -> str:
    """Returns the anchor that GitHub generates for a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    kept = (c for c in text if c in "-_ " or unicodedata.category(c)[0] in "LN")
    return "".join(kept).replace(" ", "-")


def _anchors(text: str) -> set[str]:
    found: set[str] = set(re.findall(r'<\w+ (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#{1,6} +(.*?) *#* *$", _FENCE.sub(_blank, text), re.MULTILINE):
        name = anchor(heading)
        twin, count = name, 0
        while twin in found:
            count += 1
            twin = f"{name}-{count}"
        found.add(twin)
    return found


class _Pages:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._files = set(sources.files)
        self._folders = {parent for path in sources.files for parent in _parents(path)}
        self._anchors: dict[str, set[str]] = {}

    def problem(self, target: str, name: str) -> str | None:
        """Returns why the link to the anchor `name` of `target` is broken, or None."""
        if target in self._folders and not name:
            return None
        if target not in self._files:
            return f"{target} does not exist: mend the link"
        if name and target.endswith(".md"):
            if target not in self._anchors:
                self._anchors[target] = _anchors(self._sources.text(target))
            if name not in self._anchors[target]:
                return f"{target} has no heading for #{name}: mend the link"
        return None


def _parents(path: str) -> Iterator[str]:
    while path := posixpath.dirname(path):
        yield path


def check_links(sources: Sources) -> Iterator[Finding]:
    """Every link between files of the repository points to an existing file and heading."""
    pages = _Pages(sources)
    for path in sources.all(".md"):
        text = _CODE.sub(lambda match: " " * len(match[0]), _FENCE.sub(_blank, sources.text(path)))
        for match in _LINK.finditer(text):
            if re.match(r"[a-z]+:", match[1]):
                continue  # a link to another site
            target, _, name = match[1].partition("#")
            folder = posixpath.dirname(path)
            full = posixpath.normpath(posixpath.join(folder, target)) if target else path
            if problem := pages.problem(full, name):
                yield Finding(path, text.count("\n", 0, match.start()) + 1, problem)
    for path in sources.all(*SOURCES):
        for number, line in enumerate(sources.lines(path), 1):
            for match in _MENTION.finditer(line):
                if problem := pages.problem(match[1], (match[2] or "")[1:]):
                    yield Finding(path, number, problem)
