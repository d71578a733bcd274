# SPDX-License-Identifier: Apache-2.0

"""Errors of Ronda that a framework carries out of its graph as errors of its own.

TensorFlow and JAX turn an exception of a function that their graph calls into an exception of
their own class, with the text of the former. The former is kept here. The native library keeps
that of an operation which the graph has called without Python.
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
    """A context inside a function that a graph calls: keeps the error that leaves it."""
    global _last
    try:
        yield
    except RondaError as error:
        _last = type(error)(*error.args)  # without the traceback, which keeps arrays alive
        raise


def original_of(error: BaseException) -> RondaError | None:
    """The error of Ronda that `error` is, or has carried out of a graph; None for other errors."""
    if isinstance(error, RondaError):
        return error
    for carried in (_last, native.carried_error()):
        if isinstance(carried, RondaError) and str(carried) and str(carried) in str(error):
            return carried
    return _written_in(str(error))


def _written_in(text: str) -> RondaError | None:
    """Ronda's error of which a framework has only the text, because another error came later."""
    found = re.search(r"\b([A-Z]\w+Error): (.*)", text, re.S)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not isinstance(kind, type) or not issubclass(kind, RondaError):
        return None
    return kind(found[2])
