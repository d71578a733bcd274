# SPDX-License-Identifier: Apache-2.0

"""Blocking, differentiable collectives on torch tensors.

This module also has all other names of Horovod's module mpi_ops. The collectives compute the same
gradients as Horovod's collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ronda._horovod import reduce_op
from ronda._in_flight import IN_FLIGHT
from ronda._library import native
from ronda._refusals import Told
from ronda.process_sets import id_of
from ronda.torch import _async_operations, _basics, _tensors
from ronda.torch._async_operations import *  # noqa: F403
from ronda.torch._async_operations import (
    allgather_async,
    allreduce_row,
    alltoall_async,
    broadcast_async,
    broadcast_async_,
    grouped_allgather_async,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter_async,
    reducescatter_async,
    told_group,
)
from ronda.torch._basics import *  # noqa: F403
from ronda.torch._basics import Average, ProcessSet, Sum, global_process_set, rank
from ronda.torch._handles import poll, synchronize
from ronda.torch._sparse import sparse_allreduce_async
from ronda.torch._watch import mark_changed
from ronda.torch.compression import Compression, Compressor
from ronda.types import ReduceOp

__all__ = [
    *_basics.__all__,
    *_async_operations.__all__,
    "Compression",
    "allgather",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "poll",
    "reducescatter",
    "sparse_allreduce_async",
    "synchronize",
]

_Factors = tuple[float, float]


def _needs_gradient(tensors: Sequence[torch.Tensor]) -> bool:
    """Returns whether autograd must record the call. Recording takes longer than a small
    allreduce.
    """
    # Objects that are not tensors are rejected later, on submission, so that the other ranks are
    # notified.
    return torch.is_grad_enabled() and any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors
    )


def _check_differentiable(op: ReduceOp) -> None:
    if op not in (Average, Sum):
        raise NotImplementedError(f"{op.name} has no gradient here: only Average and Sum have one")


def _reduce(
    tensor: torch.Tensor,
    output: torch.Tensor | None,
    name: str | None,
    op: ReduceOp,
    factors: _Factors,
    process_set: ProcessSet,
) -> torch.Tensor:
    """allreduce() without autograd. If `output` is None, the result is a new tensor."""
    set_id = id_of(process_set)
    with Told(set_id, name):
        if output is None:
            tensor = _tensors.plain(tensor)
            _tensors.check(tensor)
            output = torch.empty_like(tensor)
        row = allreduce_row(tensor, output, name, op, factors, set_id)
        if IN_FLIGHT:
            IN_FLIGHT.wait_for_users_of([_tensors.span(tensor, output is tensor)])
        if row[-1] is None:
            native.allreduce(*row)
            return output
        id = native.allreduce_async(*row)
    native.synchronize_on_stream(id, row[-1])
    native.release(id)
    return output


class _Allreduce(torch.autograd.Function):
    """An allreduce for autograd. The gradient is reduced in the same way as the tensor."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: str | None,
        op: ReduceOp,
        factors: _Factors,
        process_set: ProcessSet,
    ) -> torch.Tensor:
        ctx.arguments = op, factors, process_set
        return _reduce(tensor, None, name, op, factors, process_set)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        op, factors, process_set = ctx.arguments
        _check_differentiable(op)
        gradient = gradients[0].contiguous()
        reduced = _differentiable_allreduce(gradient, None, op, factors, process_set)
        return reduced, None, None, None, None


def _differentiable_allreduce(
    tensor: torch.Tensor, name: str | None, op: ReduceOp, factors: _Factors, process_set: ProcessSet
) -> torch.Tensor:
    if _needs_gradient([tensor]):
        reduced: torch.Tensor = _Allreduce.apply(tensor, name, op, factors, process_set)
        return reduced
    return _reduce(tensor, None, name, op, factors, process_set)


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces a tensor over the ranks, and returns the result as a new tensor. Differentiable for
    Average and Sum.

    Args:
        tensor: contiguous, of the same shape and dtype on every rank.
        average: deprecated; True is Average, False is Sum.
        name: the same on every rank; tensors without a name are matched by order.
        compression: casts the tensor before the reduction, and back afterwards.
        op: Average (if None), Sum, Min, Max, Product or Adasum.
        prescale_factor: multiplies the tensor before the reduction; not 0.
        postscale_factor: multiplies the result; not 0.
        process_set: the ranks that take part.

    Raises:
        ValueError: the tensor or a factor cannot be used; a tensor of this name is in flight.
        HorovodInternalError: the ranks disagree, or a rank has failed.
    """
    with Told(id_of(process_set), name):
        op, factors = reduce_op(op, average), (prescale_factor, postscale_factor)
        short, context = compression.compress(tensor)
    reduced = _differentiable_allreduce(short, name, op, factors, process_set)
    return compression.decompress(reduced, context)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Like allreduce(), but in place and not differentiable."""
    with Told(id_of(process_set), name):
        op, factors = reduce_op(op, average), (prescale_factor, postscale_factor)
    return mark_changed(_reduce(tensor, tensor, name, op, factors, process_set))


