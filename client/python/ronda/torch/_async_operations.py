"""The *_async functions: each submits an operation and returns its handle.

A tensor without a name meets those of the other ranks by order, in each process set by itself.
Groups need names, so those without get a number, which all ranks count alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from ronda._library import native
from ronda.process_sets import ProcessSet, global_process_set, id_of
from ronda.torch import _basics, _tensors
from ronda.torch._basics import Average, reduce_op
from ronda.torch._handles import Handle
from ronda.types import ReduceOp

__all__ = [
    "allgather_async",
    "allreduce_async",
    "allreduce_async_",
    "alltoall_async",
    "barrier",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather_async",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter_async",
    "join",
    "reducescatter_async",
    "sparse_allreduce_async",
]

# Names given so far, by operation and process set.
_unnamed: Counter[tuple[str, int]] = Counter()
_basics.at_shutdown(_unnamed.clear)


def _name(operation: str, name: str | None, process_set: int) -> str:
    if name is not None:
        return name
    _unnamed[operation, process_set] += 1
    return f"{operation}.noname.{_unnamed[operation, process_set]}"


def _factors(prescale: float, postscale: float) -> tuple[float, float]:
    """Checks them: 0 means none to the C ABI."""
    if prescale == 0 or postscale == 0:
        raise ValueError("prescale_factor and postscale_factor must not be 0")
    return float(prescale), float(postscale)


def allreduce_row(
    tensor: torch.Tensor,
    output: torch.Tensor,
    name: str | None,
    op: ReduceOp,
    factors: tuple[float, float],
    process_set: int,
) -> tuple[Any, ...]:
    """The arguments of native.allreduce_async, and of native.allreduce."""
    prescale, postscale = _factors(*factors)
    return _tensors.allreduce_arguments(
        name,
        tensor,
        output,
        int(op),
        prescale=prescale,
        postscale=postscale,
        process_set=process_set,
    )


def _submit_allreduce(
    tensor: torch.Tensor,
    output: torch.Tensor,
    name: str | None,
    op: ReduceOp,
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> Handle:
    row = allreduce_row(tensor, output, name, op, factors, id_of(process_set))
    return Handle([native.allreduce_async(*row)], row[-1], lambda _: output)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to reduce a tensor over the ranks; it stays as it is.

    Args:
        tensor: contiguous, of the same shape and dtype on every rank.
        average: deprecated; True is Average, False is Sum.
        name: the same on every rank; without one tensors meet by order.
        op: Average (if None), Sum, Min, Max, Product or Adasum.
        prescale_factor: of the tensor, before the reduction; not 0.
        postscale_factor: of the result; not 0.
        process_set: the ranks that take part.

    Returns:
        A handle for poll() and synchronize(); its result is a new tensor.

    Raises:
        ValueError: the tensor or a factor cannot be used; a tensor of this name is in flight.
    """
    op = reduce_op(op, average)
    _tensors.check(tensor)
    output = torch.empty_like(tensor)
    return _submit_allreduce(
        tensor, output, name, op, (prescale_factor, postscale_factor), process_set
    )


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """As allreduce_async(), in place."""
    op = reduce_op(op, average)
    factors = (prescale_factor, postscale_factor)
    return _submit_allreduce(tensor, tensor, name, op, factors, process_set)


def _submit_grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    outputs: list[torch.Tensor],
    name: str | None,
    op: ReduceOp,
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> Handle:
    set_id = id_of(process_set)
    group = _name("grouped_allreduce", name, set_id)
    rows = [
        allreduce_row(tensor, output, f"{group}.{i}", op, factors, set_id)
        for i, (tensor, output) in enumerate(zip(tensors, outputs))
    ]
    return Handle(native.grouped_allreduce_async(rows, group), _stream(tensors), lambda _: outputs)


