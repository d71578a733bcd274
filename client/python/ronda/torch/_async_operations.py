# SPDX-License-Identifier: Apache-2.0

"""The *_async functions. Each *_async function submits an operation and returns the operation's
handle.

Tensors without a name are matched by order, separately in each process set. Groups need names. If
the program gives no name, the group gets the next number, which is the same on all ranks.
"""

from __future__ import annotations

import contextlib
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from ronda import _horovod, _rows
from ronda._horovod import Average, reduce_op
from ronda._in_flight import IN_FLIGHT, first_conflict
from ronda._library import native
from ronda._refusals import Told
from ronda.process_sets import ProcessSet, global_process_set, id_of
from ronda.torch import _tensors
from ronda.torch._handles import Handle
from ronda.torch._watch import mark_changed, watch
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
]

_Use = tuple[torch.Tensor, bool]  # a tensor, and whether the operation writes to it

# The number of names generated so far, for each operation and process set.
_unnamed: Counter[tuple[str, int]] = Counter()
_horovod.at_shutdown(_unnamed.clear)


def counted_name(operation: str, name: str | None, process_set: int) -> str:
    """Returns `name`, or, if it is None, a numbered name that is the same on all ranks."""
    if name is not None:
        return name
    _unnamed[operation, process_set] += 1
    return f"{operation}.noname.{_unnamed[operation, process_set]}"


def _factors(prescale: float, postscale: float) -> tuple[float, float]:
    """Rejects a factor of 0, because 0 means "no factor" in the C ABI."""
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
) -> _rows.Allreduce:
    """Returns the arguments for native.allreduce_async and native.allreduce."""
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
    set_id = id_of(process_set)
    with Told(set_id, name):
        row = allreduce_row(tensor, output, name, op, factors, set_id)
        is_in_place = output is tensor
        use = (tensor, is_in_place)  # no other operation uses a new output
        return _start(native.allreduce_async, row, use, _taker(output, is_in_place))


def _start(
    submit: Callable[..., int],
    row: tuple[Any, ...],
    use: _Use,
    finish: Callable[[list[int]], Any],
) -> Handle:
    """Waits for earlier operations that use the same memory, and submits an operation."""
    spans = [_tensors.span(*use)]
    IN_FLIGHT.wait_for_users_of(spans)
    watched = watch(row[0], [use[0]])
    handle = Handle([submit(*row)], row[-1], finish, watched)
    IN_FLIGHT.add(handle, spans)
    return handle


