# SPDX-License-Identifier: Apache-2.0

"""Errors of Ronda that a framework carries out of its graph as errors of its own.

TensorFlow turns an exception of a function that its graph calls into an exception of its own class,
with the text of the former. The former is kept here. JAX makes an exception of the text alone.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from ronda import errors
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
    if _last is not None and str(_last) in str(error):
        return _last
    return _written_in(str(error))


def _written_in(text: str) -> RondaError | None:
    """The error whose class and text XLA's handler has written into an error of JAX."""
    found = re.search(r"\b([A-Z]\w+Error): (.*)", text, re.S)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not isinstance(kind, type) or not issubclass(kind, RondaError):
        return None
    return kind(found[2])
