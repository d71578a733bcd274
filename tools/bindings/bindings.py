#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Writes lists that are made from the headers of the C ABI, so that nobody edits the lists by hand.

    bindings.py lists HEADER...   prints a header with the operations, for client/
    bindings.py fields HEADER...  prints a header with the fields of structs, for client/python/
    bindings.py write             rewrites the files for Python in this source tree

Bazel makes the two headers while it builds. The files for Python are committed, because tools that
check types and make documentation read them. `make bindings` rewrites these files, and
//tests/tools/bindings fails if they are out of date.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Iterator

from c_headers import BindingsError, Field, Headers, read

_ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ("client/ronda.h", "client/ronda/operations.h")
STUB = "client/python/ronda/_native.pyi"

# The forms of an operation's functions, keyed by list macro: the function's name and parameters.
_ARGS = "const ronda_{}_args*"
_FORMS = {
    "RONDA_TENSOR_OPERATIONS": ("ronda_{}_async", (_ARGS, "ronda_handle*")),
    "RONDA_BLOCKING_OPERATIONS": ("ronda_{}", (_ARGS,)),
    "RONDA_GROUPED_OPERATIONS": (
        "ronda_grouped_{}_async",
        (_ARGS, "size_t", "const char*", "ronda_handle*"),
    ),
}


def operations(headers: Headers, form: str = "RONDA_TENSOR_OPERATIONS") -> list[str]:
    """Returns the operations that have a function of this form, in the header's order."""
    function, parameters = _FORMS[form]
    structs = [struct for struct in headers.structs if struct.endswith("_args")]
    return [
        name
        for name in (struct[len("ronda_") : -len("_args")] for struct in structs)
        if headers.functions.get(function.format(name))
        == tuple(parameter.format(name) for parameter in parameters)
    ]


# -- The arguments of a function of ronda._native --


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of a Python function, and the member of the C ABI struct that it sets."""

    name: str
    type: str
    default: str | None  # the text of the default; None: the argument is required
    kind: str  # the name of the kind in _native.h
    member: str
    count: str = ""  # the member for the number of elements, if the kind has one

    def field(self, struct: str) -> str:
        """Returns the argument's row in the table that _native uses to read arguments."""
        if self.kind == "kKeep":
            return "KEEP"
        if self.count:
            return f"ARRAY({struct}, {self.kind}, {self.member}, {self.count})"
        return f"FIELD({struct}, {self.kind}, {self.member})"


# For each type in the header, the kind in _native.h and the type in Python.
_TYPES = {
    "const void*": ("kAddress", "int"),
    "void*": ("kAddress", "int"),
    "size_t": ("kSize", "int"),
    "int": ("kInt", "int"),
    "ronda_reduce_op": ("kInt", "int"),
    "ronda_compression": ("kInt", "int"),
    "int64_t": ("kHandle", "int"),
    "double": ("kReal", "float"),
    "const char*": ("kText", "str | None"),
    "const int64_t*": ("kNumbers", "Sequence[int] | None"),
    "const ronda_rank_list*": ("kRankLists", "Sequence[Sequence[int]]"),
}
_WITH_A_COUNT = ("kNumbers", "kRankLists")
_MEMORY = ("kAddress", "kSize")
_FLAGS = ("error_feedback", "detect_overflow")
_WITH_FLAGS = ("allreduce",)  # the other reductions have no flags in Python
_DEFAULTS = {"compression": "0", "prescale": "1.0", "postscale": "1.0"}
_RENAMED = {"from": "source"}  # `from` is a keyword of Python

_NAME = Argument("name", "str | None", None, "kText", "tensor.name")
_TENSOR = [
    Argument("dtype", "int", None, "kInt", "tensor.dtype"),
    Argument("shape", "Sequence[int]", None, "kShape", "tensor"),
]
_KEEP = Argument("keep", "object", None, "kKeep", "")
_SET = Argument("process_set", "int", "0", "kSet", "call.process_set")
_LIMIT_AND_STREAM = [
    Argument("deadline_s", "float", "0.0", "kReal", "call.deadline_s"),
    Argument("stream", "int | None", "None", "kStream", "call"),
]