def _taker(output: torch.Tensor, is_in_place: bool) -> Callable[[list[int]], torch.Tensor]:
    """Returns a Handle's `finish` function for an operation that writes to `output`."""
    if is_in_place:
        return lambda _: mark_changed(output)
    return lambda _: output


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Starts to reduce a tensor over the ranks. The tensor does not change.

    Args:
        tensor: contiguous, of the same shape and dtype on every rank.
        average: deprecated; True is Average, False is Sum.
        name: the same on every rank; tensors without a name are matched by order.
        op: Average (if None), Sum, Min, Max, Product or Adasum.
        prescale_factor: multiplies the tensor before the reduction; not 0.
        postscale_factor: multiplies the result; not 0.
        process_set: the ranks that take part.

    Returns:
        A handle for poll() and synchronize(); its result is a new tensor.

    Raises:
        ValueError: the tensor or a factor cannot be used; a tensor of this name is in flight.
    """
    with Told(id_of(process_set), name):
        op, tensor = reduce_op(op, average), _tensors.plain(tensor)
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
    """Like allreduce_async(), but in place."""
    with Told(id_of(process_set), name):
        op = reduce_op(op, average)
    factors = (prescale_factor, postscale_factor)
    return _submit_allreduce(tensor, tensor, name, op, factors, process_set)


def _submit_grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    is_in_place: bool,
    name: str | None,
    op: ReduceOp | None,
    average: bool | None,
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> Handle:
    set_id = id_of(process_set)
    with told_group("grouped_allreduce", name, tensors, set_id) as (group, tensors):
        op = reduce_op(op, average)
        if not is_in_place:
            tensors = [_tensors.plain(tensor) for tensor in tensors]
        for tensor in tensors:
            _tensors.check(tensor)
        outputs = tensors if is_in_place else [torch.empty_like(tensor) for tensor in tensors]
        rows = [
            allreduce_row(tensor, output, f"{group}.{i}", op, factors, set_id)
            for i, (tensor, output) in enumerate(zip(tensors, outputs))
        ]
        uses = [(tensor, is_in_place) for tensor in tensors]

        def finish(_: list[int]) -> list[torch.Tensor]:
            return [mark_changed(each) for each in outputs] if is_in_place else outputs

        return _start_group(native.grouped_allreduce_async, rows, group, uses, finish)


@contextlib.contextmanager
def told_group(
    operation: str, name: str | None, tensors: Sequence[torch.Tensor], process_set: int
) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """A context manager like Told, for a group. Its value is the group's name, and the group as a
    list of at least one element.
    """
    group = counted_name(operation, name, process_set)
    is_list = isinstance(tensors, Iterable) and not isinstance(tensors, torch.Tensor)
    members = list(tensors) if is_list else []
    with Told(process_set, group, max(len(members), 1)):
        if not is_list:
            raise ValueError(f"a group is a list of tensors, and not a {type(tensors).__name__}")
        if not members:
            raise ValueError("a group of no tensors: give it at least one")
        yield group, members


def _start_group(
    submit: Callable[[Sequence[tuple[Any, ...]], str], list[int]],
    rows: Sequence[tuple[Any, ...]],
    group: str,
    uses: list[_Use],
    finish: Callable[[list[int]], Any],
) -> Handle:
    """Waits for earlier operations that use the same memory, and submits a group."""
    spans = [_tensors.span(*use) for use in uses]
    conflict = first_conflict([[span] for span in spans])
    if conflict is not None:
        raise ValueError(
            f"tensors {conflict[0]} and {conflict[1]} of group '{group}' share memory: pass each"
            " tensor once"
        )
    IN_FLIGHT.wait_for_users_of(spans)
    watched = watch(group, [tensor for tensor, _ in uses])
    handle = Handle(submit(rows, group), rows[0][-1], finish, watched)
    IN_FLIGHT.add(handle, spans)
    return handle


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Starts to reduce several tensors. Either all tensors are reduced, or none.

    The arguments and errors are the same as for allreduce_async(). The result is a list of new
    tensors.
    """
    factors = (prescale_factor, postscale_factor)
    return _submit_grouped_allreduce(tensors, False, name, op, average, factors, process_set)


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Like grouped_allreduce_async(), but in place."""
    factors = (prescale_factor, postscale_factor)
    return _submit_grouped_allreduce(tensors, True, name, op, average, factors, process_set)


def gathered(id: int, like: torch.Tensor) -> torch.Tensor:
    """Returns the rows that a native handle has gathered, as a tensor with the dtype and device of
    `like`.
    """
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
    """Starts to concatenate the ranks' tensors along the first dimension.

    Args:
        tensor: contiguous; only its first dimension may differ between ranks.
        name: the same on every rank; tensors without a name are matched by order.
        process_set: the ranks that take part.

    Returns:
        A handle; its result is a new tensor.
    """
    set_id, tensor = id_of(process_set), _tensors.plain(tensor)
    with Told(set_id, name):
        row = _allgather_row(tensor, name, set_id)
        use = (tensor, False)
        return _start(native.allgather_async, row, use, lambda ids: gathered(ids[0], tensor))


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Like allgather_async(), but for a group of tensors. The result is a list of new tensors."""
    set_id = id_of(process_set)
    with told_group("grouped_allgather", name, tensors, set_id) as (group, members):
        group_of = [_tensors.plain(tensor) for tensor in members]
        rows = [_allgather_row(each, f"{group}.{i}", set_id) for i, each in enumerate(group_of)]

        def finish(ids: list[int]) -> list[torch.Tensor]:
            return [gathered(id, tensor) for id, tensor in zip(ids, group_of)]

        uses = [(tensor, False) for tensor in group_of]
        return _start_group(native.grouped_allgather_async, rows, group, uses, finish)


def _submit_broadcast(
    data: torch.Tensor, root_rank: int, name: str | None, set_id: int, is_in_place: bool
) -> Handle:
    dtype, stream = _tensors.check(data), _tensors.stream(data)
    row = (
        name,
        dtype,
        tuple(data.shape),
        data.data_ptr(),
        _tensors.owners(data),
        root_rank,
        set_id,
        0.0,
        stream,
    )
    use = (data, native.rank() != root_rank)
    return _start(native.broadcast_async, row, use, _taker(data, is_in_place))


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Starts to send a rank's tensor to all ranks. The argument does not change.

    Args:
        tensor: contiguous, of the same shape and dtype on every rank.
        root_rank: the root's rank in the job, even if `process_set` is given.
        name: the same on every rank; tensors without a name are matched by order.
        process_set: the ranks that take part.

    Returns:
        A handle; its result is a new tensor.
    """
    set_id, tensor = id_of(process_set), _tensors.plain(tensor)
    with Told(set_id, name):
        _tensors.check(tensor)
        IN_FLIGHT.wait_for_users_of([_tensors.span(tensor, False)])
        return _submit_broadcast(tensor.detach().clone(), root_rank, name, set_id, False)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Like broadcast_async(), but in place."""
    set_id = id_of(process_set)
    with Told(set_id, name):
        return _submit_broadcast(tensor, root_rank, name, set_id, True)


