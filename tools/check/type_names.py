# SPDX-License-Identifier: Apache-2.0

"""Checks that no two C++ types of the project have the same qualified name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from sources import Finding, Sources

_OPENS = re.compile(r"(?:inline )?namespace ?([\w:]*) ?\{$")
_CLOSES = re.compile(r"\}  // (?:inline )?namespace")
_TYPE = re.compile(
    r"(?:template <.*> )?(?:class|struct|union|enum(?: class)?) "
    r"(?:[A-Z_]{4,}(?:\(.*?\))? |alignas\(.*?\) |\[\[\w+\]\] )*(\w+)(?: final)?(?: :[^:].*)? \{"
)


def _definitions(lines: list[str]) -> Iterator[tuple[str, int]]:
    """Yields names and lines of types in named namespaces, in text formatted by clang-format."""
    spaces: list[str] = []
    for number, line in enumerate(lines, 1):
        if opens := _OPENS.match(line):
            spaces.append(opens[1])
        elif _CLOSES.match(line) and spaces:
            spaces.pop()
        elif (kind := _TYPE.match(line)) and spaces and "" not in spaces:
            yield "::".join([*spaces, kind[1]]), number


def check_type_names(sources: Sources) -> Iterator[Finding]:
    """Each type has a unique name.

    Two types with the same name violate C++'s one-definition rule, and no compiler or linker
    reports this.
    """
    places: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for path in sources.all(".h", ".hpp", ".cc", ".cu", ".cuh"):
        for name, line in _definitions(sources.lines(path)):
            places[name].append((path, line))
    for name, found in places.items():
        first = found[0]
        for path, line in found[1:]:
            if path != first[0]:
                text = f"{first[0]}:{first[1]} also defines {name}: rename one by meaning"
                yield Finding(path, line, text)
