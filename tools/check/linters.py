# SPDX-License-Identifier: Apache-2.0

"""Runs external checkers, such as clang-format, ruff, mypy, lizard and clang-tidy."""

from __future__ import annotations

import csv
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence

from sources import CPP, PYTHON, CheckError, Finding, Sources

_LONGEST_FUNCTION = 60
_FILES_PER_RUN = 200  # well below the longest command line
# The PyTorch version used to check ronda.torch's types. make test-torch TORCH=... installs it.
_TORCH = "2.15.0"


def _program(name: str, remedy: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise CheckError(f"{name} is not installed: {remedy}")
    return path


def _run(command: Sequence[str], cwd: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, text=True, capture_output=True)


def _groups(paths: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(paths), _FILES_PER_RUN):
        yield paths[first : first + _FILES_PER_RUN]


def _complaints(name: str, command: Sequence[str], cwd: pathlib.Path) -> Iterator[Finding]:
    """Yields a program's output as a finding if the program fails."""
    done = _run(command, cwd)
    if done.returncode != 0:
        yield Finding(name, 1, "\n" + (done.stdout + done.stderr).strip())


def check_clang_format(sources: Sources) -> Iterator[Finding]:
    """clang-format leaves C, C++, CUDA and Proto sources as they are."""
    paths = sources.chosen(*CPP, ".proto")
    if not paths:
        return
    program = _program("clang-format-14", "run third_party/install.sh check")
    for group in _groups(paths):
        done = _run([program, "--dry-run", "-Werror", *group], sources.root)
        for line in done.stderr.splitlines():
            if ": error:" in line:
                path, number, *_ = line.split(":")
                yield Finding(path, int(number), "clang-format changes this line: run make format")


def check_ruff(sources: Sources) -> Iterator[Finding]:
    """ruff finds no errors in Python files, and would not change their formatting."""
    paths = sources.chosen(*PYTHON)
    if paths:
        ruff = [sys.executable, "-m", "ruff"]
        yield from _complaints("ruff check", [*ruff, "check", "--quiet", *paths], sources.root)
        formatted = [*ruff, "format", "--check", "--quiet", "--diff", *paths]
        yield from _complaints("ruff format (run make format)", formatted, sources.root)


def _mypy(*arguments: str) -> list[str]:
    options = ["--strict", "--python-version", "3.10", "--follow-imports=silent"]
    return [sys.executable, "-m", "mypy", *options, "--no-error-summary", *arguments]


def check_types(sources: Sources) -> Iterator[Finding]:
    """mypy finds no type errors in those modules of the Python package that do not need PyTorch."""
    if not sources.chosen(*PYTHON):
        return
    folder = sources.root / "client/python"
    modules = sorted(str(path.relative_to(folder)) for path in folder.glob("ronda/*.py"))
    yield from _complaints("mypy", _mypy(*modules, "ronda/paddle", "ronda/ray"), folder)
    for tool in ("tools/bindings", "tools/check"):
        programs = sorted(path.name for path in (sources.root / tool).glob("*.py"))
        yield from _complaints("mypy", _mypy(*programs), sources.root / tool)


def check_torch_types(sources: Sources) -> Iterator[Finding]:
    """The types of ronda.torch and ronda.apex agree with those of one version of PyTorch."""
    if not [path for path in sources.chosen(*PYTHON) if path.startswith("client/python/")]:
        return
    command = ["tools/torch/environment.sh", _TORCH]
    done = subprocess.run(command, cwd=sources.root, text=True, stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise CheckError(f"PyTorch {_TORCH} cannot be had, as said above: run this with a network")
    # Some functions of PyTorch are untyped, and frameworks that use PyTorch are not installed.
    command = _mypy(
        "--allow-untyped-calls",
        "--no-warn-return-any",
        "--disable-error-code=import-not-found",
        f"--python-executable={done.stdout.strip()}",
        "ronda/torch",
        "ronda/apex",
    )
    yield from _complaints("mypy with PyTorch", command, sources.root / "client/python")


def check_circles(sources: Sources) -> Iterator[Finding]:
    """The folders of the C++ sources have no circular includes."""
    yield from _complaints("circles", [sys.executable, "tools/layers/circles.py"], sources.root)


def check_function_length(sources: Sources) -> Iterator[Finding]:
    """A function has at most 60 lines of code."""
    paths = sources.chosen(*CPP, ".py")
    for group in _groups(paths):
        done = _run([sys.executable, "-m", "lizard", "--csv", *group], sources.root)
        if done.returncode != 0:
            raise CheckError(f"lizard fails: {done.stderr.strip()}")
        for row in csv.reader(done.stdout.splitlines()):
            lines, path, name, first = int(row[0]), row[6], row[7], int(row[9])
            if lines > _LONGEST_FUNCTION:
                text = f"{name} has {lines} lines of code: {_LONGEST_FUNCTION} are most"
                yield Finding(path, first, text)