def _stream(tensors: Sequence[torch.Tensor]) -> int | None:
    if not tensors:
        raise ValueError("a group of no tensors: give it at least one")
    return _tensors.stream(tensors[0])


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to reduce tensors together: all of them are carried out, or none.

    Args and errors are those of allreduce_async(); the result is a list of new tensors.
    """
    op = reduce_op(op, average)
    outputs = [torch.empty_like(tensor) for tensor in tensors]
    factors = (prescale_factor, postscale_factor)
    return _submit_grouped_allreduce(tensors, outputs, name, op, factors, process_set)


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """As grouped_allreduce_async(), in place."""
    op = reduce_op(op, average)
    factors = (prescale_factor, postscale_factor)
    return _submit_grouped_allreduce(tensors, list(tensors), name, op, factors, process_set)


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str | None,
    op: ReduceOp,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to add up sparse tensors: every rank gets the values of all.

    Args:
        tensor: of layout torch.sparse_coo; any number of its dimensions may be sparse.
        name: the same on every rank.
        op: Sum or Average.
        process_set: the ranks that take part.

    Returns:
        A handle; its result, also if it is called, is a new sparse tensor, not coalesced.
    """
    set_id = id_of(process_set)
    sparse_shape = tensor.shape[: tensor.sparse_dim()]
    values = tensor._values().contiguous()
    rows = _row_numbers(tensor._indices(), sparse_shape)
    stream = _tensors.stream(values)
    members = native.process_set_size(set_id)
    handles = native.sparse_allreduce_async(
        _name("sparse_allreduce", name, set_id),
        _tensors.check(values),
        tuple(values.shape),
        values.data_ptr(),
        rows.data_ptr(),
        (values, rows),
        int(_basics.Sum),
        set_id,
        0.0,
        stream,
    )

    def finish(ids: list[int]) -> torch.Tensor:
        all_rows, all_values = _output(ids[0], rows), _output(ids[1], values)
        if op == Average:
            all_values /= members
        indices = _indices(all_rows, sparse_shape)
        return torch.sparse_coo_tensor(indices, all_values, tensor.shape)

    return Handle(list(handles), stream, finish)