def _members(struct: str, fields: tuple[Field, ...]) -> list[Argument]:
    """Returns an argument for each member of a struct, except the members that all structs have."""
    members = []
    counts: set[str] = set()
    for field, following in zip(fields, [*fields[1:], None]):
        if field.name in (*counts, "struct_size", "tensor", "call"):
            continue
        if field.type not in _TYPES:
            raise BindingsError(
                f"{struct}: Python's functions cannot read '{field.type} {field.name}': add the"
                " type to _TYPES in tools/bindings/bindings.py, and to Kind in _native.h"
            )
        kind, python_type = _TYPES[field.type]
        count = following.name if following and kind in _WITH_A_COUNT else ""
        if count:
            counts.add(count)
        if field.name in _FLAGS:
            kind, python_type = "kFlag", "bool"
        default = "False" if kind == "kFlag" else _DEFAULTS.get(field.name)
        name = _RENAMED.get(field.name, field.name)
        members.append(Argument(name, python_type, default, kind, field.name, count))
    return members


def arguments(headers: Headers, operation: str) -> list[Argument]:
    """Returns the arguments of an operation's function, in order.

    The order is: memory, required arguments, arguments with a default. Operations on messages have
    no `name` argument.
    """
    struct = f"ronda_{operation}_args"
    members = _members(struct, headers.structs[struct])
    is_message = any(each.name == "tag" for each in members)
    memory = [each for each in members if each.kind in _MEMORY]
    flags = [each for each in members if each.kind == "kFlag"] if operation in _WITH_FLAGS else []
    others = [each for each in members if each.kind not in (*_MEMORY, "kFlag")]
    required = [each for each in others if each.default is None]
    required.sort(key=lambda each: each.kind in _WITH_A_COUNT)
    return [
        *([] if is_message else [_NAME]),
        *_TENSOR,
        *memory,
        _KEEP,
        *required,
        *(each for each in others if each.default is not None),
        _SET,
        *flags,
        *_LIMIT_AND_STREAM,
    ]


# -- Headers that Bazel makes --


def _macro(name: str, rows: list[str], separator: str = "") -> str:
    return " \\\n  ".join([f"#define {name}", *(row + separator for row in rows)]) + "\n"


def lists_header(headers: Headers) -> str:
    """Returns macros that list operations. ROW gets each name in lower case and in upper case."""
    macros = [
        _macro(
            f"{form}(ROW)", [f"ROW({each}, {each.upper()})" for each in operations(headers, form)]
        )
        for form in _FORMS
    ]
    return "\n".join(["/* Made by tools/bindings from client/ronda/operations.h. */\n", *macros])


def fields_header(headers: Headers) -> str:
    """Returns the tables that _native uses to read arguments, and the counter names."""
    parts = ["/* Made by tools/bindings from client/ronda.h and client/ronda/operations.h. */\n"]
    for operation in operations(headers):
        struct = f"ronda_{operation}_args"
        read_by_position = arguments(headers, operation)
        required = sum(argument.default is None for argument in read_by_position)
        rows = [argument.field(struct) for argument in read_by_position]
        parts.append(_macro(f"{operation.upper()}_FIELDS", rows, ","))
        parts.append(f"enum {{ {operation}_required = {required} }};\n")
    options = _members("ronda_options", headers.structs["ronda_options"])
    rows = [argument.field("ronda_options") for argument in options]
    parts.append(_macro("OPTION_FIELDS", rows, ","))
    counters = [f"ROW({field.name})" for field in headers.structs["ronda_statistics"][1:]]
    parts.append(_macro("STATISTICS_FIELDS(ROW)", counters))
    parts.append(_macro("RONDA_DTYPES(ROW)", _dtype_rows(headers)))
    return "\n".join(parts)


def _dtype_rows(headers: Headers) -> list[str]:
    """Returns a row for each dtype, with its name in three spellings and its size in bytes."""
    names = [each.removeprefix("RONDA_") for each in headers.enums["ronda_dtype"]]
    return [
        f"ROW({name.lower()}, {name.capitalize()}, {name}, {_bytes_of(name)})" for name in names
    ]


def _bytes_of(dtype: str) -> int:
    bits = dtype.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return int(bits) // 8 if bits else 1  # RONDA_BOOL


# -- Files for Python --

_BEGIN = "# -- Made by `make bindings` from client/ronda/operations.h: to the end of this part --\n"
_END = "\n# -- The end of what `make bindings` makes --\n"


# The operations that also have a blocking function in _native.
_BLOCKING = ("allreduce",)


def _declarations(headers: Headers, operation: str) -> list[str]:
    """Returns the declarations of the Python arguments, one per line."""
    return [
        f"    {each.name}: {each.type}{'' if each.default is None else f' = {each.default}'}"
        for each in arguments(headers, operation)
    ]


