# SPDX-License-Identifier: Apache-2.0

"""Implements the collectives of torch.distributed as Ronda operations in a process set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ronda import _rows
from ronda._in_flight import IN_FLIGHT
from ronda._library import native
from ronda.errors import DeadlineError
from ronda.torch import _tensors
from ronda.torch.c10d import _layout, _profile, _versions
from ronda.torch.c10d._submission import (
    Submitter,
    _by_lane_if_it_reduces,
    _Call,
    _coalesced_reduction,
    _reduction,
    _refused_for_all,
)
from ronda.torch.c10d._work import Work, in_torchs_words
from ronda.types import ReduceOp

Tensor = torch.Tensor


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


def _sums(tensors: Any, *_: Any, **__: Any) -> Sequence[Any]:
    """Returns an entry for each operation of an allreduce; a sparse tensor needs two operations."""
    given = [tensors] if isinstance(tensors, Tensor) else tensors
    return [given] * (2 if any(each.is_sparse for each in given) else 1)


class Collectives(Submitter):
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
            try:
                self._submit(native.allreduce, arguments)
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
        _tensors.wait_for_users_of(reads=[tensor])
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
        return self._start(
            "sparse_all_reduce", calls, [tensor], opts=opts, writes=[tensor], finish=finish
        )

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
        sizes = [part.numel() for part in parts]
        if sizes[self._group_rank] != output.numel():
            raise ValueError(
                "reduce_scatter: this rank's output must have as many elements as its input number "
                f"{self._group_rank}; they have {output.numel()} and {sizes[self._group_rank]}"
            )
        _layout.check_dtypes("reduce_scatter", parts, [output])
        if len(set(sizes)) > 1:
            return self._reduce_uneven_parts(output, parts, opts)
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

    def _reduce_uneven_parts(
        self, output: Tensor, parts: Sequence[Tensor], opts: Any
    ) -> Work | None:
        """Reduces parts of different sizes on all ranks, and copies this rank's part to the output.

        One operation is submitted, as if the sizes were equal, so it is refused in the same way.
        """
        _tensors.wait_for_users_of(reads=parts)
        whole = torch.cat([_layout.flat(part) for part in parts])
        own = whole.split([part.numel() for part in parts])[self._group_rank]
        arguments, _ = self._allreduce_arguments(whole, opts)  # the result is in `whole`
        return self._start(
            "reduce_scatter",
            [_Call(native.allreduce_async, arguments)],
            [output],
            opts=opts,
            reads=parts,
            writes=[output],
            finish=_layout.copy_back(output, own),
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
        _layout.check_pairs(what, outputs, inputs)
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