def _row_numbers(indices: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """One number for each column of `indices`, shape (dimensions, columns), in row-major order."""
    rows = torch.zeros(indices.shape[1], dtype=torch.int64, device=indices.device)
    for index, size in zip(indices, shape):
        rows.mul_(size).add_(index)
    return rows


def _indices(rows: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """The inverse of _row_numbers()."""
    indices = rows.new_empty((len(shape), len(rows)))
    for dimension in reversed(range(len(shape))):
        indices[dimension] = rows % shape[dimension]
        rows = torch.div(rows, shape[dimension], rounding_mode="floor")
    return indices


def _output(id: int, like: torch.Tensor) -> torch.Tensor:
    address, rows, _ = native.output(id)
    return _tensors.copy_of_output(address, rows, like)


def _allgather_row(tensor: torch.Tensor, name: str | None, process_set: int) -> tuple[Any, ...]:
    dtype = _tensors.check(tensor)
    data, stream = tensor.data_ptr(), _tensors.stream(tensor)
    keep = _tensors.owners(tensor)
    return (name, dtype, tuple(tensor.shape), data, 0, 0, keep, process_set, 0.0, stream)


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Begins to concatenate the ranks' tensors along the first dimension.

    Args:
        tensor: contiguous; its first dimension may differ between ranks, the others may not.
        name: the same on every rank; without one tensors meet by order.
        process_set: the ranks that take part.

    Returns:
        A handle; its result is a new tensor.
    """
    row = _allgather_row(tensor, name, id_of(process_set))
    return Handle([native.allgather_async(*row)], row[-1], lambda ids: _output(ids[0], tensor))


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """As allgather_async(), of several tensors together; the result is a list of new tensors."""
    set_id = id_of(process_set)
    group = _name("grouped_allgather", name, set_id)
    rows = [_allgather_row(tensor, f"{group}.{i}", set_id) for i, tensor in enumerate(tensors)]

    def finish(ids: list[int]) -> list[torch.Tensor]:
        return [_output(id, tensor) for id, tensor in zip(ids, tensors)]

    return Handle(native.grouped_allgather_async(rows, group), _stream(tensors), finish)


def _submit_broadcast(
    data: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
) -> Handle:
    dtype, stream = _tensors.check(data), _tensors.stream(data)
    id = native.broadcast_async(
        name,
        dtype,
        tuple(data.shape),
        data.data_ptr(),
        _tensors.owners(data),
        root_rank,
        id_of(process_set),
        0.0,
        stream,
    )
    return Handle([id], stream, lambda _: data)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to send a rank's tensor to all; the argument stays as it is.

    Args:
        tensor: contiguous, of the same shape and dtype on every rank.
        root_rank: the rank in the job, also in a process set.
        name: the same on every rank; without one tensors meet by order.
        process_set: the ranks that take part.

    Returns:
        A handle; its result is a new tensor.
    """
    _tensors.check(tensor)
    return _submit_broadcast(tensor.detach().clone(), root_rank, name, process_set)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """As broadcast_async(), in place."""
    return _submit_broadcast(tensor, root_rank, name, process_set)


def _counts(splits: torch.Tensor | Sequence[int] | None) -> list[int] | None:
    if isinstance(splits, torch.Tensor):
        if splits.dtype.is_floating_point or splits.dim() != 1:
            raise ValueError(
                f"splits is {_tensors.describe(splits)}: it must be a list of integers"
            )
        return [int(count) for count in splits.tolist()]
    return None if splits is None else [int(count) for count in splits]


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begins to send rows of the first dimension to every member, and to receive theirs.

    Args:
        tensor: contiguous; its first dimension may differ between ranks, the others may not.
        splits: how many rows each member gets, a tensor or list of integers; rows beyond their
            sum are not sent. None: the same number for all.
        name: the same on every rank; without one tensors meet by order.
        process_set: the ranks that take part.

    Returns:
        A handle; its result is a new tensor, and how many of its rows came from each member (of
        the dtype and on the device of `splits`, or int32).
    """
    dtype, stream = _tensors.check(tensor), _tensors.stream(tensor)
    counts = _counts(splits)
    if counts is not None and tensor.dim() > 0 and sum(counts) < len(tensor):
        tensor = tensor[: sum(counts)]
    received_like = (
        splits if isinstance(splits, torch.Tensor) else torch.empty(0, dtype=torch.int32)
    )
    id = native.alltoall_async(
        name,
        dtype,
        tuple(tensor.shape),
        tensor.data_ptr(),
        0,
        0,
        _tensors.owners(tensor),
        counts,
        id_of(process_set),
        0.0,
        stream,
    )

    def finish(ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        address, rows, by_member = native.output(ids[0])
        received = torch.tensor(by_member, dtype=received_like.dtype, device=received_like.device)
        return _tensors.copy_of_output(address, rows, tensor), received

    return Handle([id], stream, finish)


def _reducescatter_row(
    tensor: torch.Tensor,
    name: str | None,
    op: ReduceOp,
    factors: tuple[float, float],
    process_set: int,
) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """The output, and the arguments."""
    dtype, stream = _tensors.check(tensor), _tensors.stream(tensor)
    if tensor.dim() == 0:
        raise ValueError("reducescatter of a scalar: the tensor needs a dimension to be dealt out")
    share, rest = divmod(len(tensor), native.process_set_size(process_set))
    mine = share + (native.process_set_rank(process_set) < rest)
    output = torch.empty((mine, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
    nbytes = output.numel() * output.element_size()
    arguments = (
        name,
        dtype,
        tuple(tensor.shape),
        tensor.data_ptr(),
        output.data_ptr(),
        nbytes,
        _tensors.owners(tensor, output),
        int(ReduceOp(op)),
        0,
        *_factors(*factors),
        process_set,
        0.0,
        stream,
    )
    return output, arguments


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Begins to reduce a tensor, of which every member gets a part of the rows.

    Of n rows and m members each gets n // m, and the first n % m members one more.

    Args:
        tensor: contiguous, of the same shape, not (), and dtype on every rank.
        name: the same on every rank; without one tensors meet by order.
        op: Average, Sum, Min, Max or Product.
        process_set: the ranks that take part.
        prescale_factor: of the tensor, before the reduction; not 0.
        postscale_factor: of the result; not 0.

    Returns:
        A handle; its result is a new tensor.
    """
    factors = (prescale_factor, postscale_factor)
    output, arguments = _reducescatter_row(tensor, name, op, factors, id_of(process_set))
    return Handle([native.reducescatter_async(*arguments)], arguments[-1], lambda _: output)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """As reducescatter_async(), of several tensors together; the result is a list."""
    set_id, factors = id_of(process_set), (prescale_factor, postscale_factor)
    group = _name("grouped_reducescatter", name, set_id)
    pairs = [
        _reducescatter_row(tensor, f"{group}.{i}", op, factors, set_id)
        for i, tensor in enumerate(tensors)
    ]
    ids = native.grouped_reducescatter_async([row for _, row in pairs], group)
    return Handle(ids, _stream(tensors), lambda _: [output for output, _ in pairs])


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and waits until no rank has.

    Until then the allreduces of the other ranks go on without it. Their averages count the ranks
    that take part, where Horovod's count all.

    Args:
        device: not used; Ronda adds no zeros.

    Returns:
        The last rank that joined.
    """
    del device
    handle = Handle([native.join_async(0)], None, lambda ids: native.last_rank(ids[0]))
    last = handle.wait()
    for operation, process_set in list(_unnamed):
        if process_set == 0:
            del _unnamed[operation, process_set]
    return int(last)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank has called it.

    Args:
        process_set: the ranks that take part.
    """
    Handle([native.barrier_async(id_of(process_set))], None, lambda _: None).wait()
