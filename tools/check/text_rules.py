# SPDX-License-Identifier: Apache-2.0

"""Checks rules about lines within a single file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sources import CPP, PYTHON, Finding, Sources

SOURCES = (*CPP, *PYTHON, ".proto", ".sh", ".bzl", ".bazel")
# The maximum number of lines of a file, by folder and suffix.
_LONGEST_FILES = (("", SOURCES, 600), ("docs/", (".md",), 200))

# Words that have no technical meaning in Ronda, with better alternatives. No identifier contains
# these words.
_BANNED_WORDS = {
    "bell": "doorbell",
    "card": "header, or device name",
    "farewell": "leave, or shut down",
    "ground": "reason",
    "habit": "heuristic",
    "herald": "announcement",
    "last_word": "final message, or end status",
    "misfit": "unfit schedule",
    "nap": "sleep, or poll interval",
    "newcomer": "joining rank, or joining member",
    "parcel": "message, or chunk",
    "patience": "timeout",
    "plea": "request",
    "seat": "mutex, or role",
    "soul": "rank, or process",
    "stranger": "another job, or an unauthenticated connection",
    "tally": "count",
    "torn": "inconsistent",
    "wish": "request",
}

# Files where a banned word is another project's option name, or is already part of a published
# interface.
_ALLOWED_WORDS = {
    "client/ronda/training/learning_rate.hpp": "patience",  # PyTorch's name of the option
    "tests/client/cpp17/training/learning_rate_test.cc": "patience",
    "proto/ronda/v1/negotiation.proto": "misfit",  # a published field
    "runtime/negotiation/messages.cc": "misfit",
}

# Words that must not begin a test name. A test name says which rank, thread or tensor does what.
_NO_SUBJECTS = (
    "who whoever whose what whatever nobody nothing somebody something everybody everyone "
    "everything those"
).split()
_TEST_NAMES = (
    (
        CPP,
        rf"^TEST(?:_F|_P)?\(\s*\w+,\s*((?:{'|'.join(map(str.title, _NO_SUBJECTS))})(?![a-z])\w*)",
    ),
    (PYTHON, rf"^\s*def (test_(?:an?_|the_)?(?:{'|'.join(_NO_SUBJECTS)})(?![a-z])\w*)"),
)

# Harmful calls. Each entry has a pattern, the folders and suffixes of the files that must not match
# it, the files that may match it, and the remedy.
_CALLS = (
    # gRPC takes deadlines as calendar times, and immediately converts them to times of a steady
    # clock. Two test files replace the clock.
    (
        re.compile(r"absl::Now\(|system_clock|CLOCK_REALTIME"),
        ("", (".cc", ".h", ".hpp")),
        (
            "runtime/base/clock.h",
            "runtime/net/hosts_plugin.cc",
            "tests/multiprocess/shifted_clock.cc",
            "tests/simulation/virtual_calls.cc",
        ),
        "this waits by the calendar, which may jump: call SteadyNow(), or CalendarNow() for a date "
        "(runtime/base/clock.h)",
    ),
    # An Abseil table that fails to allocate memory cannot be destroyed. So no local variable may be
    # an Abseil table. A member of a state can be one, if the state is abandoned when memory runs
    # out (Runtime::AbandonState).
    (
        re.compile(r"flat_hash_(map|set)"),
        (("runtime/", "programs/", "client/"), (".cc",)),
        (),
        "a table of Abseil that lacks memory corrupts the heap: use one of the standard library",
    ),
)

_GUARDED = ("bench/", "kernels/", "programs/", "runtime/")


def check_license_lines(sources: Sources) -> Iterator[Finding]:
    """Every source file names its license in one of its first two lines."""
    for path in sources.chosen(*SOURCES):
        head = sources.lines(path)[:2]
        if head and not any("SPDX-License-Identifier: Apache-2.0" in line for line in head):
            yield Finding(path, 1, "begin the file with: SPDX-License-Identifier: Apache-2.0")


def check_header_guards(sources: Sources) -> Iterator[Finding]:
    """An include guard contains the header's path; public headers omit the folders."""
    for path in sources.chosen(".h", ".cuh"):
        guard = next((line for line in sources.lines(path) if line.startswith("#ifndef ")), "")
        expected = "RONDA_" + re.sub(r"\W", "_", path).upper() + "_"
        if path.startswith(_GUARDED) and guard.endswith("H_") and guard != f"#ifndef {expected}":
            yield Finding(path, 1, f"the header's guard is not {expected}: rename it")


