# SPDX-License-Identifier: Apache-2.0

"""Implements the collectives of torch.distributed as Ronda operations in a process set."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch

from ronda import _rows, job
from ronda._in_flight import IN_FLIGHT, Span
from ronda._library import native
from ronda.errors import (
    DeadlineError,
    MismatchError,
    NotInitializedError,
    PeerFailedError,
    RondaError,
)
from ronda.torch import _tensors
from ronda.torch.c10d import _layout, _profile, _versions
from ronda.torch.c10d._halves import HALVES
from ronda.torch.c10d._lane import Lane, gpu_tensor
from ronda.torch.c10d._work import Work, in_torchs_words
from ronda.types import ReduceOp

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


def _only(tensors: Any) -> Tensor:
    """Returns the only tensor of a list. If `tensors` is a tensor, returns it."""
    if isinstance(tensors, Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(
            f"{len(tensors)} tensors on one rank: Ronda's ranks have one device, so pass one tensor"
        )
    tensor: Tensor = tensors[0]
    return tensor


def _list(tensors: Any) -> Sequence[Tensor]:
    """Returns the tensors of a list, or of the first list in a list, or [] for None."""
    if not tensors:
        return []
    inner: Sequence[Tensor] = tensors[0] if isinstance(tensors[0], (list, tuple)) else tensors
    return inner


def _root(opts: Any) -> int:
    return int(getattr(opts, "rootRank", opts))


# Returns whether an operation on a tensor, with these torch options, uses the group's lane.
_Route = Callable[["Collectives", Tensor, Any], bool]


def _by_lane(_group: Collectives, _tensor: Tensor, _opts: Any) -> bool:
    return True


def _by_engine(_group: Collectives, _tensor: Tensor, _opts: Any) -> bool:
    return False


def _by_lane_if_it_reduces(group: Collectives, tensor: Tensor, opts: Any) -> bool:
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
        def call(self: Collectives, *args: Any, **kwargs: Any) -> Any:
            before = self._submitted
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                if self._submitted == before:
                    tensors = [gpu_tensor([each]) for each in operations(*args, **kwargs)]
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


def _sums(tensors: Any, *_: Any, **__: Any) -> Sequence[Any]:
    """Returns an entry for each operation of an allreduce; a sparse tensor needs two operations."""
    given = [tensors] if isinstance(tensors, Tensor) else tensors
    return [given] * (2 if any(each.is_sparse for each in given) else 1)


_collective = _refused_for_all(_by_lane)
_collective_of_engine = _refused_for_all(_by_engine)
_reduction = _refused_for_all(_by_lane_if_it_reduces)
_coalesced = _refused_for_all(_by_lane, _each)
_coalesced_reduction = _refused_for_all(_by_lane_if_it_reduces, _each)


class Collectives:
    """The collectives of a torch.distributed group, independent of torch's group class.

    Operations have no names: each rank's n-th collective matches the n-th collective of the other
    ranks, as torch.distributed requires. For this reason a locked schedule can run repeating steps.
    If the process set has a lane, collectives on GPU tensors use it: the calling thread launches
    the collectives on the GPU, in call order (client/ronda/lanes.h).

    Each method takes the arguments of torch's function with the same name, submits the collective,
    and returns a Work, or None if torch would wait at once and the collective has ended.

    Thread-safety: one thread at a time calls the collectives of a group; any thread may call the
    other methods.
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
        uses = _tensors.spans(reads, writes)
        if what not in _MESSAGES:
            self._lane.begin((*reads, *writes))
        if self._works is None:
            IN_FLIGHT.wait_for_users_of(uses)
        ended = _profile.begin(what, reads or writes) if _profile.is_on() else None
        handles, failure = [], None
        try:
            for call in calls:
                self._submitted += 1
                handles.append(call.submit(*call.arguments))
        except PeerFailedError as error:
            failure = error  # the Work's error, as if the job had failed a moment later
        except Exception:
            self._submitted -= 1
            raise
        work = Work(
            what,
            handles,
            list(results),
            _layout.all_of([_row_check(what, handles, calls), finish]),
            number=self._submitted,
            process_set=None if what in _MESSAGES else self._set,
            source=None if source is None else functools.partial(source, handles[0]),
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

    def _parts(self, tensor: Tensor) -> Sequence[Tensor]:
        """Divides a tensor into equal parts, one for each rank, in the order of the group."""
        return _layout.rows(tensor.reshape(-1), len(self._ranks)).unbind()

    # -- Reductions --

    @_refused_for_all(_by_lane_if_it_reduces, _sums)
    def allreduce(self, tensors: Any, opts: Any = None) -> Work | None:
        tensor = _only(tensors)
        if tensor.is_sparse:
            return self._sparse_allreduce(tensor, opts)
        arguments, finish = self._allreduce_arguments(tensor, opts)
        if self._blocks_at_once(tensor, opts):
            self._submitted += 1
            try:
                native.allreduce(*arguments)
            except DeadlineError as error:
                raise in_torchs_words(error) from None
            if finish is not None:
                finish()
            return None
        return self._start(
            "all_reduce",
            [_Call(native.allreduce_async, arguments)],
            [tensor],
            opts=opts,
            writes=[tensor],
            finish=finish,
        )

    def _blocks_at_once(self, tensor: Tensor, opts: Any) -> bool:
        """Returns whether an operation may run in the caller's thread, without a Work."""
        if not _versions.blocks(opts) or self._works is not None:
            return False
        if tensor.is_cuda or _profile.is_on():
            return False
        if IN_FLIGHT:
            IN_FLIGHT.wait_for_users_of([_tensors.span(tensor, True)])
        return True

    @_coalesced_reduction
    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Work | None:
        prepared = [self._allreduce_arguments(tensor, opts) for tensor in tensors]
        return self._start(
            "all_reduce",
            [_Call(native.allreduce_async, arguments) for arguments, _ in prepared],
            tensors,
            opts=opts,
            writes=tensors,
            finish=_layout.all_of([finish for _, finish in prepared]),
        )

    def _allreduce_arguments(
        self, tensor: Tensor, opts: Any
    ) -> tuple[_rows.Allreduce, _layout.Finish]:
        op, prescale = _versions.reduce_op(opts)
        number, dense = _layout.reducible(tensor, op)
        address = dense.data_ptr()
        arguments = _rows.allreduce(
            name=None,
            dtype=number,
            shape=tuple(dense.shape),
            input=address,
            output=address,
            keep=_tensors.owners(dense),
            op=op,
            prescale=prescale,
            process_set=self._set,
            deadline_s=self._deadline(opts),
            stream=_tensors.stream(dense),
        )
        return arguments, _layout.copy_back(tensor, dense)

    allreduce_sparse = allreduce

    def _sparse_allreduce(self, tensor: Tensor, opts: Any) -> Work | None:
        """Gathers the rows of all ranks on every rank, and adds rows with equal indices."""
        op, factor = _versions.reduce_op(opts)
        is_average = op == ReduceOp.AVERAGE
        if op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
            raise ValueError(f"{_versions.op_name(opts)} of a sparse tensor: use SUM or AVG")
        if is_average and not (tensor.is_floating_point() or tensor.is_complex()):
            raise ValueError(f"AVG of a sparse tensor of {tensor.dtype}: use SUM, and divide")
        if is_average:
            factor /= len(self._ranks)
        merged = tensor.coalesce()
        parts = [merged._indices().t().contiguous(), _layout.dense(merged._values())]
        handles: list[int] = []

        def gather(*arguments: Any) -> int:
            handles.append(native.allgather_async(*arguments))
            return handles[-1]

        def finish() -> None:
            indices, values = (
                _tensors.copy_of_output(*native.output(handle)[:2], part)
                for handle, part in zip(handles, parts)
            )
            _layout.fill(tensor, _layout.sum_of_rows(tensor, indices.t(), values, factor))

        calls = [self._allgather_call(part, None, opts)._replace(submit=gather) for part in parts]
        return self._start("sparse_all_reduce", calls, [tensor], opts=opts, finish=finish)

    @_reduction
    def reduce(self, tensors: Any, opts: Any, op: Any = None) -> Work | None:
        tensor = _only(tensors)
        reduce_op, prescale = _versions.reduce_op(opts if op is None else op)
        number, dense = _layout.reducible(tensor, reduce_op)
        address = dense.data_ptr()
        arguments = (
            None,
            number,
            tuple(dense.shape),
            address,
            address,
            _tensors.owners(dense),
            reduce_op,
            self._ranks[_root(opts)],
            0,
            prescale,
            1.0,
            self._set,
            self._deadline(opts),
            _tensors.stream(dense),
        )
        is_root = _root(opts) == self._group_rank
        return self._start(
            "reduce",
            [_Call(native.reduce_async, arguments)],
            [tensor],
            opts=opts,
            reads=() if is_root else [tensor],
            writes=[tensor] if is_root else (),
            finish=_layout.copy_back(tensor, dense) if is_root else None,
        )

    @_reduction
    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Work | None:
        output, parts = _only(outputs), _list(inputs)
        _layout.check_count("reduce_scatter", "input", parts, len(self._ranks))
        if any(part.numel() != output.numel() for part in parts):
            raise ValueError(
                "reduce_scatter: every input must have as many elements as the output, which has "
                f"{output.numel()}; this rank's inputs have {[part.numel() for part in parts]}"
            )
        _layout.check_dtypes("reduce_scatter", parts, [output])
        data = _layout.together(self._by_member(parts))
        call, finish = self._reduce_scatter_call(output, data, opts)
        return self._start(
            "reduce_scatter",
            [call],
            [output],
            opts=opts,
            reads=parts,
            writes=[output],
            finish=finish,
        )

    @_reduction
    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work | None:
        return self._reduce_scatter_singles("reduce_scatter_single", [output], [input], opts)

    @_coalesced_reduction
    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Work | None:
        return self._reduce_scatter_singles("reduce_scatter_single", outputs, inputs, opts)

    def _reduce_scatter_singles(
        self, what: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any
    ) -> Work | None:
        prepared = []
        for output, data in zip(outputs, inputs):
            _layout.check_dtypes(what, [data], [output])
            if data.numel() != output.numel() * len(self._ranks):
                raise ValueError(
                    f"reduce_scatter: the input must have {len(self._ranks)} times as many "
                    f"elements as the output; they have {data.numel()} and {output.numel()}"
                )
            if self._members is not None:
                data = _layout.together(self._by_member(self._parts(data)))
            prepared.append(self._reduce_scatter_call(output, data, opts))
        return self._start(
            what,
            [call for call, _ in prepared],
            outputs,
            opts=opts,
            reads=inputs,
            writes=outputs,
            finish=_layout.all_of([finish for _, finish in prepared]),
        )

    def _reduce_scatter_call(
        self, output: Tensor, data: Tensor, opts: Any
    ) -> tuple[_Call, _layout.Finish]:
        op, prescale = _versions.reduce_op(opts)
        number, elements = _layout.reducible(data, op)
        _, room = _layout.reducible(output, op)
        matrix = _layout.rows(self._lane.scattered(elements, room), len(self._ranks))
        arguments = (
            None,
            number,
            tuple(matrix.shape),
            matrix.data_ptr(),
            room.data_ptr(),
            room.numel() * room.element_size(),
            _tensors.owners(matrix, room),
            op,
            0,
            prescale,
            1.0,
            self._set,
            self._deadline(opts),
            _tensors.stream(matrix),
        )
        return _Call(native.reducescatter_async, arguments), _layout.copy_back(output, room)

    # -- Gathers of sparse and of other tensors also use these functions --

    def _allgather_call(
        self,
        data: Tensor,
        room: Tensor | None,
        opts: Any,
        counts: Sequence[int] | None = None,
    ) -> _Call:
        """Returns a call that gathers dense tensors into the flat tensor `room` or Ronda's memory.

        Args:
            data: the tensor of this rank, whose rows are gathered.
            room: the tensor for the rows of all members.
            opts: torch's options.
            counts: the number of elements that each member must send.
        """
        if room is not None:
            data = self._lane.gathered(data, room)
        number, elements = _layout.movable(data)
        address, size = _layout.memory(room)
        arguments = (
            None,
            number,
            tuple(elements.shape),
            elements.data_ptr(),
            address,
            size,
            (elements, room),
            self._set,
            self._deadline(opts),
            _tensors.stream(elements),
        )
        rows = None if counts is None else _layout.counts_of_sent(counts, data, elements)
        return _Call(native.allgather_async, arguments, rows)


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
