#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0

"""Finds rooms of the C++ sources that include each other in a circle: circles.py [ROOT].

A room is a folder of runtime/ or programs/ with all folders in it, or another top folder. If there
is a circle, the exit code is 1, and each line of the output has an include of the circle.
"""

from __future__ import annotations

import pathlib
import re
import sys

_TOP_FOLDERS = ("proto", "kernels", "runtime", "programs", "client", "bench", "examples")
_SOURCES = {".h", ".hpp", ".cc", ".cu", ".c"}
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)

# By the including room and the included room: a line of text for people.
Includes = dict[str, dict[str, str]]


def _room(path: str) -> str:
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] in ("runtime", "programs") else parts[0]


def includes_in(root: pathlib.Path) -> Includes:
    """One include for each pair of rooms that has any."""
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
    """The lines of one circle; [] if there is none."""
    rooms = dict(includes)
    # A room that includes no other of these rooms is no part of a circle.
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
