# SPDX-License-Identifier: Apache-2.0

"""Runs the checks of the sources (make check). A finding is a line with file, line and remedy.

check.py [--all] [--no-build]

By default, checks of single files read only files that differ from main. With --all they read all
files. --no-build leaves out the checks that compile.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Callable, Iterable

from commits import check_commits
from compiled import check_clang, check_clang_tidy
from links import check_links
from linters import (
    check_circles,
    check_clang_format,
    check_function_length,
    check_ruff,
    check_torch_types,
    check_types,
)
from sources import CheckError, Finding, Sources
from text_rules import (
    check_calls,
    check_file_length,
    check_header_guards,
    check_license_lines,
    check_test_names,
    check_white_space,
    check_words,
)
from type_names import check_type_names

Check = Callable[[Sources], Iterable[Finding]]

_WITHOUT_BUILD: dict[str, Check] = {
    "license lines": check_license_lines,
    "length of files": check_file_length,
    "header guards": check_header_guards,
    "white space": check_white_space,
    "words of identifiers": check_words,
    "names of tests": check_test_names,
    "calls": check_calls,
    "names of C++ types": check_type_names,
    "circles of folders": check_circles,
    "links": check_links,
    "commit messages": check_commits,
    "formatting of C, C++, CUDA and Proto": check_clang_format,
    "ruff": check_ruff,
    "types of Python": check_types,
    "length of functions": check_function_length,
}
_WITH_BUILD: dict[str, Check] = {
    "types of Python with PyTorch": check_torch_types,
    "clang": check_clang,
    "clang-tidy": check_clang_tidy,
}


def run_checks(sources: Sources, checks: dict[str, Check]) -> int:
    """Prints the findings and a summary, and returns the exit code."""
    failed = []
    for name, check in checks.items():
        try:
            findings = list(check(sources))
        except CheckError as error:
            findings = [Finding(name, 1, f"this check cannot run: {error}")]
        for finding in findings:
            print(finding)
        if findings:
            failed.append(name)
    what = f"{len(sources.selected)} of {len(sources.files)} files"
    if failed:
        print(f"check: {what}; these checks failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    print(f"check: {what}, {len(checks)} checks, no complaints")
    return 0


def main() -> int:
    """Runs the checks selected by the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--all", action="store_true", help="check every file")
    parser.add_argument("--no-build", action="store_true", help="leave out what compiles")
    arguments = parser.parse_args()
    checks = _WITHOUT_BUILD if arguments.no_build else {**_WITHOUT_BUILD, **_WITH_BUILD}
    try:
        sources = Sources.of(pathlib.Path(__file__).parents[2], arguments.all)
    except CheckError as error:
        print(f"check: {error}", file=sys.stderr)
        return 1
    return run_checks(sources, checks)


if __name__ == "__main__":
    sys.exit(main())
