# SPDX-License-Identifier: Apache-2.0

"""Barriers, messages between two ranks, and the collectives of torch.distributed that only move
tensors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from ronda._in_flight import IN_FLIGHT
from ronda._library import native
from ronda.errors import DeadlineError
from ronda.torch import _tensors
from ronda.torch.c10d import _layout, _versions
from ronda.torch.c10d._collectives import _list, _only, _root
from ronda.torch.c10d._lane import gpu_tensor
from ronda.torch.c10d._lane_exchanges import LaneExchanges
from ronda.torch.c10d._submission import (
    _by_lane,
    _Call,
    _coalesced,
    _collective,
    _collective_of_engine,
    _refused_for_all,
)
from ronda.torch.c10d._work import Work

Tensor = torch.Tensor


class Exchanges(LaneExchanges):
    """Adds the other operations of a group: broadcasts, gathers, messages, barriers and so on."""

    @_collective
    def broadcast(self, tensors: Any, opts: Any) -> Work | None:
        tensor = _only(tensors)
        dense = _layout.dense(tensor)
        is_root = _root(opts) == self._group_rank
        return self._start(
            "broadcast",
            [self._broadcast_call(dense.view(-1), self._ranks[_root(opts)], opts)],
            [tensor],
            opts=opts,
            reads=[tensor] if is_root else (),
            writes=() if is_root else [tensor],
            finish=None if is_root else _layout.copy_back(tensor, dense),
        )

    def _broadcast_call(self, data: Tensor, root: int, opts: Any) -> _Call:
        """Returns a call that broadcasts a flat tensor from rank `root` of the job."""
        number, flat = _layout.movable(data)
        arguments = (
            None,
            number,
            tuple(flat.shape),
            flat.data_ptr(),
            flat,
            root,
            self._set,
            self._deadline(opts),
            _tensors.stream(flat),
        )
        return _Call(native.broadcast_async, arguments)

    # -- Gathers --

    @_collective
    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Work | None:
        tensors, data = _list(outputs), _only(inputs)
        calls, finish = self._gather_into(tensors, data, opts)
        return self._start(
            "all_gather",
            calls,
            tensors,
            opts=opts,
            reads=[data],
            writes=tensors,
            finish=finish,
        )

    def _gather_into(
        self, outputs: Sequence[Tensor], data: Tensor, opts: Any
    ) -> tuple[list[_Call], _layout.Finish]:
        self._check_outputs("all_gather", outputs, data)
        ordered = self._by_member(outputs)
        room, finish = _layout.room_for(ordered)
        counts = [output.numel() for output in ordered]
        is_uneven = len(set(counts)) > 1
        if is_uneven and self._lane.carries(gpu_tensor([data])):
            return self._broadcasts_into(room, counts, data, opts), finish
        return [self._allgather_call(_layout.flat(data), room, opts, counts)], finish

    def _broadcasts_into(
        self, room: Tensor, counts: Sequence[int], data: Tensor, opts: Any
    ) -> list[_Call]:
        """Gathers parts of different sizes over the lane, through a broadcast from each member."""
        calls = []
        for rank, part in zip(sorted(self._ranks), room.split(list(counts))):
            if rank == self._ranks[self._group_rank]:
                _tensors.wait_for_users_of([data], [part])
                with torch.no_grad():
                    part.copy_(_layout.flat(data))
            calls.append(self._broadcast_call(part, rank, opts))
        return calls

    def _check_outputs(self, what: str, outputs: Sequence[Tensor], data: Tensor) -> None:
        _layout.check_count(what, "output", outputs, len(self._ranks))
        _layout.check_dtypes(what, [data], outputs)
        own = outputs[self._group_rank]
        if own.numel() != data.numel():
            raise ValueError(
                f"{what}: this rank's input has {data.numel()} elements, and the output for it, "
                f"number {self._group_rank}, has {own.numel()}"
            )

    @_refused_for_all(_by_lane, lambda lists, inputs, *_, **__: inputs)
    def allgather_coalesced(
        self, lists: Any, inputs: list[Tensor], opts: Any = None
    ) -> Work | None:
        # Each list in `lists` has the outputs for the inputs of one rank, but each operation needs
        # the outputs for the same input of every rank.
        _layout.check_count("all_gather_coalesced", "lists of output", lists, len(self._ranks))
        for outputs in lists:
            _layout.check_pairs("all_gather_coalesced", outputs, inputs)
        columns = [list(column) for column in zip(*lists)]
        return self._gather_columns("all_gather_coalesced", columns, inputs, opts)

    def _gather_columns(
        self, what: str, columns: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any
    ) -> Work | None:
        prepared = [self._gather_into(column, data, opts) for column, data in zip(columns, inputs)]
        outputs = [tensor for column in columns for tensor in column]
        return self._start(
            what,
            [call for calls, _ in prepared for call in calls],
            outputs,
            opts=opts,
            reads=inputs,
            writes=outputs,
            finish=_layout.all_of([finish for _, finish in prepared]),
        )

    @_collective
    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work | None:
        return self._all_gather_singles("all_gather_single", [output], [input], opts)

    @_coalesced
    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Work | None:
        return self._all_gather_singles("all_gather_single", outputs, inputs, opts)

    def _all_gather_singles(
        self, what: str, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any
    ) -> Work | None:
        _layout.check_pairs(what, outputs, inputs)
        calls, finishes = [], []
        for output, data in zip(outputs, inputs):
            self._check_whole(what, output, data)
            dense = _layout.dense(output)
            room, deal_out = dense.view(-1), None
            if self._members is not None:
                room, deal_out = _layout.room_for(self._by_member(self._parts(dense)))
            counts = [data.numel()] * len(self._ranks)
            calls.append(self._allgather_call(_layout.flat(data), room, opts, counts))
            finishes += [deal_out, _layout.copy_back(output, dense)]
        return self._start(
            what,
            calls,
            outputs,
            opts=opts,
            reads=inputs,
            writes=outputs,
            finish=_layout.all_of(finishes),
        )

    def _check_whole(self, what: str, output: Tensor, data: Tensor) -> None:
        _layout.check_dtypes(what, [data], [output])
        if output.numel() != data.numel() * len(self._ranks):
            raise ValueError(
                f"{what}: the output must have {len(self._ranks)} times as many elements as the "
                f"input; they have {output.numel()} and {data.numel()}"
            )

    @_collective
    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Work | None:
        data, tensors = _only(inputs), _list(outputs)
        if _root(opts) == self._group_rank:
            self._check_outputs("gather", tensors, data)
            for number, output in enumerate(tensors):
                if output.numel() != data.numel():
                    raise ValueError(
                        f"gather: output number {number} has {output.numel()} elements, and this "
                        f"rank's input has {data.numel()}: outputs must have the size of the inputs"
                    )
        return self._gather("gather", tensors, tensors, data, opts)

    @_collective
    def gather_single(self, output: Any, input: Tensor, opts: Any) -> Work | None:
        if _root(opts) != self._group_rank:
            return self._gather("gather_single", [], [], input, opts)
        self._check_whole("gather_single", output, input)
        dense = _layout.dense(output)
        finish = _layout.copy_back(output, dense)
        return self._gather("gather_single", self._parts(dense), [output], input, opts, finish)

    def _gather(
        self,
        what: str,
        parts: Sequence[Tensor],
        results: Sequence[Tensor],
        data: Tensor,
        opts: Any,
        finish: _layout.Finish = None,
    ) -> Work | None:
        """Gathers into `parts`, which has a tensor for each rank of the group on the root, and is
        empty on the other ranks.

        Each rank sends one row with all of its elements. If the rows have different lengths, the
        gather fails on every rank.
        """
        elements = _layout.flat(data)
        if self._lane.carries(gpu_tensor([data])):
            return self._gather_over_lane(what, parts, results, elements, opts, finish)
        room, deal_out = _layout.room_for(self._by_member(parts)) if parts else (None, None)
        if room is not None:
            elements = _layout.apart(elements, room)
        number, sent = _layout.movable(elements)
        address, size = _layout.memory(room)
        arguments = (
            None,
            number,
            (1, sent.numel()),
            sent.data_ptr(),
            address,
            size,
            (sent, room),
            self._ranks[_root(opts)],
            self._set,
            self._deadline(opts),
            _tensors.stream(sent),
        )
        return self._start(
            what,
            [_Call(native.gather_async, arguments)],
            results,
            opts=opts,
            reads=[data],
            writes=results,
            finish=_layout.all_of([deal_out, finish]),
        )

    # -- Scatters and exchanges --

    @_collective
    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> Work | None:
        output, parts = _only(outputs), _list(inputs)
        is_root = _root(opts) == self._group_rank
        if is_root:
            self._check_scattered(output, parts)
        if self._lane.carries(gpu_tensor([output])):
            return self._scatter_over_lane(output, parts if is_root else [], opts)
        dense = _layout.dense(output)
        number, room = _layout.movable(dense.view(-1))
        data = room.new_empty((0, room.numel()))
        if is_root:
            together = _layout.apart(_layout.together(self._by_member(parts)), output)
            data = _layout.rows(_layout.movable(together)[1], len(self._ranks))
        address, size = _layout.memory(room)
        arguments = (
            None,
            number,
            tuple(data.shape),
            data.data_ptr(),
            address,
            size,
            (data, room),
            self._ranks[_root(opts)],
            None,
            self._set,
            self._deadline(opts),
            _tensors.stream(room),
        )
        return self._start(
            "scatter",
            [_Call(native.scatter_async, arguments)],
            [output],
            opts=opts,
            reads=parts,
            writes=[output],
            finish=_layout.copy_back(output, dense),
        )

    def _check_scattered(self, output: Tensor, parts: Sequence[Tensor]) -> None:
        _layout.check_count("scatter", "input", parts, len(self._ranks))
        _layout.check_dtypes("scatter", parts, [output])
        if any(part.numel() != output.numel() for part in parts):
            raise ValueError(
                "scatter: every input must have as many elements as the output, which has "
                f"{output.numel()}; the root's inputs have {[part.numel() for part in parts]}"
            )

    @_collective
    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Work | None:
        what, size = "all_to_all_single", len(self._ranks)
        _layout.check_dtypes(what, [input], [output])
        dense = _layout.dense(output)
        rooms = _layout.in_rows(dense)
        sent = _layout.in_rows(_layout.dense(input))
        has_splits = output_splits or input_splits
        if not has_splits and rooms.numel() == sent.numel() and rooms.shape != sent.shape:
            # Without splits each rank gets the same number of elements, so the shapes do not
            # matter.
            rooms, sent = rooms.view(-1, 1), sent.view(-1, 1)
        to_receive = _splits("output", output_splits, rooms, size)
        to_send = _splits("input", input_splits, sent, size)
        if rooms.shape[1] != sent.shape[1]:
            raise ValueError(
                f"{what}: a row of the output has {rooms.shape[1]} elements, one of the input "
                f"{sent.shape[1]}"
            )
        if self._lane.carries(gpu_tensor([input])):
            return self._rows_over_lane(
                what, sent, to_send, rooms, to_receive, output, input, dense, opts
            )
        finishes: list[_layout.Finish] = [_layout.copy_back(output, dense)]
        room = rooms.view(-1)
        if self._members is not None:
            parts = rooms.split(to_receive)
            room, deal_out = _layout.room_for(self._by_member(parts))
            data = self._by_member(sent.split(to_send))
            sent = _layout.together(data).view(sent.shape)
            to_send = [part.shape[0] for part in data]
            to_receive = [part.shape[0] for part in self._by_member(parts)]
            finishes.insert(0, deal_out)
        return self._exchange(
            what, sent, to_send, room, to_receive, [output], [input], finishes, opts
        )

    @_collective
    def alltoall(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Work | None:
        _layout.check_count("all_to_all", "output", outputs, len(self._ranks))
        _layout.check_count("all_to_all", "input", inputs, len(self._ranks))
        _layout.check_dtypes("all_to_all", inputs, outputs)
        if self._lane.carries(gpu_tensor(inputs)):
            return self._lists_over_lane(outputs, inputs, opts)
        rooms, data = self._by_member(outputs), self._by_member(inputs)
        room, finish = _layout.room_for(rooms)
        return self._exchange(
            "all_to_all",
            _layout.together(data).view(-1, 1),
            [part.numel() for part in data],
            room,
            [part.numel() for part in rooms],
            outputs,
            inputs,
            [finish],
            opts,
        )

    def _exchange(
        self,
        what: str,
        rows: Tensor,
        to_send: Sequence[int],
        room: Tensor,
        to_receive: Sequence[int],
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        finishes: Sequence[_layout.Finish],
        opts: Any,
    ) -> Work | None:
        """Sends `rows` to the members, and receives the members' rows into `room`. Other arguments
        give the number of rows to and from each member.
        """
        number, sent = _layout.movable(_layout.apart(rows, room))
        address, size = _layout.memory(room)
        arguments = (
            None,
            number,
            tuple(sent.shape),
            sent.data_ptr(),
            address,
            size,
            (sent, room),
            to_send,
            self._set,
            self._deadline(opts),
            _tensors.stream(sent),
        )
        return self._start(
            what,
            [_Call(native.alltoall_async, arguments, to_receive)],
            outputs,
            opts=opts,
            reads=inputs,
            writes=outputs,
            finish=_layout.all_of(finishes),
        )

    # -- One rank to another --

    def send(self, tensors: Any, destination: int, tag: int) -> Work | None:
        tensor = _only(tensors)
        number, data = _layout.movable(_layout.flat(tensor))
        arguments = (
            number,
            tuple(data.shape),
            data.data_ptr(),
            data,
            self._ranks[destination],
            tag,
            self._set,
            self._timeout_s,
            _tensors.stream(data),
        )
        call = _Call(native.send_async, arguments)
        return self._start("send", [call], [tensor], opts=None, reads=[tensor])

    def recv(self, tensors: Any, source: int, tag: int) -> Work | None:
        return self._receive(_only(tensors), self._ranks[source], tag)

    def recv_anysource(self, tensors: Any, tag: int) -> Work | None:
        return self._receive(_only(tensors), _ANY, tag)

    def _receive(self, tensor: Tensor, source: int, tag: int) -> Work | None:
        dense = _layout.dense(tensor)
        number, room = _layout.movable(dense.view(-1))
        arguments = (
            number,
            tuple(room.shape),
            room.data_ptr(),
            room,
            source,
            tag,
            self._set,
            self._timeout_s,
            _tensors.stream(room),
        )

        def sender(handle: int) -> int:
            return self._ranks.index(native.source(handle) if source == _ANY else source)

        return self._start(
            "recvAnySource" if source == _ANY else "recv",
            [_Call(native.recv_async, arguments)],
            [tensor],
            opts=None,
            writes=[tensor],
            finish=_layout.copy_back(tensor, dense),
            source=sender,
        )

    # -- Barriers --

    @_collective_of_engine
    def barrier(self, opts: Any = None) -> Work | None:
        """Returns a Work that ends when every rank has called barrier() and the group's earlier
        collectives have ended.

        As with NCCL, the host first waits for earlier work on the GPU's current stream.
        """
        if self._works is None:
            self._await_collectives()
        _tensors.finish_current_stream()
        call = _Call(native.barrier_async, (self._set, self._deadline(opts)))
        return self._start("barrier", [call], [], opts=opts)

    def _await_collectives(self) -> None:
        """Waits for the group's collectives. Does not wait for messages, because a message may wait
        for a later call.
        """
        for operation in IN_FLIGHT.operations():
            if isinstance(operation, Work) and operation.process_set == self._process_set:
                operation.settle()

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Blocks until every rank has called monitored_barrier(). The error names every missing
        rank.

        Args:
            timeout: the longest time to wait, or options that contain this time. None means the
                group's timeout.
            wait_all_ranks: ignored, because the error always names all missing ranks.
        """
        limit: timedelta | None = _versions.barrier_timeout(timeout)
        seconds = self._timeout_s if limit is None else limit.total_seconds()
        try:
            # In Ronda a timeout of 0 means the job's deadline, but in torch it means "do not wait".
            native.monitored_barrier(self._set, seconds if limit is None else max(seconds, 1e-3))
        except DeadlineError as error:
            raise DeadlineError(f"{self._barrier_words(seconds, str(error))}: {error}") from None

    def _barrier_words(self, seconds: float, error: str) -> str:
        """Returns the prefix of gloo's barrier errors, because programs look for it."""
        missing = re.search(r"missing: rank (\d+)", error)
        if self._group_rank != 0 or missing is None:
            return (
                f"Rank {self._group_rank} successfully reached monitoredBarrier, but received "
                "errors while waiting for send/recv from rank 0"
            )
        if seconds <= 0:
            return f"Rank {self._group_rank} timed out in monitoredBarrier after 0 ms"
        first = self._ranks.index(int(missing.group(1)))
        return f"Rank {first} failed to pass monitoredBarrier in {1000 * seconds:g} ms"


_ANY = -1


def _splits(kind: str, splits: Sequence[int], rows: Tensor, size: int) -> list[int]:
    """Returns the number of rows for each rank of the group. Without splits, all ranks get the same
    number of rows.

    Raises:
        ValueError: the splits do not add up to the tensor's rows.
    """
    count = rows.shape[0]
    if not splits and count % size == 0:
        return [count // size] * size
    if len(splits) != size or sum(splits) != count:
        raise ValueError(
            f"all_to_all: {kind}_split_sizes {list(splits)} do not add up to the {kind}'s first "
            f"dimension, {count}, for {size} ranks"
        )
    return list(splits)