def _reduce_group(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: ReduceOp,
    factors: _Factors,
    process_set: ProcessSet,
) -> list[torch.Tensor]:
    """grouped_allreduce() without autograd."""
    prescale, postscale = factors
    handle = grouped_allreduce_async(tensors, None, name, op, prescale, postscale, process_set)
    return list(synchronize(handle))


class _GroupedAllreduce(torch.autograd.Function):
    """A group of allreduces for autograd. The gradients are reduced in the same way as the
    tensors.
    """

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: ReduceOp,
        factors: _Factors,
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.arguments = op, factors, process_set
        return tuple(_reduce_group(tensors, name, op, factors, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        op, factors, process_set = ctx.arguments
        _check_differentiable(op)
        dense = [gradient.contiguous() for gradient in gradients]
        reduced = _differentiable_group(dense, None, op, factors, process_set)
        return None, None, None, None, *reduced


def _differentiable_group(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: ReduceOp,
    factors: _Factors,
    process_set: ProcessSet,
) -> Sequence[torch.Tensor]:
    if _needs_gradient(tensors):
        reduced: tuple[torch.Tensor, ...] = _GroupedAllreduce.apply(
            name, op, factors, process_set, *tensors
        )
        return reduced
    return _reduce_group(tensors, name, op, factors, process_set)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Like allreduce(), for several tensors. Either all tensors are reduced, or none."""
    factors, set_id = (prescale_factor, postscale_factor), id_of(process_set)
    with told_group("grouped_allreduce", name, tensors, set_id) as (name, members):
        op = reduce_op(op, average)
        pairs = [compression.compress(tensor) for tensor in members]
    short = [tensor for tensor, _ in pairs]
    reduced = _differentiable_group(short, name, op, factors, process_set)
    return [compression.decompress(each, context) for each, (_, context) in zip(reduced, pairs)]


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Like grouped_allreduce(), but in place and not differentiable."""
    handle = grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set
    )
    return list(synchronize(handle))


def _gather(
    tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet
) -> list[torch.Tensor]:
    """Gathers without autograd. Gathers several tensors as a group."""
    if len(tensors) == 1:
        return [synchronize(allgather_async(tensors[0], name, process_set))]
    return list(synchronize(grouped_allgather_async(tensors, name, process_set)))


class _Allgather(torch.autograd.Function):
    """An allgather for autograd. The gradient of a rank's rows is the mean of the ranks'
    gradients.
    """

    @staticmethod
    def forward(
        ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        gathered = tuple(_gather(tensors, name, process_set))
        ctx.process_set, ctx.rows = process_set, [len(tensor) for tensor in tensors]
        return gathered

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        process_set = ctx.process_set
        means = grouped_allreduce(
            [gradient.contiguous() for gradient in gradients], op=Average, process_set=process_set
        )
        rows = allgather(torch.tensor([ctx.rows]), process_set=process_set)
        first = rows[: process_set.rank()].sum(dim=0).tolist()
        return None, None, *(m.narrow(0, at, n) for m, at, n in zip(means, first, ctx.rows))


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Concatenates the ranks' tensors along the first dimension. Differentiable.

    Args:
        tensor: contiguous; only its first dimension may differ between ranks.
        name: the same on every rank; tensors without a name are matched by order.
        process_set: the ranks that take part.
    """
    if _needs_gradient([tensor]):
        gathered: torch.Tensor = _Allgather.apply(name, process_set, tensor)[0]
        return gathered
    return _gather([tensor], name, process_set)[0]


def grouped_allgather(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Like allgather(), for several tensors as a group."""
    with told_group("grouped_allgather", name, tensors, id_of(process_set)) as (name, members):
        pass
    if len(members) == 1:
        name = f"{name}.0"  # the name of the only member, which is gathered without a group
    if _needs_gradient(members):
        return list(_Allgather.apply(name, process_set, *members))
    return _gather(members, name, process_set)


def _send(
    tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
) -> torch.Tensor:
    """broadcast() without autograd."""
    received: torch.Tensor = synchronize(broadcast_async(tensor, root_rank, name, process_set))
    return received


class _Broadcast(torch.autograd.Function):
    """A broadcast for autograd. The root's gradient is the mean over the ranks, and the other
    ranks' gradients are zero.
    """

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return _send(tensor, root_rank, name, process_set)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        mean = allreduce(gradients[0].contiguous(), op=Average, process_set=ctx.process_set)
        if rank() != ctx.root_rank:
            # Zeros that depend on the mean, so that this rank takes part in the mean's gradient.
            mean = mean.masked_fill(torch.ones_like(mean, dtype=torch.bool), 0)
        return mean, None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Returns the root's tensor on every rank. Differentiable.

    Args:
        tensor: contiguous, of the same shape and dtype on every rank.
        root_rank: the root's rank in the job, even if `process_set` is given.
        name: the same on every rank; tensors without a name are matched by order.
        process_set: the ranks that take part.
    """
    if _needs_gradient([tensor]):
        received: torch.Tensor = _Broadcast.apply(tensor, root_rank, name, process_set)
        return received
    return _send(tensor, root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Like broadcast(), but in place and not differentiable."""
    synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return tensor


class _Alltoall(torch.autograd.Function):
    """An alltoall for autograd. A row's gradient comes from the rank that received the row."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        splits: torch.Tensor | Sequence[int] | None,
        name: str | None,
        process_set: ProcessSet,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output, received = synchronize(alltoall_async(tensor, splits, name, process_set))
        ctx.process_set, ctx.received, ctx.rows = process_set, received, len(tensor)
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        back, _ = alltoall(gradients[0].contiguous(), ctx.received, process_set=ctx.process_set)
        unsent = back.new_zeros((ctx.rows - len(back), *back.shape[1:]))
        return torch.cat([back, unsent]) if len(unsent) else back, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows of the first dimension to every member, and receives the members' rows.
    Differentiable.

    Args:
        tensor: contiguous; only its first dimension may differ between ranks.
        splits: the number of rows for each member. None means that all members get the same number.
        name: the same on every rank; tensors without a name are matched by order.
        process_set: the ranks that take part.

    Returns:
        The received rows. With `splits`, also returns the number of rows from each member.
    """
    if _needs_gradient([tensor]):
        output, received = _Alltoall.apply(tensor, splits, name, process_set)
    else:
        output, received = synchronize(alltoall_async(tensor, splits, name, process_set))
    return output if splits is None else (output, received)


def _size_of(process_set: ProcessSet) -> int:
    return native.process_set_size(id_of(process_set))


def _scatter(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: ReduceOp,
    factors: _Factors,
    process_set: ProcessSet,
) -> list[torch.Tensor]:
    """Reduces and scatters without autograd. Several tensors are reduced as a group."""
    if len(tensors) == 1:
        return [synchronize(reducescatter_async(tensors[0], name, op, process_set, *factors))]
    return list(synchronize(grouped_reducescatter_async(tensors, name, op, process_set, *factors)))


class _Reducescatter(torch.autograd.Function):
    """A reducescatter for autograd. The gradient is the concatenation of the ranks' gradients; for
    a sum it is multiplied by the number of ranks.
    """

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: ReduceOp,
        factors: _Factors,
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        parts = tuple(_scatter(tensors, name, op, factors, process_set))
        ctx.op, ctx.process_set = op, process_set
        ctx.factor = factors[0] * factors[1] * (_size_of(process_set) if op == Sum else 1)
        return parts

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        _check_differentiable(ctx.op)
        scaled = [(gradient * ctx.factor).contiguous() for gradient in gradients]
        return None, None, None, None, *grouped_allgather(scaled, process_set=ctx.process_set)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Like reducescatter(), for several tensors as a group."""
    with told_group("grouped_reducescatter", name, tensors, id_of(process_set)) as (name, members):
        pairs = [compression.compress(tensor) for tensor in members]
    if len(members) == 1:
        name = f"{name}.0"  # the name of the only member, which is reduced without a group
    short = [tensor for tensor, _ in pairs]
    factors = (prescale_factor, postscale_factor)
    if _needs_gradient(short):
        parts = _Reducescatter.apply(name, op, factors, process_set, *short)
    else:
        parts = _scatter(short, name, op, factors, process_set)
    return [compression.decompress(part, context) for part, (_, context) in zip(parts, pairs)]


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces a tensor. Every member gets some rows of the result. Differentiable.

    Args:
        tensor: contiguous, with at least one dimension, of the same shape and dtype on every rank.
        name: the same on every rank; tensors without a name are matched by order.
        compression: casts the tensor before the reduction, and back afterwards.
        op: Average, Sum, Min, Max or Product; the first two are differentiable.
        process_set: the ranks that take part.
        prescale_factor: multiplies the tensor before the reduction; not 0.
        postscale_factor: multiplies the result; not 0.
    """
    with Told(id_of(process_set), name):
        short, context = compression.compress(tensor)
    factors = (prescale_factor, postscale_factor)
    if _needs_gradient([short]):
        part = _Reducescatter.apply(name, op, factors, process_set, short)[0]
    else:
        part = _scatter([short], name, op, factors, process_set)[0]
    return compression.decompress(part, context)
