# SPDX-License-Identifier: Apache-2.0

"""Leaves the exception that ends this process for rondarun to quote.

rondarun gives each rank a file in memory (ErrorFile in programs/rondarun/supervise/error_file.h).
Without this it would guess the exception from what the rank prints, to which libraries and the
program's own handlers add lines.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
import traceback

_FILE = "/memfd:ronda-error (deleted)"
_MOST_CHARACTERS = 2000
_OWN_PROCESS = os.getpid()


def leave() -> None:
    """Writes the exception that nothing has caught to rondarun's file.

    To be called at the exit of the interpreter, which sets sys.last_value when it prints that
    exception, whoever does the printing (sys.excepthook). Does nothing without an exception,
    without rondarun, and in a process that the rank has forked.
    """
    error = getattr(sys, "last_value", None)
    if error is None or os.getpid() != _OWN_PROCESS:
        return
    with contextlib.suppress(Exception):  # one of these lines would bury that of the program
        for descriptor in os.listdir("/proc/self/fd"):
            if _is_file(descriptor):
                text = describe(error)[:_MOST_CHARACTERS]
                os.pwrite(int(descriptor), text.encode(errors="replace"), 0)


def _is_file(descriptor: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == _FILE
    except OSError:
        return False  # the one that has read the folder


def describe(error: BaseException) -> str:
    """The exception's type and the first line of its message; for a group also its first member."""
    printed = "".join(traceback.format_exception_only(type(error), error)).splitlines()
    lines = [line.rstrip() for line in printed if line.strip()]
    while len(lines) > 1 and lines[0].startswith(" "):
        lines.pop(0)  # the place of a syntax error comes first
    text = lines[0]
    if text.endswith(":") and len(lines) > 1:
        text = f"{text} {lines[1].strip()}"  # the message begins with an empty line
    groups = getattr(builtins, "BaseExceptionGroup", ())  # there are none before Python 3.11
    return f"{text}: {describe(error.exceptions[0])}" if isinstance(error, groups) else text
