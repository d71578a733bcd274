# SPDX-License-Identifier: Apache-2.0

"""Recovers Ronda's errors from the errors that a framework raises when its graph fails.

If a function that a graph calls raises an exception, TensorFlow and JAX raise an exception of their
own class with the same text. This module keeps the original exception. If a graph calls an
operation without Python, the extension module keeps the operation's error.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from ronda import errors
from ronda._library import native
from ronda.errors import RondaError

_last: RondaError | None = None


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """A context manager for the body of a function that a graph calls. Keeps the error that the
    body raises.
    """
    global _last
    try:
        yield
    except RondaError as error:
        _last = type(error)(*error.args)  # without the traceback, which keeps arrays alive
        raise


def original_of(error: BaseException) -> RondaError | None:
    """Returns `error` if it is an error of Ronda. If `error` is the framework's copy of an error of
    Ronda, returns the original error. Returns None for all other errors.
    """
    if isinstance(error, RondaError):
        return error
    for carried in (_last, native.carried_error()):
        if isinstance(carried, RondaError) and str(carried) and str(carried) in str(error):
            return carried
    return _written_in(str(error))


def _written_in(text: str) -> RondaError | None:
    """Recreates Ronda's error from the framework's text. Needed when a later error has replaced the
    kept error.
    """
    found = re.search(r"\b([A-Z]\w+Error): (.*)", text, re.S)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not isinstance(kind, type) or not issubclass(kind, RondaError):
        return None
    return kind(found[2])
