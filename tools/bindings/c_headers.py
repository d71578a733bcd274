# SPDX-License-Identifier: Apache-2.0

"""Reads the enums, structs and functions declared in the headers of the C ABI.

This module parses only the subset of C used in client/ronda.h and client/ronda/operations.h: enums
whose values are numbers, structs with one field per declaration, and functions.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:.*\\\n)*.*$", re.MULTILINE)
_ENUM = re.compile(r"typedef enum \w+ \{([^}]*)\} (\w+);")
_STRUCT = re.compile(r"typedef struct \w+ \{([^}]*)\} (\w+);")
_FUNCTION = re.compile(r"\bronda_status (ronda_\w+)\(([^()]*)\);")
_FIELD = re.compile(r"(.*[\w*]) ?\b(\w+)")


class BindingsError(Exception):
    """The headers contain an unsupported construct. The message names it and the remedy."""


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a struct. `type` is the text in the header, for example "const void*"."""

    type: str
    name: str


@dataclasses.dataclass(frozen=True)
class Headers:
    """The declarations, in header order.

    Attributes:
        enums: {"ronda_dtype": {"RONDA_UINT8": 0, ...}}.
        structs: {"ronda_send_args": (Field("size_t", "struct_size"), ...)}.
        functions: the types of their parameters, for functions that return a ronda_status.
    """

    enums: dict[str, dict[str, int]]
    structs: dict[str, tuple[Field, ...]]
    functions: dict[str, tuple[str, ...]]


def read(*paths: pathlib.Path) -> Headers:
    """Returns the declarations in the headers at `paths`."""
    return parse("\n".join(path.read_text(encoding="utf-8") for path in paths))


def parse(text: str) -> Headers:
    """Returns the declarations in a header with this text."""
    text = _DIRECTIVE.sub("", _COMMENT.sub("", text))
    return Headers(
        enums={name: _values(name, body) for body, name in _ENUM.findall(text)},
        structs={name: _fields(body.split(";")) for body, name in _STRUCT.findall(text)},
        functions={
            name: tuple(field.type for field in _fields(parameters.split(",")))
            for name, parameters in _FUNCTION.findall(text)
        },
    )


def _values(enum: str, body: str) -> dict[str, int]:
    values = {}
    for entry in filter(None, map(str.strip, body.split(","))):
        name, equals, number = entry.partition(" = ")
        if not equals or not number.isdigit():
            raise BindingsError(f"{enum}: {entry!r} has no number: write '{name} = NUMBER'")
        values[name] = int(number)
    return values


def _fields(declarations: list[str]) -> tuple[Field, ...]:
    fields = []
    for declaration in declarations:
        words = " ".join(declaration.split())
        if match := _FIELD.fullmatch(words):
            fields.append(Field(match[1], match[2]))
        elif words:  # an unknown form, which its reader reports
            fields.append(Field(words, ""))
    return tuple(fields)
