# SPDX-License-Identifier: Apache-2.0

"""Reads the fenced blocks of README.md and of the pages in docs/."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator

# The languages of blocks that hold data, which the tests neither run nor compile.
_DATA = {"dockerfile", "ini", "json", "mermaid", "toml", "yaml"}


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of a page. `place` is the page and the line of the opening fence."""

    place: str
    language: str
    text: str

    def begins(self, words: str) -> bool:
        """Returns whether the block begins with these words, ignoring the amount of white space.
        The word <end> stands for the end of the block."""
        return f"{' '.join(self.text.split())} <end>".startswith(words)


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """Yields the blocks of a page, with their indentation removed."""
    begin, indent, language = 0, 0, ""
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        is_fence = line.lstrip().startswith("```")
        if is_fence and not begin:
            begin, indent, lines = number, len(line) - len(line.lstrip()), []
            language = line.strip(" `").lower()
        elif is_fence:
            yield Block(f"{page}:{begin}", language, "".join(lines))
            begin = 0
        elif begin:
            lines.append(line[indent:] + "\n")


def programs() -> list[Block]:
    """Returns all blocks except those with data: commands and code that a reader may paste, and
    output."""
    pages = [pathlib.Path("README.md"), *sorted(pathlib.Path("docs").rglob("*.md"))]
    blocks = [block for page in pages for block in blocks_of(str(page), page.read_text())]
    return [block for block in blocks if block.language not in _DATA]
