# SPDX-License-Identifier: Apache-2.0

"""Errors of Ronda that a framework carries out of its graph as errors of its own.

If a function that a graph calls raises an exception, TensorFlow and JAX raise an exception of their
own class with the same text. This module keeps the original exception. If the graph has called an
operation without Python, the native library keeps the operation's error.
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
    """Returns `error` if it is Ronda's, the error that it has carried out of a graph, or None."""
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
