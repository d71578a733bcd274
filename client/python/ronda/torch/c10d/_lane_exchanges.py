# SPDX-License-Identifier: Apache-2.0

"""Gathers, scatters and alltoalls of torch.distributed over a group's lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ronda._library import native
from ronda.torch import _tensors
from ronda.torch.c10d import _layout
from ronda.torch.c10d._collectives import Collectives, _root
from ronda.torch.c10d._lane import NO_PART, Part, adjacent_parts, part_of
from ronda.torch.c10d._submission import _Call
from ronda.torch.c10d._work import Work

Tensor = torch.Tensor

# The values of ronda_lane_exchange in client/ronda/lanes.h.
_ALLTOALL, _GATHER, _SCATTER = range(3)


class LaneExchanges(Collectives):
    """Adds exchanges over the lane, in which NCCL sends from the caller's tensors and receives into
    them. Only tensors that are not contiguous in memory are copied.

    The caller has already checked the arguments. REQUIRES: the lane is open.
    """

    def _gather_over_lane(
        self,
        what: str,
        parts: Sequence[Tensor],
        results: Sequence[Tensor],
        elements: Tensor,
        opts: Any,
        finish: _layout.Finish,
    ) -> Work | None:
        rooms = [_layout.dense(part) for part in parts]
        finishes = [_layout.copy_back(part, room) for part, room in zip(parts, rooms)]
        (sent,) = self._lane.apart_each([elements], rooms)
        sends = [NO_PART] * len(self._ranks)
        sends[_root(opts)] = part_of(sent)
        receives = [part_of(room) for room in rooms] or [NO_PART] * len(self._ranks)
        return self._start_over_lane(
            what,
            (_GATHER, _root(opts)),
            sends,
            receives,
            _tensors.owners(sent, *rooms),
            opts=opts,
            results=results,
            reads=[elements],
            writes=results,
            finish=_layout.all_of([*finishes, finish]),
        )

    def _scatter_over_lane(
        self, output: Tensor, inputs: Sequence[Tensor], opts: Any
    ) -> Work | None:
        room = _layout.dense(output)
        data = self._lane.apart_each([_layout.dense(each) for each in inputs], [room])
        receives = [NO_PART] * len(self._ranks)
        receives[_root(opts)] = part_of(room)
        sends = [part_of(each) for each in data] or [NO_PART] * len(self._ranks)
        return self._start_over_lane(
            "scatter",
            (_SCATTER, _root(opts)),
            sends,
            receives,
            _tensors.owners(room, *data),
            opts=opts,
            results=[output],
            reads=inputs,
            writes=[output],
            finish=_layout.copy_back(output, room),
        )

    def _rows_over_lane(
        self,
        what: str,
        sent: Tensor,
        to_send: Sequence[int],
        rooms: Tensor,
        to_receive: Sequence[int],
        output: Tensor,
        input: Tensor,
        dense: Tensor,
        opts: Any,
    ) -> Work | None:
        """Exchanges the rows of two matrices.

        Args:
            what: the name of the collective.
            sent: the rows that this rank sends.
            to_send: the number of rows to each rank of the group.
            rooms: the rows that this rank receives, in the memory of `dense`.
            to_receive: the number of rows from each rank of the group.
            output: the caller's output.
            input: the caller's input.
            dense: `output`, or a contiguous tensor that is copied to `output` at the end.
            opts: torch's options.
        """
        (data,) = self._lane.apart_each([sent.view(-1)], [dense])
        width = sent.shape[1]
        return self._start_over_lane(
            what,
            (_ALLTOALL, 0),
            adjacent_parts(data, [count * width for count in to_send]),
            adjacent_parts(rooms.view(-1), [count * width for count in to_receive]),
            _tensors.owners(data, rooms),
            opts=opts,
            results=[output],
            reads=[input],
            writes=[output],
            finish=_layout.copy_back(output, dense),
        )

    def _lists_over_lane(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any
    ) -> Work | None:
        rooms = [_layout.dense(output) for output in outputs]
        data = self._lane.apart_each([_layout.dense(each) for each in inputs], rooms)
        finishes = [_layout.copy_back(output, room) for output, room in zip(outputs, rooms)]
        return self._start_over_lane(
            "all_to_all",
            (_ALLTOALL, 0),
            [part_of(each) for each in data],
            [part_of(room) for room in rooms],
            _tensors.owners(*data, *rooms),
            opts=opts,
            results=outputs,
            reads=inputs,
            writes=outputs,
            finish=_layout.all_of(finishes),
        )

    def _start_over_lane(
        self,
        what: str,
        op_and_root: tuple[int, int],
        sends: Sequence[Part],
        receives: Sequence[Part],
        owners: Any,
        *,
        opts: Any,
        results: Sequence[Tensor],
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        finish: _layout.Finish,
    ) -> Work | None:
        """Submits an exchange.

        Args:
            what: the name of the collective in torch.
            op_and_root: a value of ronda_lane_exchange, and the root's rank in the group.
            sends: what this rank sends to each rank of the group.
            receives: what this rank receives from each rank of the group.
            owners: the owners of the parts' memory, which are kept until the exchange has ended.
            opts: torch's options.
            results: see Collectives._start(), also for the other arguments.
            reads: the tensors that the collective reads.
            writes: the tensors that the collective changes.
            finish: copies results to the caller's tensors.
        """
        op, root = op_and_root
        some = (*reads, *writes)[0]
        number, _ = _layout.movable(some.new_empty(0))
        arguments = (
            op,
            number,
            [number for part in self._by_member(sends) for number in part],
            [number for part in self._by_member(receives) for number in part],
            owners,
            self._ranks[root],
            self._set,
            self._deadline(opts),
            _tensors.stream(some),
        )
        return self._start(
            what,
            [_Call(native.lane_exchange_async, arguments)],
            results,
            opts=opts,
            reads=reads,
            writes=writes,
            finish=finish,
        )
