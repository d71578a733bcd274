"""A torch.distributed ProcessGroup whose collectives are operations of Ronda in one process set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d

from ronda._library import native
from ronda.torch import _tensors
from ronda.torch.c10d import _layout
from ronda.torch.c10d._work import Work
from ronda.types import DType, ReduceOp

Tensor = torch.Tensor

# By the number of torch's RedOpType.
_OPS = {
    0: ReduceOp.SUM,
    1: ReduceOp.AVERAGE,
    2: ReduceOp.PRODUCT,
    3: ReduceOp.MIN,
    4: ReduceOp.MAX,
    5: ReduceOp.BAND,
    6: ReduceOp.BOR,
    7: ReduceOp.BXOR,
}
_PREMUL_SUM = 8
_UINT8 = int(DType.UINT8)


def _reduce_op(opts: Any) -> tuple[int, float]:
    """The op and the prescale of a collective's options, or of a ReduceOp in their place."""
    if opts is None:
        return int(ReduceOp.SUM), 1.0
    op = getattr(opts, "reduceOp", opts)
    number = int(getattr(op, "op", op))
    if number != _PREMUL_SUM:
        return int(_OPS[number]), 1.0
    state = getattr(type(op), "__getstate__", None) and op.__getstate__()
    factor = state[1] if isinstance(state, tuple) and len(state) == 2 else None
    if factor is None:
        raise NotImplementedError(
            f"torch {torch.__version__} does not tell the factor of PREMUL_SUM: multiply the "
            "tensor before a SUM, or use PyTorch 2"
        )
    return int(ReduceOp.SUM), float(factor)


