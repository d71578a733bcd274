"""What a rank finds wrong with its own arguments, told to the ranks that wait for its operation."""

from __future__ import annotations

import contextlib
import pickle
from types import TracebackType

from ronda._library import native
from ronda.errors import DuplicateNameError, NotInitializedError, RondaError

# The last two come of an object that cannot be pickled.
_ARGUMENTS_ARE_WRONG = (
    ValueError,
    TypeError,
    NotImplementedError,
    AttributeError,
    pickle.PicklingError,
)
_ANOTHER_REASON = (DuplicateNameError, NotInitializedError)


class Told:
    """While it is entered, an operation is submitted, and nothing is waited for.

    If the arguments turn out to be wrong, the operation fails on the other ranks too, with this
    rank's words. Otherwise they would wait for it until their deadline.
    """

    __slots__ = ("_process_set", "_name", "_members")

    def __init__(self, process_set: int, name: str | None, members: int | None = None) -> None:
        """
        Args:
            process_set: its number.
            name: of the tensor, or of the group; None if the tensor has none.
            members: of a group, how many tensors it has.
        """
        self._process_set, self._name, self._members = process_set, name, members

    def __enter__(self) -> None:
        pass

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
        # The caller learns of its own error, and not of one that comes of telling it.
        with contextlib.suppress(RondaError):
            for name in names:
                native.refuse_tensor(self._process_set, name, words)


class ToldToPeer(Told):
    """The same of a message between two ranks."""

    __slots__ = ("_source", "_to", "_tag")

    def __init__(self, process_set: int, source: int, to: int, tag: int) -> None:
        super().__init__(process_set, None)
        self._source, self._to, self._tag = source, to, tag

    def _tell(self, words: str) -> None:
        with contextlib.suppress(RondaError, ValueError, TypeError):
            native.refuse_message(self._process_set, self._source, self._to, self._tag, words)
