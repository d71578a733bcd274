# SPDX-License-Identifier: Apache-2.0

"""How the functions of _fallback call the C ABI: errors, and waits that signals interrupt."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from ctypes import byref, c_int

from ronda._ctypes import library

SLICE_S = 0.1  # between two checks for signals

# -- Errors --

_ERRORS = 10  # RONDA_ERROR_MEMBERSHIP
_error_types: tuple[type[Exception], ...] = ()


def set_error_types(types: Sequence[type[Exception]]) -> None:
    global _error_types
    if len(types) != _ERRORS:
        raise ValueError(f"set_error_types: {len(types)} classes, but there are {_ERRORS} errors")
    _error_types = tuple(types)


def error(status: int, message: str, /) -> Exception:
    known = 1 <= status <= len(_error_types)
    made: Exception = (_error_types[status - 1] if known else RuntimeError)(message)
    return made


def last_error() -> str:
    text: bytes = library.ronda_last_error()
    return text.decode(errors="replace")


def check(status: int) -> None:
    if status != 0:
        raise error(status, last_error())


# -- Waiting --

this_thread = threading.local()


def interruptibly(body: Callable[[], int]) -> None:
    """Runs `body`, which may wait for other ranks, on a thread, so that this one sees signals."""
    if getattr(this_thread, "in_callback", False):
        # The body must run on this thread: only there it notices that it would wait for the
        # callback that calls it.
        check(body())
        return
    context, ended = library.ronda_current(), threading.Event()
    status, message = 0, ""

    def run() -> None:
        nonlocal status, message
        status = library.ronda_make_current(context) or body()
        message = last_error()
        ended.set()

    threading.Thread(target=run, name="ronda-call", daemon=True).start()
    while not ended.wait(SLICE_S):
        pass
    if status != 0:
        raise error(status, message)


def in_slices(wait: Callable[[float, object], int], timeout_s: float = -1.0) -> tuple[bool, int]:
    """Calls `wait` repeatedly. Its arguments are a time in seconds, and the place where it reports
    that the time was enough.

    Returns:
        Whether `wait` was done or failed within `timeout_s` seconds (negative: without end), and
        its last status.
    """
    end = math.inf if timeout_s < 0 else time.monotonic() + timeout_s
    done = c_int()
    while (left := end - time.monotonic()) > 0:
        status = wait(min(left, SLICE_S), byref(done))
        if status != 0 or done.value:
            return True, status
    return False, 0
