# SPDX-License-Identifier: Apache-2.0

"""Reads the enums, structs and functions declared in the headers of the C ABI.

This module parses only the subset of C used in client/ronda.h and the headers that it includes:
enums whose values are numbers, structs with one field per declaration, functions, other types, and
constants.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterator

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:.*\\\n)*.*$", re.MULTILINE)
_INCLUDE = re.compile(r'^#include "(.*)"$', re.MULTILINE)
_CONSTANT = re.compile(r"^#define (\w+)[ \t]+((?:.*\\\n)*.*)$", re.MULTILINE)
_LINKAGE = re.compile(r'extern "C" \{(.*)\}', re.DOTALL)
_ENUM = re.compile(r"typedef enum \w+ \{([^}]*)\} (\w+);")
_STRUCT = re.compile(r"typedef struct \w+ \{([^}]*)\} (\w+);")
_FUNCTION = re.compile(r"\bronda_status (ronda_\w+)\(([^()]*)\);")
_FIELD = re.compile(r"(.*[\w*]) ?\b(\w+)")
# The name of a function, or of a type of functions; the names of a function's parameters.
_CALLABLE = re.compile(r"(\w+)\)?\(")
_PARAMETER = re.compile(r"(?<=[\w*] )\w+(?=[,)])")


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
        others: the texts of all other declarations, of all functions and of constants, by name.
            Functions have no names of parameters: "int ronda_process_set_size(ronda_process_set)".
    """

    enums: dict[str, dict[str, int]]
    structs: dict[str, tuple[Field, ...]]
    functions: dict[str, tuple[str, ...]]
    others: dict[str, str]


def read(*paths: pathlib.Path) -> Headers:
    """Returns the declarations in the headers at `paths`."""
    return _join(parse(path.read_text(encoding="utf-8")) for path in paths)


def read_with_includes(path: pathlib.Path) -> Headers:
    """Returns the declarations in the header at `path`, and in the headers that it includes."""
    paths = [path]
    for each in paths:  # which grows
        for name in _INCLUDE.findall(each.read_text(encoding="utf-8")):
            included = pathlib.Path(os.path.normpath(each.parent / name))
            if included not in paths:
                paths.append(included)
    return read(*paths)


def _join(headers: Iterator[Headers]) -> Headers:
    joined = Headers({}, {}, {}, {})
    for each in headers:
        joined.enums.update(each.enums)
        joined.structs.update(each.structs)
        joined.functions.update(each.functions)
        joined.others.update(each.others)
    return joined


def parse(text: str) -> Headers:
    """Returns the declarations in a header with this text."""
    text = _COMMENT.sub("", text)
    constants = {
        name: " ".join(value.replace("\\\n", " ").split())
        for name, value in _CONSTANT.findall(text)
    }
    text = _LINKAGE.sub(r"\1", _DIRECTIVE.sub("", text))
    return Headers(
        enums={name: _values(name, body) for body, name in _ENUM.findall(text)},
        structs={name: _fields(body.split(";")) for body, name in _STRUCT.findall(text)},
        functions={
            name: tuple(field.type for field in _fields(parameters.split(",")))
            for name, parameters in _FUNCTION.findall(text)
        },
        others={**constants, **_others(_STRUCT.sub("", _ENUM.sub("", text)))},
    )


def _others(text: str) -> dict[str, str]:
    """Returns the declarations in a text without enums and structs."""
    others = {}
    for declaration in filter(None, (" ".join(each.split()) for each in text.split(";"))):
        if "{" in declaration:
            raise BindingsError(f"'{declaration[:60]}' has an unknown form: write a typedef")
        callable_ = _CALLABLE.search(declaration)
        name = callable_[1] if callable_ else declaration.split()[-1]
        others[name] = re.sub(r" (?=[,)])", "", _PARAMETER.sub("", declaration))
    return others


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
