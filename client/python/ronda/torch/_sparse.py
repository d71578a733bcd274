# SPDX-License-Identifier: Apache-2.0

"""Adds sparse tensors by gathering their values and row numbers."""

from __future__ import annotations

import torch

from ronda._library import native
from ronda._refusals import Told
from ronda.process_sets import ProcessSet, global_process_set, id_of
from ronda.torch import _basics, _tensors
from ronda.torch._async_operations import counted_name, gathered
from ronda.torch._basics import Average
from ronda.torch._handles import Handle
from ronda.types import ReduceOp


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str | None,
    op: ReduceOp,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Starts to add sparse tensors. Every rank gets the values of all ranks.

    Args:
        tensor: must have the layout torch.sparse_coo, with the same shape and the same sparse
            dimensions on every rank. A rank with nothing to add passes a tensor without values.
        name: the same on every rank.
        op: Sum, which is also exact for integers, or Average of floating-point numbers.
        process_set: the ranks that take part.

    Returns:
        A handle. The result, which the program can also get by calling the handle, is a new sparse
        tensor that is not coalesced.

    Raises:
        ValueError: the tensor is not of this layout, or the operation is neither Sum nor Average.
    """
    set_id = id_of(process_set)
    name = counted_name("sparse_allreduce", name, set_id)
    with Told(set_id, name), Told(set_id, f"{name}/indices"):
        _check_sparse(tensor, op)
        sparse_shape = tensor.shape[: tensor.sparse_dim()]
        _tensors.wait_for_users_of(reads=[tensor])
        values = _tensors.plain(tensor._values()).contiguous()
        rows = _row_numbers(tensor._indices(), sparse_shape)
        stream = _tensors.stream(values)
        # For values in host memory, Ronda's core computes the average; for values on a GPU, this
        # function must divide.
        divides = op == Average and stream is not None
        handles = native.sparse_allreduce_async(
            name,
            _tensors.check(values),
            tuple(values.shape),
            values.data_ptr(),
            rows.data_ptr(),
            (values, rows),
            int(_basics.Sum if divides else op),
            set_id,
            0.0,
            stream,
        )

    def finish(ids: list[int]) -> torch.Tensor:
        all_rows, all_values = gathered(ids[0], rows), gathered(ids[1], values)
        if divides:
            all_values /= native.averaged_over(ids[1])
        indices = _indices(all_rows, sparse_shape)
        return torch.sparse_coo_tensor(indices, all_values, tensor.shape)

    return Handle(list(handles), stream, finish)


def _check_sparse(tensor: torch.Tensor, op: ReduceOp) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        what = (
            _tensors.describe(tensor)
            if isinstance(tensor, torch.Tensor)
            else f"{tensor!r:.80}, a {type(tensor).__name__}"
        )
        raise ValueError(f"sparse_allreduce_async() takes tensors of torch.sparse_coo, not {what}")
    if op not in (_basics.Sum, Average):
        raise ValueError(
            f"sparse_allreduce_async() adds up, and has no {ReduceOp(op).name}: use to_dense()"
        )
    if op == Average and not tensor.dtype.is_floating_point:
        raise ValueError(
            f"{_tensors.describe(tensor)}: an average of sparse tensors is of floating-point"
            " numbers: use op=Sum, and divide the coalesced result"
        )


def _row_numbers(indices: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Returns the row-major number of each column of `indices`, of shape (dimensions, columns)."""
    rows = torch.zeros(indices.shape[1], dtype=torch.int64, device=indices.device)
    for index, size in zip(indices, shape):
        rows.mul_(size).add_(index)
    return rows


def _indices(rows: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Returns the indices for the row numbers that _row_numbers() has returned."""
    indices = rows.new_empty((len(shape), len(rows)))
    for dimension in reversed(range(len(shape))):
        indices[dimension] = rows % shape[dimension]
        rows = torch.div(rows, shape[dimension], rounding_mode="floor")
    return indices