def _only(tensors: Any) -> Tensor:
    """The tensor of a list with one entry, or a tensor by itself."""
    if isinstance(tensors, Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(
            f"{len(tensors)} tensors on one rank: Ronda's ranks have one device, so pass one tensor"
        )
    tensor: Tensor = tensors[0]
    return tensor


def _root(opts: Any) -> int:
    return int(getattr(opts, "rootRank", opts))


_Base: Any = _distributed_c10d.ProcessGroup


class ProcessGroup(_Base):  # type: ignore[misc]
    """The collectives of torch.distributed for the ranks of one of Ronda's process sets.

    Operations have no names: the n-th collective of each rank meets the n-th of the others, as
    torch.distributed demands. So steps that repeat are carried out by a locked schedule.

    Each method takes what torch's function of that name passes, submits, and returns a Work.
    Thread-safety: collectives of a group are made by one thread at a time; the rest from any.
    """

    def __init__(
        self, rank: int, ranks: Sequence[int], process_set: int, name: str, timeout_s: float
    ) -> None:
        """
        Args:
            rank: of this process in the group.
            ranks: of the members in the job, ascending.
            process_set: of these ranks; the group does not end it.
            name: of the group.
            timeout_s: deadline of its collectives; 0: the job's.
        """
        super().__init__(rank, len(ranks))
        self._ranks = list(ranks)
        self._set = process_set
        self._name = name
        self._timeout_s = timeout_s
        self._coalesced: list[Work] | None = None

    # -- What torch asks a group about itself --

    def getBackendName(self) -> str:  # noqa: N802
        return "ronda"

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    _set_group_name = setGroupName

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def process_set(self) -> int:
        """The id of Ronda's process set."""
        return self._set

    @property
    def _device_types(self) -> list[torch.device]:
        names = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
        return [torch.device(name) for name in names]

    # -- Coalescing: Ronda fuses by itself, so the operations are submitted as they come --

    def _start_coalescing(self, _device: Any = None) -> None:
        self._coalesced = []

    def _end_coalescing(self, _device: Any = None) -> Work:
        works, self._coalesced = self._coalesced or [], None
        handles = [handle for work in works for handle in work.handles]
        tensors = [tensor for work in works for tensor in work.result()]

        def finish() -> None:
            for work in works:
                work.wait()

        return Work("coalesced operations", handles, tensors, finish, parts=works)

    def _work(
        self,
        what: str,
        handles: Sequence[int],
        tensors: list[Tensor],
        finish: Callable[[], None] | None = None,
        source: int = -1,
    ) -> Work:
        work = Work(what, handles, tensors, finish, source)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _deadline(self, opts: Any) -> float:
        timeout = getattr(opts, "timeout", None)
        if isinstance(timeout, timedelta) and timeout > timedelta(0):
            return timeout.total_seconds()
        return self._timeout_s

    # -- Reductions --

    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        tensor = _only(tensors)
        if tensor.is_sparse:
            return self._sparse_allreduce(tensor, opts)
        handle, finish = self._submit_allreduce(tensor, opts)
        return self._work("allreduce", [handle], [tensor], finish)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Work:
        submitted = [self._submit_allreduce(tensor, opts) for tensor in tensors]
        finish = _layout.all_of([finish for _, finish in submitted])
        return self._work("allreduce", [handle for handle, _ in submitted], tensors, finish)

    def _submit_allreduce(self, tensor: Tensor, opts: Any) -> tuple[int, _layout.Finish]:
        op, prescale = _reduce_op(opts)
        number, dense = _layout.reducible(tensor)
        address = dense.data_ptr()
        handle = native.allreduce_async(
            None,
            number,
            tuple(dense.shape),
            address,
            address,
            dense,
            op,
            0,
            prescale,
            1.0,
            self._set,
            False,
            False,
            self._deadline(opts),
            _tensors.stream(dense),
        )
        return handle, _layout.copy_back(tensor, dense)

    def _sparse_allreduce(self, tensor: Tensor, opts: Any) -> Work:
        """Every rank gets the rows of all ranks, and adds up those with the same indices."""
        op, factor = _reduce_op(opts)
        if op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
            raise ValueError("a sparse tensor can be reduced with SUM or AVG only")
        if op == ReduceOp.AVERAGE:
            factor /= self.size()
        merged = tensor.coalesce()
        parts = [merged._indices().t().contiguous(), merged._values().contiguous()]
        handles = [self._submit_allgather(part, None, opts) for part in parts]

        def finish() -> None:
            indices, values = (
                _tensors.copy_of_output(*native.output(handle)[:2], part)
                for handle, part in zip(handles, parts)
            )
            total = torch.sparse_coo_tensor(indices.t(), values * factor, tensor.shape)
            tensor.copy_(total.coalesce())

        return self._work("sparse allreduce", handles, [tensor], finish)

    def reduce(self, tensors: Any, opts: Any, op: Any = None) -> Work:
        tensor = _only(tensors)
        number, dense = _layout.reducible(tensor)
        op, prescale = _reduce_op(opts if op is None else op)
        address = dense.data_ptr()
        root = self._ranks[_root(opts)]
        handle = native.reduce_async(
            None,
            number,
            tuple(dense.shape),
            address,
            address,
            dense,
            op,
            root,
            0,
            prescale,
            1.0,
            self._set,
            self._deadline(opts),
            _tensors.stream(dense),
        )
        finish = _layout.copy_back(tensor, dense) if _root(opts) == self.rank() else None
        return self._work("reduce", [handle], [tensor], finish)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        output = _only(outputs)
        parts = inputs[0] if isinstance(inputs[0], (list, tuple)) else inputs
        if any(part.numel() != output.numel() for part in parts):
            raise ValueError(
                "reduce_scatter: every input must have as many elements as the output, which has "
                f"{output.numel()}; this rank's inputs have {[part.numel() for part in parts]}"
            )
        return self._reduce_scatter_base(output, _layout.together(parts), opts)

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        handle, finish = self._submit_reducescatter(output, input, opts)
        return self._work("reduce_scatter", [handle], [output], finish)

    def reduce_scatter_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Work:
        pairs = zip(outputs, inputs)
        submitted = [self._submit_reducescatter(out, data, opts) for out, data in pairs]
        finish = _layout.all_of([finish for _, finish in submitted])
        return self._work("reduce_scatter", [handle for handle, _ in submitted], outputs, finish)

    def _submit_reducescatter(
        self, output: Tensor, input: Tensor, opts: Any
    ) -> tuple[int, _layout.Finish]:
        op, prescale = _reduce_op(opts)
        number, dense = _layout.reducible(input)
        _, room = _layout.reducible(output)
        if dense.numel() != room.numel() * self.size():
            raise ValueError(
                f"reduce_scatter: the input must have {self.size()} times as many elements as the "
                f"output; they have {dense.numel()} and {room.numel()}"
            )
        matrix = _layout.rows(_layout.apart(dense, room), self.size())
        handle = native.reducescatter_async(
            None,
            number,
            tuple(matrix.shape),
            matrix.data_ptr(),
            room.data_ptr(),
            room.numel() * room.element_size(),
            (matrix, room),
            op,
            0,
            prescale,
            1.0,
            self._set,
            self._deadline(opts),
            _tensors.stream(matrix),
        )
        return handle, _layout.copy_back(output, room)

    # -- Collectives that move data --

    def broadcast(self, tensors: Any, opts: Any) -> Work:
        tensor = _only(tensors)
        dense = tensor.contiguous()
        number, flat = _layout.movable(dense.view(-1))
        handle = native.broadcast_async(
            None,
            number,
            tuple(flat.shape),
            flat.data_ptr(),
            flat,
            self._ranks[_root(opts)],
            self._set,
            self._deadline(opts),
            _tensors.stream(flat),
        )
        return self._work("broadcast", [handle], [tensor], _layout.copy_back(tensor, dense))

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        lists = outputs[0] if isinstance(outputs[0], (list, tuple)) else outputs
        room, finish = _layout.room_for(lists)
        handle = self._submit_allgather(_only(inputs).reshape(-1), room, opts)
        return self._work("allgather", [handle], list(lists), finish)

    def allgather_coalesced(self, lists: Any, inputs: list[Tensor], opts: Any = None) -> Work:
        # The tensors of one rank are together in `lists`, those of one input in an operation.
        columns = [_layout.room_for(column) for column in zip(*lists)]
        handles = [
            self._submit_allgather(tensor.reshape(-1), room, opts)
            for tensor, (room, _) in zip(inputs, columns)
        ]
        finish = _layout.all_of([finish for _, finish in columns])
        return self._work("allgather", handles, [t for row in lists for t in row], finish)

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        return self.allgather_into_tensor_coalesced([output], [input], opts)

    def allgather_into_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Work:
        rooms = [output.contiguous() for output in outputs]
        handles = [
            self._submit_allgather(data.reshape(-1), room.view(-1), opts)
            for data, room in zip(inputs, rooms)
        ]
        finish = _layout.all_of(list(map(_layout.copy_back, outputs, rooms)))
        return self._work("allgather", handles, outputs, finish)

    def _submit_allgather(self, dense: Tensor, room: Tensor | None, opts: Any) -> int:
        """Into `room`, which is flat, or into memory of Ronda's."""
        if room is not None:
            dense = _layout.apart(dense, room)
        number, data = _layout.movable(dense)
        address, size = _layout.memory(room)
        return native.allgather_async(
            None,
            number,
            tuple(data.shape),
            data.data_ptr(),
            address,
            size,
            (data, room),
            self._set,
            self._deadline(opts),
            _tensors.stream(data),
        )

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        number, data = _layout.movable(_only(inputs).reshape(-1))
        lists, room, finish = _on_root(outputs, _layout.room_for)
        address, size = _layout.memory(room)
        handle = native.gather_async(
            None,
            number,
            tuple(data.shape),
            data.data_ptr(),
            address,
            size,
            (data, room),
            self._ranks[_root(opts)],
            self._set,
            self._deadline(opts),
            _tensors.stream(data),
        )
        return self._work("gather", [handle], lists or [data], finish)

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> Work:
        output = _only(outputs)
        room = output.contiguous()
        number, flat = _layout.movable(room.view(-1))
        data = flat.new_empty((0, flat.numel()))
        if _root(opts) == self.rank():
            parts = inputs[0] if isinstance(inputs[0], (list, tuple)) else inputs
            data = _layout.rows(_layout.movable(_layout.together(parts))[1], self.size())
        address, size = _layout.memory(flat)
        handle = native.scatter_async(
            None,
            number,
            tuple(data.shape),
            data.data_ptr(),
            address,
            size,
            (data, flat),
            self._ranks[_root(opts)],
            None,
            self._set,
            self._deadline(opts),
            _tensors.stream(flat),
        )
        return self._work("scatter", [handle], [output], _layout.copy_back(output, room))

    def alltoall_base(
        self,
        output: Tensor,
        input: Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Work:
        rows = sum(output_splits) if output_splits else output.shape[0]
        if rows != output.shape[0]:
            raise ValueError(
                f"all_to_all: output_split_sizes {list(output_splits)} do not add up to the "
                f"output's first dimension, {output.shape[0]}"
            )
        room = output.contiguous()
        matrix = _layout.in_rows(input.contiguous())
        handle = self._submit_alltoall(matrix, room, list(input_splits) or None, opts)
        finish = _layout.copy_back(output, room)
        return self._work("all_to_all", [handle], [output], finish)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        room, finish = _layout.room_for(outputs)
        splits = [tensor.numel() for tensor in inputs]
        data = _layout.together(inputs).view(-1, 1)
        handle = self._submit_alltoall(data, room, splits, opts)
        return self._work("all_to_all", [handle], outputs, finish)

    def _submit_alltoall(
        self, matrix: Tensor, room: Tensor, splits: list[int] | None, opts: Any
    ) -> int:
        number, data = _layout.movable(_layout.apart(matrix, room))
        address, size = _layout.memory(room)
        return native.alltoall_async(
            None,
            number,
            tuple(data.shape),
            data.data_ptr(),
            address,
            size,
            (data, room),
            splits,
            self._set,
            self._deadline(opts),
            _tensors.stream(data),
        )

    # -- One rank to another --

    def send(self, tensors: Any, destination: int, tag: int) -> Work:
        tensor = _only(tensors)
        number, data = _layout.movable(tensor.reshape(-1))
        handle = native.send_async(
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
        return self._work("send", [handle], [tensor])

    def recv(self, tensors: Any, source: int, tag: int) -> Work:
        tensor = _only(tensors)
        room = tensor.contiguous()
        number, data = _layout.movable(room.view(-1))
        handle = native.recv_async(
            number,
            tuple(data.shape),
            data.data_ptr(),
            data,
            self._ranks[source],
            tag,
            self._set,
            self._timeout_s,
            _tensors.stream(data),
        )
        finish = _layout.copy_back(tensor, room)
        return self._work("recv", [handle], [tensor], finish, source)

    def recv_anysource(self, _tensors: Any, _tag: int) -> Work:
        raise NotImplementedError(
            "Ronda cannot receive from any rank: pass src, the rank that sends the tensor"
        )

    # -- Barriers --

    def barrier(self, opts: Any = None) -> Work:
        return self._work("barrier", [native.barrier_async(self._set)], [])

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Blocks until every rank has called it; the error names every rank that is missing.

        Args:
            timeout: the longest time to wait; None: the group's.
            wait_all_ranks: not looked at: all missing ranks are named in any case.
        """
        seconds = self._timeout_s if timeout is None else timeout.total_seconds()
        native.monitored_barrier(self._set, seconds)


def _on_root(
    lists: Any, make: Callable[[Sequence[Tensor]], tuple[Tensor, _layout.Finish]]
) -> tuple[list[Tensor], Tensor | None, _layout.Finish]:
    """The tensors that the root passes, of which other ranks pass none, and room for them."""
    tensors = lists[0] if lists and isinstance(lists[0], (list, tuple)) else lists
    if not tensors:
        return [], None, None
    room, finish = make(tensors)
    return list(tensors), room, finish
