#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0

"""Finds rooms of the C++ sources that include each other in a cycle: circles.py [ROOT].

A room is a folder in runtime/ or programs/ with its subfolders, or any other top folder. If there
is a cycle, the exit code is 1, and the output has a line for each include in the cycle.
"""

from __future__ import annotations

import pathlib
import re
import sys

_TOP_FOLDERS = ("proto", "kernels", "runtime", "programs", "client", "bench", "examples")
_SOURCES = {".h", ".hpp", ".cc", ".cu", ".c"}
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)

# Maps an including and an included room to a text that describes one such include.
Includes = dict[str, dict[str, str]]


def _room(path: str) -> str:
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] in ("runtime", "programs") else parts[0]


def includes_in(root: pathlib.Path) -> Includes:
    """Returns one include for each pair of rooms where one includes the other."""
    found: Includes = {}
    for top in _TOP_FOLDERS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in _SOURCES:
                continue
            own = str(file.relative_to(root))
            for header in _INCLUDE.findall(file.read_text(errors="replace")):
                if header.split("/")[0] in _TOP_FOLDERS and _room(header) != _room(own):
                    line = f"{_room(own)} -> {_room(header)}: {own} includes {header}"
                    found.setdefault(_room(own), {}).setdefault(_room(header), line)
    return found


def circle_in(includes: Includes) -> list[str]:
    """Returns the lines for one cycle, or [] if there is none."""
    rooms = dict(includes)
    # A room that includes no other room in `rooms` is not part of a cycle.
    while ends := [room for room, others in rooms.items() if not rooms.keys() & others.keys()]:
        for room in ends:
            del rooms[room]
    if not rooms:
        return []
    path = [min(rooms)]
    while path.count(path[-1]) == 1:
        path.append(min(rooms.keys() & rooms[path[-1]].keys()))
    path = path[path.index(path[-1]) :]
    return [rooms[room][other] for room, other in zip(path, path[1:])]


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    circle = circle_in(includes_in(pathlib.Path(arguments[0] if arguments else ".")))
    if not circle:
        return 0
    print("circles: these rooms include each other:", *circle, sep="\n  ", file=sys.stderr)
    print("circles: move a header, or what it needs, to the room below", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
