# SPDX-License-Identifier: Apache-2.0

"""Notifies the other ranks when a rank cannot submit an operation because of wrong arguments."""

from __future__ import annotations

import contextlib
import pickle
from types import TracebackType

from ronda._library import native
from ronda.errors import DuplicateNameError, NotInitializedError, RondaError

# If an object cannot be pickled, pickle raises one of the last two, or a TypeError.
_ARGUMENTS_ARE_WRONG = (
    ValueError,
    TypeError,
    NotImplementedError,
    OverflowError,
    AttributeError,
    pickle.PicklingError,
)
_ANOTHER_REASON = (DuplicateNameError, NotInitializedError)


class Told:
    """A context manager in which a rank checks an operation's arguments and submits the operation.

    If the arguments are wrong, the operation also fails on the other ranks, with this rank's error
    text. Otherwise the other ranks would wait for this rank until their deadline.
    """

    __slots__ = ("_process_set", "_name", "_members")

    def __init__(self, process_set: int, name: str | None, members: int | None = None) -> None:
        """
        Args:
            process_set: the id of the process set.
            name: the name of the tensor or of the group; None if the tensor has no name.
            members: the number of tensors in the group; None if the operation is not on a group.
        """
        self._process_set, self._name, self._members = process_set, name, members

    def __enter__(self) -> None:
        name = self._name
        if name is not None and not isinstance(name, str):
            self._name = str(name)
            text = f"name is {name!r:.80}, a {type(name).__name__}: it must be a string"
            self._tell(f"ValueError: {text}")
            raise ValueError(text)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, _ARGUMENTS_ARE_WRONG) and not isinstance(error, _ANOTHER_REASON):
            self._tell(f"{type(error).__name__}: {error}")

    def _tell(self, words: str) -> None:
        members = range(self._members) if self._members is not None else None
        names = [self._name] if members is None else [f"{self._name}.{i}" for i in members]
        # Ignores errors from the notification, because the caller must see the error in its
        # arguments.
        with contextlib.suppress(RondaError):
            for name in names:
                native.refuse(self._process_set, name, words)


class ToldToPeer(Told):
    """Like Told, for a send or a receive."""

    __slots__ = ("_source", "_to", "_tag")

    def __init__(self, process_set: int, source: int, to: int, tag: int) -> None:
        super().__init__(process_set, None)
        self._source, self._to, self._tag = source, to, tag

    def _tell(self, words: str) -> None:
        with contextlib.suppress(RondaError, ValueError, TypeError):
            native.refuse_message(self._process_set, self._source, self._to, self._tag, words)