def _counts(splits: torch.Tensor | Sequence[int] | None) -> list[int] | None:
    if isinstance(splits, torch.Tensor):
        is_integer = not (splits.dtype.is_floating_point or splits.is_complex())
        if not is_integer or splits.dtype is torch.bool or splits.dim() != 1:
            raise ValueError(
                f"splits is {_tensors.describe(splits)}: it must be a list of integers"
            )
        return [int(count) for count in splits.tolist()]
    if splits is None:
        return None
    try:
        return [operator.index(count) for count in splits]
    except TypeError:
        raise ValueError(f"splits is {splits!r:.80}: it must be a list of integers") from None


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Starts to send rows of the first dimension to every member, and to receive the members' rows.

    Args:
        tensor: contiguous; only its first dimension may differ between ranks.
        splits: the number of rows for each member, a tensor or list of integers. Rows beyond the
            sum of the splits are not sent. None means that all members get the same number.
        name: the same on every rank; tensors without a name are matched by order.
        process_set: the ranks that take part.

    Returns:
        A handle. The result is a new tensor, and a tensor with the number of rows from each member
        (of the dtype and on the device of `splits`, or int32).
    """
    set_id = id_of(process_set)
    with Told(set_id, name):
        sent, row = _alltoall_row(_tensors.plain(tensor), splits, name, set_id)
        received_like = (
            splits if isinstance(splits, torch.Tensor) else torch.empty(0, dtype=torch.int32)
        )

        def finish(ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
            address, rows, by_member = native.output(ids[0])
            received = torch.tensor(
                by_member, dtype=received_like.dtype, device=received_like.device
            )
            return _tensors.copy_of_output(address, rows, sent), received

        return _start(native.alltoall_async, row, (sent, False), finish)


def _alltoall_row(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None,
    name: str | None,
    process_set: int,
) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """Returns the rows to send, and the arguments of the native function."""
    dtype, stream = _tensors.check(tensor), _tensors.stream(tensor)
    counts = _counts(splits)
    if counts is not None and tensor.dim() > 0 and 0 <= sum(counts) < len(tensor):
        tensor = tensor[: sum(counts)]
    return tensor, (
        name,
        dtype,
        tuple(tensor.shape),
        tensor.data_ptr(),
        0,
        0,
        _tensors.owners(tensor),
        counts,
        process_set,
        0.0,
        stream,
    )


def _reducescatter_row(
    tensor: torch.Tensor,
    name: str | None,
    op: ReduceOp,
    factors: tuple[float, float],
    process_set: int,
) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """Returns the output, and the arguments of the native function."""
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
    """Starts to reduce a tensor. Every member gets some rows of the result.

    With n rows and m members, each member gets n // m rows, and the first n % m members get one row
    more.

    Args:
        tensor: contiguous, with at least one dimension, of the same shape and dtype on every rank.
        name: the same on every rank; tensors without a name are matched by order.
        op: Average, Sum, Min, Max or Product.
        process_set: the ranks that take part.
        prescale_factor: multiplies the tensor before the reduction; not 0.
        postscale_factor: multiplies the result; not 0.

    Returns:
        A handle; its result is a new tensor.
    """
    set_id, tensor = id_of(process_set), _tensors.plain(tensor)
    with Told(set_id, name):
        factors = (prescale_factor, postscale_factor)
        output, row = _reducescatter_row(tensor, name, op, factors, set_id)
        return _start(native.reducescatter_async, row, (tensor, False), lambda _: output)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Like reducescatter_async(), for several tensors as a group. The result is a list."""
    set_id, factors = id_of(process_set), (prescale_factor, postscale_factor)
    with told_group("grouped_reducescatter", name, tensors, set_id) as (group, members):
        group_of = [_tensors.plain(tensor) for tensor in members]
        pairs = [
            _reducescatter_row(tensor, f"{group}.{i}", op, factors, set_id)
            for i, tensor in enumerate(group_of)
        ]
        outputs, rows = [output for output, _ in pairs], [row for _, row in pairs]
        uses = [(tensor, False) for tensor in group_of]
        return _start_group(
            native.grouped_reducescatter_async, rows, group, uses, lambda _: outputs
        )


def join(device: int = -1) -> int:
    """Announces that this rank has no more data, and waits until every rank has called join().

    Until then, the other ranks' allreduces continue without this rank. Averages count only the
    ranks that take part; Horovod's averages count all ranks.

    Args:
        device: not used, because Ronda does not need zeros on a device.

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
    """Waits until every rank has called barrier().

    Args:
        process_set: the ranks that take part.
    """
    Handle([native.barrier_async(id_of(process_set))], None, lambda _: None).wait()
