# SPDX-License-Identifier: Apache-2.0

"""Checks the commit messages of a change."""

from __future__ import annotations

from collections.abc import Iterator

from sources import Finding, Sources, git

_LONGEST_SUBJECT = 72


def check_commits(sources: Sources) -> Iterator[Finding]:
    """A subject has at most 72 characters and no full stop, and is followed by an empty line.

    The commits on main are not checked, because they can no longer be changed.
    """
    if sources.branch_point is None:
        return
    commits = f"{sources.branch_point}..HEAD"
    log = git(sources.root, "log", "-z", "--no-merges", "--format=%h%n%B", commits)
    for message in filter(None, log.split("\0")):
        commit, subject, *body = message.rstrip("\n").split("\n")
        if len(subject) > _LONGEST_SUBJECT:
            text = f"the subject has {len(subject)} characters: {_LONGEST_SUBJECT} are most"
            yield Finding(f"commit {commit}", 1, text)
        if subject.endswith("."):
            yield Finding(f"commit {commit}", 1, "the subject ends with a full stop: remove it")
        if body and body[0]:
            yield Finding(f"commit {commit}", 2, "add an empty line between subject and body")
