# SPDX-License-Identifier: Apache-2.0

"""Writes the exception that ends this process to a file, so that rondarun can quote it.

rondarun gives each rank a file in memory (ErrorFile in programs/rondarun/supervise/job_part.h).
Without the file, rondarun would have to guess the exception from the rank's output. A guess can be
wrong, because libraries and the program's own handlers also print to it.
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
    """Writes an uncaught exception to rondarun's file.

    Call this function at interpreter exit. The interpreter sets sys.last_value for an uncaught
    exception, even if another sys.excepthook prints the exception. Does nothing without an
    exception, without rondarun, and in a process that the rank has forked.
    """
    error = getattr(sys, "last_value", None)
    if error is None or os.getpid() != _OWN_PROCESS:
        return
    with contextlib.suppress(Exception):  # an error here would hide the program's error
        for descriptor in os.listdir("/proc/self/fd"):
            if _is_file(descriptor):
                text = describe(error)[:_MOST_CHARACTERS]
                os.pwrite(int(descriptor), text.encode(errors="replace"), 0)


def _is_file(descriptor: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == _FILE
    except OSError:
        return False  # the descriptor with which the folder was read


def describe(error: BaseException) -> str:
    """Returns the exception's type and the first line of its message. For an exception group, also
    returns the description of the group's first member.
    """
    printed = "".join(traceback.format_exception_only(type(error), error)).splitlines()
    lines = [line.rstrip() for line in printed if line.strip()]
    while len(lines) > 1 and lines[0].startswith(" "):
        lines.pop(0)  # the place of a syntax error comes first
    text = lines[0]
    if text.endswith(":") and len(lines) > 1:
        text = f"{text} {lines[1].strip()}"  # the message begins with an empty line
    groups = getattr(builtins, "BaseExceptionGroup", ())  # there are none before Python 3.11
    return f"{text}: {describe(error.exceptions[0])}" if isinstance(error, groups) else text