def check_file_length(sources: Sources) -> Iterator[Finding]:
    """A source file has at most 600 lines, and a page of the docs has at most 200."""
    for folder, endings, most in _LONGEST_FILES:
        for path in sources.chosen(*endings):
            length = len(sources.lines(path))
            if path.startswith(folder) and length > most:
                yield Finding(path, length, f"{length} lines: split the file, {most} are most")


def check_white_space(sources: Sources) -> Iterator[Finding]:
    """A file has no tabs and no trailing spaces, and ends with a newline."""
    for path in sources.chosen(*SOURCES, ".md"):
        text = sources.text(path)
        for number, line in enumerate(text.split("\n"), 1):
            if "\t" in line:
                yield Finding(path, number, "tab: use spaces")
            if line.endswith((" ", "\r")):
                yield Finding(path, number, "the line ends with white space: remove it")
        if text and not text.endswith("\n"):
            yield Finding(path, text.count("\n") + 1, "the last line has no end: add one")


def check_words(sources: Sources) -> Iterator[Finding]:
    """No identifier contains a banned word."""
    snake = "|".join(_BANNED_WORDS)
    camel = {word.title().replace("_", ""): word for word in _BANNED_WORDS}
    # Finds a banned word in snake_case, camelCase or CamelCase, including its plural.
    pattern = re.compile(
        rf"(?<![a-zA-Z])({snake})s?(?![a-z])|(?<![A-Z])({'|'.join(camel)})s?(?![a-z])"
    )
    for path in sources.chosen(*CPP, *PYTHON, ".proto"):
        for number, line in enumerate(_without_prose(sources.lines(path), path), 1):
            for match in pattern.finditer(line):
                word = match[1] or camel[match[2]]
                if _ALLOWED_WORDS.get(path) != word:
                    yield Finding(path, number, f"'{word}' names nothing: {_BANNED_WORDS[word]}")


def check_test_names(sources: Sources) -> Iterator[Finding]:
    """The name of a test begins with a subject, such as a rank or a tensor."""
    for endings, pattern in _TEST_NAMES:
        for path in sources.chosen(*endings):
            text = sources.text(path)
            for match in re.finditer(pattern, text, re.MULTILINE):
                remedy = (
                    f"'{match[1]}' names no subject: say which rank, thread or tensor does what"
                )
                yield Finding(path, text.count("\n", 0, match.start(1)) + 1, remedy)


def _without_prose(lines: list[str], path: str) -> Iterator[str]:
    """Yields the lines without strings, comments and Python docstrings."""
    comment, string = r"//.*", r'"(?:\\.|[^"\\])*"'
    if path.endswith(PYTHON):
        comment, string = r"#.*", rf"{string}|'(?:\\.|[^'\\])*'"
    inside = False
    for line in lines:
        quotes = line.count('"""')
        yield "" if inside or quotes else re.sub(comment, "", re.sub(string, '""', line))
        inside ^= quotes % 2 == 1


def check_calls(sources: Sources) -> Iterator[Finding]:
    """No source has a call that is harmful there."""
    for pattern, (folders, endings), allowed, remedy in _CALLS:
        for path in sources.chosen(*endings):
            if path in allowed or not path.startswith(folders):
                continue
            for number, line in enumerate(sources.lines(path), 1):
                if pattern.search(line):
                    yield Finding(path, number, remedy)
