# SPDX-License-Identifier: Apache-2.0

"""Process sets, whose ranks run operations among themselves. Different sets may run operations at
the same time.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

from ronda import errors, job
from ronda._library import native

_GLOBAL_ID = 0


def _sorted_ranks(ranks: Iterable[int]) -> list[int]:
    try:
        numbers = sorted(map(operator.index, ranks))
    except TypeError:
        raise errors.InvalidArgumentError(
            f"a process set is made of a sequence of ranks, such as [0, 2], and not of {ranks!r}"
        ) from None
    if len(set(numbers)) < len(numbers):
        raise errors.InvalidArgumentError(f"a rank is twice in the process set {numbers}")
    return numbers


class ProcessSet:
    """A set of ranks of a job, in ascending order.

    Every rank of the job must pass every set to init() or add_process_set(), in the same order as
    the other ranks. A set that has been added can be passed to operations. A set belongs to one
    job. Once the job has ended, process_set_id is None, and a later job may add the set again.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        """
        Args:
            ranks: the members, in any order.

        Raises:
            InvalidArgumentError: `ranks` has an invalid rank, or has a rank twice.
        """
        self._ranks = _sorted_ranks(ranks)
        self._id: int | None = None
        self._job = 0

    @property
    def process_set_id(self) -> int | None:
        """The set's id in the C ABI, or None while the job does not know the set."""
        return self._id if native.is_initialized() and self._job == job.number() else None

    @property
    def ranks(self) -> list[int]:
        """The ranks of the set, in ascending order."""
        return list(self._ranks)

    def size(self) -> int | None:
        """The number of ranks in the set, or None while the job does not know the set."""
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self) -> int | None:
        """This process's position among the set's ranks, from 0, or None while the job does not
        know the set.

        Arguments of operations, such as a root, are ranks in the job, and not positions in the set.

        Raises:
            InvalidArgumentError: this process is not a member.
        """
        id = self.process_set_id
        if id is None:
            return None
        position = native.process_set_rank(id)
        if position < 0:
            raise errors.InvalidArgumentError(
                f"rank {native.rank()} is not in {self}: ask included() first"
            )
        return position

    def included(self) -> bool | None:
        """Whether this process is a member of the set. None before init()."""
        return native.rank() in self.ranks if native.is_initialized() else None

    def _belongs_to_job(self, id: int | None) -> None:
        self._id = id
        self._job = job.number()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _GlobalProcessSet(ProcessSet):
    """All ranks of the job."""

    def __init__(self) -> None:
        super().__init__([])

    @property
    def process_set_id(self) -> int:
        return _GLOBAL_ID

    @property
    def ranks(self) -> list[int]:
        return list(range(native.size())) if native.is_initialized() else []

    def size(self) -> int | None:
        return native.size() if native.is_initialized() else None

    def rank(self) -> int | None:
        return native.rank() if native.is_initialized() else None


global_process_set: ProcessSet = _GlobalProcessSet()

# The sets that the program has added; the same on all ranks.
_known: list[ProcessSet] = []


def init_job(
    user: str, process_sets: Sequence[ProcessSet | Sequence[int]] = (), **options: object
) -> None:
    """Calls job.init() with sets to create at the start. If the process has already joined a job,
    adds the sets to that job instead.

    Every rank must call the function with the same sets in the same order.

    Raises:
        InvalidArgumentError: two sets have the same ranks.
        RondaError: job.init() or add_process_set() has failed.
    """
    sets = [_as_process_set(each) for each in process_sets]
    _check_different(sets)
    if native.is_initialized():
        job.init(user)
        for each in sets:
            if each.process_set_id is None:
                add_process_set(each)
        return
    job.init(user, process_sets=[each.ranks for each in sets], **options)
    for id, each in enumerate(sets, start=_GLOBAL_ID + 1):
        each._belongs_to_job(id)
    _known[:] = sets


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Adds a set to the job. Blocks until every rank of the job has added the set, including ranks
    that are not in the set.

    Args:
        process_set: a set, or its ranks.

    Raises:
        InvalidArgumentError: a set of these ranks exists already, or a rank is not in the job.
        RondaError: the ranks add different sets, or a rank does not add the set in time.
    """
    added = _as_process_set(process_set)
    _check_different(
        [global_process_set, *(each for each in _known if each.process_set_id is not None), added]
    )
    added._belongs_to_job(native.add_process_set(added.ranks))
    _known.append(added)
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set from the job. Blocks until every rank of the job has removed the set.

    Returns:
        True. False, without any effect, if the set is global_process_set or unknown to the job.

    Raises:
        RondaError: a rank does not remove the set in time. The set is then still known to the job.
    """
    id = process_set.process_set_id
    if id is None or id == _GLOBAL_ID:
        return False
    native.remove_process_set(id)  # first, because the set stays if this fails
    process_set._belongs_to_job(None)
    if process_set in _known:
        _known.remove(process_set)
    return True


def id_of(process_set: ProcessSet | int) -> int:
    """Returns the id of a set. If `process_set` is an id, returns it unchanged.

    Raises:
        InvalidArgumentError: the job does not know the set.
    """
    if isinstance(process_set, int):
        return process_set
    id = process_set.process_set_id
    if id is None:
        raise errors.InvalidArgumentError(
            f"{process_set} is not known to this job: "
            "give it to init(), or to add_process_set(), on every rank"
        )
    return id


def is_active(process_set: ProcessSet) -> bool:
    """Returns whether the set contains this process and at least one other rank.

    Raises:
        InvalidArgumentError: the job does not know the set.
    """
    id_of(process_set)
    return bool(process_set.included()) and process_set.size() != 1


def _as_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    return process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)


def _check_different(sets: Sequence[ProcessSet]) -> None:
    seen: dict[tuple[int, ...], ProcessSet] = {}
    for each in sets:
        other = seen.setdefault(tuple(each.ranks), each)
        if other is not each:
            raise errors.InvalidArgumentError(
                f"{each} has the same ranks as {other}: use one of them"
            )
