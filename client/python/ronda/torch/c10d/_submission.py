# SPDX-License-Identifier: Apache-2.0

"""Submits the collectives of a torch.distributed group. If this rank refuses one, tells the other
ranks.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch

from ronda import job
from ronda._in_flight import IN_FLIGHT, Span
from ronda._library import native
from ronda.errors import MismatchError, NotInitializedError, PeerFailedError, RondaError
from ronda.torch import _tensors
from ronda.torch.c10d import _layout, _profile, _versions
from ronda.torch.c10d._halves import HALVES
from ronda.torch.c10d._lane import Lane, gpu_tensor
from ronda.torch.c10d._work import Work

Tensor = torch.Tensor
_Method = TypeVar("_Method", bound=Callable[..., Any])
_Value = TypeVar("_Value")

_MESSAGES = ("send", "recv", "recvAnySource")
_NO_TIME = timedelta(0)


class _Call(NamedTuple):
    """An operation that is ready to be submitted."""

    submit: Callable[..., int]
    arguments: tuple[Any, ...]
    # The number of rows that each member must have sent. None: Ronda's core compares the shapes.
    expected_rows: Sequence[int] | None = None


# Returns whether an operation on a tensor, with these torch options, uses the group's lane.
_Route = Callable[["Submitter", Tensor, Any], bool]


def _by_lane(_group: Submitter, _tensor: Tensor, _opts: Any) -> bool:
    return True


def _by_engine(_group: Submitter, _tensor: Tensor, _opts: Any) -> bool:
    return False


def _by_lane_if_it_reduces(group: Submitter, tensor: Tensor, opts: Any) -> bool:
    return group._lane.reduces(tensor, opts)


def _refused_for_all(
    route: _Route,
    operations: Callable[..., Sequence[Any]] = lambda *args, **kwargs: [[*args, *kwargs.values()]],
) -> Callable[[_Method], _Method]:
    """Decorates a collective. If this rank refuses a call, the call fails on the other ranks, too.

    Args:
        route: decides whether operations on GPU tensors use the lane; the same on all ranks.
        operations: takes the method's arguments, and returns an entry for each operation that the
            other ranks have submitted: the tensor or the list of tensors of the operation.
    """

    def decorate(method: _Method) -> _Method:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def call(self: Submitter, *args: Any, **kwargs: Any) -> Any:
            before = self._submitted
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                remaining = operations(*args, **kwargs)[self._submitted - before :]
                if remaining:
                    tensors = [gpu_tensor([each]) for each in remaining]
                    bound = signature.bind_partial(self, *args, **kwargs).arguments
                    opts = bound.get("opts") if bound.get("op") is None else bound["op"]
                    with contextlib.suppress(RondaError):  # without a job no rank waits
                        self._refuse(tensors, f"{type(error).__name__}: {error}", route, opts)
                raise

        return _versions.not_compiled(call)  # type: ignore[return-value]

    return decorate


def _remember(work: Work, uses: list[Span]) -> None:
    """Keeps a Work until it has ended, even if the program has dropped it."""
    IN_FLIGHT.add(work, uses)
    if not _versions.HAS_BACKENDS:
        HALVES.keep(work)


def _each(tensors: Sequence[Any], *_: Any, **__: Any) -> Sequence[Any]:
    """Returns the tensors of the first argument, because each tensor has its own operation."""
    return tensors


_collective = _refused_for_all(_by_lane)
_collective_of_engine = _refused_for_all(_by_engine)
_reduction = _refused_for_all(_by_lane_if_it_reduces)
_coalesced = _refused_for_all(_by_lane, _each)
_coalesced_reduction = _refused_for_all(_by_lane_if_it_reduces, _each)


class Submitter:
    """Submits the operations of a torch.distributed group, and completes their results.

    Thread-safety: as Collectives.
    """

    _group_rank: int  # of this process in the group
    _timeout_s: float

    def __init__(self, rank: int, ranks: Sequence[int], process_set: int, timeout_s: float) -> None:
        """
        Args:
            rank: the rank of this process in the group.
            ranks: the members' ranks in the job, in the order of the group.
            process_set: the id of the process set of these ranks.
            timeout_s: the deadline of the collectives. 0 means the job's deadline.
        """
        self._timeout_s = timeout_s
        self._begin(rank, ranks, process_set)

    def _begin(self, rank: int, ranks: Sequence[int], process_set: int) -> None:
        """Makes this object a group of `ranks` in the current job; see __init__()."""
        self._group_rank = rank
        self._ranks = list(ranks)
        self._process_set = process_set
        self._job = job.number()
        self._process = os.getpid()
        # The ranks of a process set are in ascending order, but a group may order them differently.
        members = sorted(range(len(ranks)), key=self._ranks.__getitem__)
        self._members = None if members == list(range(len(ranks))) else members
        self._works: list[Work] | None = None  # of the collectives that are being coalesced
        self._uses: list[Span] = []  # the memory of these collectives
        self._submitted = 0
        self._lane = Lane(process_set, members.index(rank))

    @property
    def process_set(self) -> int:
        """The id of Ronda's process set.

        Raises:
            NotInitializedError: this process has left the set's job, or is a rank's forked child.
        """
        if self._job != job.number() or not native.is_initialized():
            raise NotInitializedError(
                "this process is a child that a rank has made with fork(), and is no rank itself: "
                "let the parent communicate"
                if self._process != os.getpid()
                else "this process group is one of a job that this process has left since: make "
                "the group again, or let reconfigure() do so"
            )
        return self._process_set

    _set = process_set

    def _get_sequence_number_for_group(self) -> int:
        return self._submitted

    def _set_sequence_number_for_group(self) -> None:
        """Does nothing, because sequence numbers start at 0 on every rank."""

    # -- Coalescing. Each operation is submitted at once, because Ronda itself fuses operations --

    def start_coalescing(self, _device: Any = None) -> None:
        self._works, self._uses = [], []

    def end_coalescing(self, _device: Any = None) -> Work:
        works, self._works = self._works or [], None
        handles = [handle for work in works for handle in work.handles]
        tensors = [tensor for work in works for tensor in work.result()]

        def finish() -> None:
            for work in works:
                work.settle()
            for work in works:
                work.wait()

        whole = Work("coalesced operations", handles, tensors, finish, parts=works)
        _remember(whole, self._uses)
        return whole

    # -- The submission of all collectives --

    def _start(
        self,
        what: str,
        calls: Sequence[_Call],
        results: Sequence[Tensor],
        *,
        opts: Any,
        reads: Sequence[Tensor] = (),
        writes: Sequence[Tensor] = (),
        finish: _layout.Finish = None,
        source: Callable[[int], int] | None = None,
    ) -> Work | None:
        """Submits a collective.

        Args:
            what: the name of the collective in torch.
            calls: the operations of the collective.
            results: the value of result().
            opts: torch's options.
            reads: the tensors that the collective reads, as the caller has passed them.
            writes: the tensors that the collective changes.
            finish: copies results to the caller's tensors.
            source: takes a message's handle, and returns the sender's rank in the group.
        """
        # The collective has copied the inputs that are not dense, and no longer reads them.
        uses = _tensors.spans(filter(_layout.is_dense, reads), writes)
        if what not in _MESSAGES:
            self._lane.begin((*reads, *writes))
        IN_FLIGHT.wait_for_users_of(uses)
        ended = _profile.begin(what, reads or writes) if _profile.is_on() else None
        handles: list[int] = []
        failure = None
        try:
            for call in calls:
                handles.append(self._submit(call.submit, call.arguments))
        except PeerFailedError as error:
            failure = error  # the Work's error, as if the job had failed a moment later
        except Exception:
            if handles:  # they use the tensors until they have ended
                _remember(Work(what, handles, list(results), process_set=self._set), uses)
            raise
        work = Work(
            what,
            handles,
            list(results),
            _layout.all_of([_row_check(what, handles, calls), finish]),
            number=self._submitted,
            process_set=None if what in _MESSAGES else self._set,
            source=functools.partial(source, handles[0]) if source and handles else None,
            ended=ended,
            error=failure,
            inputs=reads,
            drops_early=bool(self._lane.memory),
        )
        if self._works is not None:
            self._works.append(work)
            self._uses += uses
        elif _versions.blocks(opts):
            work.wait()
            return None
        else:
            _remember(work, uses)
        return work

    def _submit(self, submit: Callable[..., _Value], arguments: tuple[Any, ...]) -> _Value:
        """Calls a function that submits an operation, and counts the operation.

        Does not count an operation that Ronda's core has refused: the call then raises a ValueError
        or an error of Python. If the function also waits, the other RondaErrors are errors of an
        operation that the other ranks have matched.
        """
        self._submitted += 1
        try:
            return submit(*arguments)
        except Exception as error:
            if isinstance(error, ValueError) or not isinstance(error, RondaError):
                self._submitted -= 1
            raise

    def _refuse(self, tensors: Sequence[Tensor | None], why: str, route: _Route, opts: Any) -> None:
        """Makes the next operations of the group fail on its other ranks.

        Args:
            tensors: for each operation, one of its tensors on a GPU, or None if it has none.
            why: the error text of this rank, which the other ranks' errors contain.
            route: decides whether operations on GPU tensors use the lane.
            opts: torch's options.
        """
        self._lane.carries(gpu_tensor(tensors))  # opens the lane, as on the ranks that submit
        for tensor in tensors:
            if tensor is not None and self._lane.carries(tensor) and route(self, tensor, opts):
                self._lane.refuse(why)
            else:
                native.refuse(self._set, None, why)
        self._submitted += len(tensors)

    def _deadline(self, opts: Any = None) -> float:
        timeout = getattr(opts, "timeout", None)
        if isinstance(timeout, timedelta) and timeout > _NO_TIME:
            return timeout.total_seconds()
        return self._timeout_s

    def _by_member(self, values: Sequence[_Value]) -> Sequence[_Value]:
        """Returns the ranks' values, reordered as in the process set."""
        return values if self._members is None else [values[i] for i in self._members]


def _row_check(what: str, handles: Sequence[int], calls: Sequence[_Call]) -> _layout.Finish:
    """Returns a function that raises MismatchError if a member sent a wrong number of rows."""
    if all(call.expected_rows is None for call in calls):
        return None

    def check() -> None:
        for handle, call in zip(handles, calls):
            if call.expected_rows is None:
                continue
            received = native.output(handle)[2]
            for member, (rows, wanted) in enumerate(zip(received, call.expected_rows)):
                if rows != wanted:
                    raise MismatchError(
                        f"{what}: member {member} of the group has sent {rows} rows, and this rank "
                        f"has room for {wanted}: the outputs must have the sizes of the inputs"
                    )

    return check
