#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Compares the declarations of two versions of ronda.h: abi_changes.py OLD NEW.

The program prints a line for each change that a program which was built with OLD would notice, and
then fails. docs/abi.md has the rules. The program reads the headers that OLD and NEW include, too.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

from c_headers import BindingsError, Field, Headers, read_with_includes


def differences(old: Headers, new: Headers) -> list[str]:
    """Returns the names of the declarations that differ, or that only one version has."""
    names = []
    for before, after in (
        (dict(old.enums), dict(new.enums)),
        (dict(old.structs), dict(new.structs)),
        (dict(old.others), dict(new.others)),
    ):
        names += [name for name in {**after, **before} if before.get(name) != after.get(name)]
    return names


def breaking_changes(old: Headers, new: Headers) -> Iterator[str]:
    """Yields a line for each change that a program which was built with `old` would notice."""
    for enum, values in old.enums.items():
        for name, value in values.items():
            now = new.enums.get(enum, {}).get(name)
            if now != value:
                yield f"{enum}: {name} was {value}, and {_is(now)}"
    for struct, fields in old.structs.items():
        yield from _changes_of_struct(struct, fields, new.structs.get(struct, ()))
    for name, text in old.others.items():
        # A program contains its own copy of the initial values.
        if not name.endswith("_INIT") and new.others.get(name) != text:
            yield f"{name} was '{text}', and {_is(new.others.get(name))}"


def _changes_of_struct(
    struct: str, old: tuple[Field, ...], new: tuple[Field, ...]
) -> Iterator[str]:
    for index, field in enumerate(old):
        now = new[index] if index < len(new) else None
        if now != field:
            yield f"{struct}: field {index} was '{_text(field)}', and {_is(now and _text(now))}"
            return
    if len(new) > len(old) and old[0].name != "struct_size":
        yield f"{struct}: it has grown by '{_text(new[len(old)])}', and has no struct_size"


def _text(field: Field) -> str:
    return f"{field.type} {field.name}".strip()


def _is(now: object) -> str:
    return "is gone" if now is None else f"is '{now}'"


def main(old: str, new: str) -> int:
    """Prints the changes, and returns the exit code."""
    try:
        before = read_with_includes(pathlib.Path(old))
        changes = list(breaking_changes(before, read_with_includes(pathlib.Path(new))))
    except (BindingsError, OSError) as error:
        changes = [str(error)]
    for change in changes:
        print(f"abi_changes: {change}", file=sys.stderr)
    if changes:
        print(f"abi_changes: programs that were built with {old} break", file=sys.stderr)
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