def _functions(headers: Headers) -> Iterator[str]:
    """Yields the declarations of _native's functions."""
    for operation in operations(headers):
        parameters = "".join(f"{each},\n" for each in _declarations(headers, operation))
        yield f"def {operation}_async(\n{parameters}    /,\n) -> int: ...\n"
        if operation in _BLOCKING:
            yield f"def {operation}(\n{parameters}    /,\n) -> None: ...\n"
    for operation in operations(headers, "RONDA_GROUPED_OPERATIONS"):
        parameters = "    arguments: Sequence[tuple[object, ...]],\n    group: str,\n"
        yield f"def grouped_{operation}_async(\n{parameters}    /,\n) -> list[int]: ...\n"


def stub(headers: Headers, text: str) -> str:
    """Returns the new text of _native.pyi with the headers' operations; `text` is the old text."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise BindingsError(
            f"{STUB} lacks the line {(end and begin or _BEGIN).strip()!r}: restore it"
        )
    return "".join([before, _BEGIN, "\n", *_functions(headers), _END, after])


# For each enum of Python, its documentation and the enum of the C ABI.
_ENUMS = (
    ("ReduceOp", "How elements of the ranks' tensors are combined.", "ronda_reduce_op"),
    ("DType", "Types of elements.", "ronda_dtype"),
    (
        "Wire",
        "Formats in which floating-point elements travel when they are reduced: ronda_compression.",
        "ronda_compression",
    ),
)


def _prefix(enum: str) -> str:
    return "RONDA_COMPRESSION_" if enum == "ronda_compression" else "RONDA_"


def _module(documentation: str, imports: str) -> str:
    return (
        f'# SPDX-License-Identifier: Apache-2.0\n\n"""{documentation}"""\n\n'
        f"from __future__ import annotations\n\n{imports}\n"
    )


def types(headers: Headers) -> str:
    """types.py."""
    parts = [
        _module(
            "Enumerations of the C ABI: made by `make bindings` from client/ronda.h.", "import enum"
        )
    ]
    for name, documentation, enum in _ENUMS:
        members = (
            f"    {member.removeprefix(_prefix(enum))} = {number}\n"
            for member, number in headers.enums[enum].items()
        )
        parts.append(
            f'\n\nclass {name}(enum.IntEnum):\n    """{documentation}"""\n\n{"".join(members)}'
        )
    return "".join(parts)


def rows(headers: Headers) -> str:
    """Returns the text of _rows.py. Its functions return tuples, which calls unpack fastest."""
    documentation = (
        "Arguments with names, for functions of ronda._native that take them by position: made by\n"
        "`make bindings` from client/ronda/operations.h. _native.pyi says what they mean.\n"
    )
    parts = [_module(documentation, "from collections.abc import Sequence")]
    for operation in _BLOCKING:
        taken = arguments(headers, operation)
        row = operation.capitalize()
        types = "".join(f"    {each.type},\n" for each in taken)
        parameters = [f"{each},\n" for each in _declarations(headers, operation)]
        values = "".join(f"        {each.name},\n" for each in taken)
        use = f"For native.{operation}(), native.{operation}_async(), and for a member of a group."
        parts.append(
            f"\n{row} = tuple[\n{types}]\n"
            f"\n\ndef {operation}(\n    *,\n{''.join(parameters)}) -> {row}:\n"
            f'    """{use}"""\n    return (\n{values}    )\n'
        )
    return "".join(parts)


def python_files(root: pathlib.Path) -> dict[str, str]:
    """Returns the texts of the Python files, generated from the headers in a source tree."""
    headers = read(*(root / path for path in HEADERS))
    return {
        STUB: stub(headers, (root / STUB).read_text(encoding="utf-8")),
        "client/python/ronda/types.py": types(headers),
        "client/python/ronda/_rows.py": rows(headers),
    }


def main(arguments: list[str]) -> int:
    """Runs one of the commands listed in the module's docstring."""
    makers = {"lists": lists_header, "fields": fields_header}
    try:
        if arguments == ["write"]:
            for path, text in python_files(_ROOT).items():
                (_ROOT / path).write_text(text, encoding="utf-8")
        elif len(arguments) > 1 and arguments[0] in makers:
            print(makers[arguments[0]](read(*map(pathlib.Path, arguments[1:]))), end="")
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except BindingsError as error:
        print(f"bindings: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
