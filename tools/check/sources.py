# SPDX-License-Identifier: Apache-2.0

"""Lists the files in the repository, and selects the files that a check reads."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import subprocess

CPP = (".cc", ".h", ".hpp", ".c", ".cu", ".cuh")
PYTHON = (".py", ".pyi")


class CheckError(Exception):
    """Reports that a check cannot run, with the cause and the remedy."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line that breaks a rule."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def git(root: pathlib.Path, *arguments: str) -> str:
    """Returns the output of git. Raises a CheckError if git fails."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        raise CheckError(f"git {' '.join(arguments)} fails in {root}: {done.stderr.strip()}")
    return done.stdout


def _succeeds(root: pathlib.Path, *arguments: str) -> bool:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True)
    return done.returncode == 0


def _branch_point(root: pathlib.Path) -> str | None:
    """Returns the commit at which the branch left main; None on main, or if there is no main."""
    head = git(root, "rev-parse", "HEAD").strip()
    for main in ("origin/main", "main"):
        if _succeeds(root, "merge-base", main, "HEAD"):
            point = git(root, "merge-base", main, "HEAD").strip()
            if point != head:
                return point
    return None


def _change_base(root: pathlib.Path, branch_point: str | None) -> str | None:
    """Returns the commit to compare files with. On main this is the commit before HEAD, if any."""
    if branch_point or not _succeeds(root, "rev-parse", "--verify", "--quiet", "HEAD~1"):
        return branch_point
    return git(root, "rev-parse", "HEAD~1").strip()


@dataclasses.dataclass(frozen=True)
class Sources:
    """The files that git tracks or would add.

    Attributes:
        root: the folder of the repository.
        files: the paths of all files, relative to `root`.
        selected: the files that a check of single files reads.
        branch_point: the commit at which the branch left main; None on main.
    """

    root: pathlib.Path
    files: tuple[str, ...]
    selected: frozenset[str]
    branch_point: str | None = None

    @classmethod
    def of(cls, root: pathlib.Path, everything: bool) -> Sources:
        """Lists all files, and selects the changed files, or all files."""
        listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        files = tuple(
            path for path in sorted(set(listed.split("\0"))) if path and (root / path).is_file()
        )
        branch_point = _branch_point(root)
        base = _change_base(root, branch_point)
        if everything or base is None:
            return cls(root, files, frozenset(files), branch_point)
        changed = set(git(root, "diff", "-z", "--name-only", base).split("\0"))
        new = set(git(root, "ls-files", "-z", "--others", "--exclude-standard").split("\0"))
        return cls(root, files, frozenset(files) & (changed | new), branch_point)

    def all(self, *endings: str) -> list[str]:
        """Returns the files with one of these endings."""
        return [path for path in self.files if path.endswith(endings)]

    def chosen(self, *endings: str) -> list[str]:
        """Returns the selected files with one of these endings."""
        return [path for path in self.all(*endings) if path in self.selected]

    def lines(self, path: str) -> list[str]:
        """Returns the lines of a file, without line ends."""
        return _text(self.root / path).splitlines()

    def text(self, path: str) -> str:
        """Returns the contents of a file."""
        return _text(self.root / path)


@functools.cache
def _text(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8")
