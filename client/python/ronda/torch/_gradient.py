# SPDX-License-Identifier: Apache-2.0

"""The class Gradient, which describes a parameter's gradient and how it is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ronda import _groups, _rows
from ronda._library import native
from ronda.process_sets import ProcessSet
from ronda.torch import _tensors
from ronda.torch._handles import Handle
from ronda.torch.compression import Compressor, wire_of
from ronda.types import ReduceOp, Wire

NO_PLACE = -1
_EIGHT_BITS = (Wire.FP8_E4M3, Wire.FP8_E5M2)
_SIXTEEN_BITS = (torch.float16, torch.bfloat16)

# The kind of a gradient on a rank. The kind of a sparse gradient is DENSE plus the number of sparse
# dimensions.
NOTHING = 0
DENSE = 1

SHAPE_IN_MEMORY = (
    "a gradient that is not row-major (channels_last) has the shape that it has in memory, behind"
    " a 1: give the model the same memory format on every rank"
)


@dataclass(frozen=True)
class Reduction:
    """The options for reducing gradients."""

    op: ReduceOp
    prescale: float
    postscale: float
    compression: type[Compressor]
    process_set: ProcessSet

    def wire(self, dtype: torch.dtype) -> Wire:
        """Returns the format in which a gradient of `dtype` is sent."""
        wire = wire_of(self.compression) or Wire.NONE
        if not dtype.is_floating_point or (wire not in _EIGHT_BITS and dtype in _SIXTEEN_BITS):
            return Wire.NONE
        return wire


def kind_of(value: torch.Tensor | None) -> int:
    """Returns NOTHING, DENSE, or a larger number for a sparse gradient."""
    if value is None:
        return NOTHING
    return DENSE + value.sparse_dim() if value.is_sparse else DENSE


def _channels_last(dims: int) -> tuple[int, ...]:
    """Returns the order of the dimensions in channels-last memory, or in a transposed matrix."""
    return (0, *range(2, dims), 1) if dims > 2 else tuple(reversed(range(dims)))


def handle_of(id: int, stream: int | None) -> Handle:
    """Returns a handle for a gradient that is reduced in place on `stream`."""
    return Handle([id], stream, lambda _: None)


class Gradient:
    """A parameter's gradient: how it is sent, and its state in the current step."""

    __slots__ = (
        "__weakref__", "address", "announced", "bundle", "dtype", "finish", "group", "handle",
        "is_new", "is_row_major", "is_watched", "is_whole", "kind", "name", "parameter",
        "passes_left", "place", "room", "sends_copy", "sent", "shape", "sparse_dims", "stream",
        "strides", "travels_as", "value", "version",
    )  # fmt: skip

    def __init__(self, parameter: torch.Tensor, name: str, passes: int) -> None:
        self.parameter = parameter
        self.name = name
        self.bundle: Bundle | None = None  # gradients that are reduced together
        self.group = 0  # the prepared group, if `place` says that the gradient is in one
        self.place = NO_PLACE
        self.sparse_dims = 1  # of sparse gradients; gradients of an embedding have one
        self.is_watched = False  # autograd sets is_new
        self.look_at_parameter()
        self.begin_step(passes)

    def look_at_parameter(self) -> None:
        """Records the parameter's shape, dtype and memory layout, in which the gradient is sent.

        If the ranks' gradients have different layouts, elements at the same position in memory must
        not be added. A gradient in channels-last order is therefore sent with its shape in memory,
        after an additional first dimension of 1. No row-major gradient of the parameter has that
        shape. Gradients in any other order are copied to row-major order, because the shape does
        not tell all orders apart.
        """
        like = torch.empty_like(self.parameter)
        order = _channels_last(like.dim())
        self.is_row_major = like.is_contiguous() or not like.permute(order).is_contiguous()
        if self.is_row_major:
            like = like.contiguous()
        self.dtype, self.shape, self.strides = like.dtype, like.shape, like.stride()
        self.room: torch.Tensor | None = None  # where NCCL reduces the gradient without a copy
        self.travels_as = tuple(like.shape)
        if not self.is_row_major:
            self.travels_as = (1, *(like.shape[each] for each in order))

    def begin_step(self, passes: int) -> None:
        """Resets the values that belong to the last step."""
        self.passes_left = passes
        self.announced = False
        self.is_new = False  # backward has made the tensor parameter.grad in this step
        self.is_whole = False
        self.kind = DENSE  # of the announced gradient
        self.value: torch.Tensor | None = None  # parameter.grad, as it was announced
        self.version = 0  # of the value
        self.address = 0
        self.sent: torch.Tensor | None = None  # the tensor that is sent: the value, or a copy
        self.sends_copy = False  # because other tensors may use the memory of the gradient
        self.stream: int | None = None  # on a GPU: its work fills the tensor
        self.handle: Handle | None = None  # if the gradient is sent outside the group
        self.finish: Callable[[Any], None] | None = None  # for a result that is not in place
        if self.bundle is not None:
            self.bundle.begin_step()

    def note_value(self) -> None:
        """Records the gradient, so that is_changed() notices later changes."""
        self.value = value = self.parameter.grad
        if value is not None:
            self.version = value._version
            self.address = value.data_ptr() if value.layout is torch.strided else 0

    def is_changed(self) -> bool:
        """Returns whether the program has changed the gradient, its memory or its elements."""
        value = self.value
        if value is None:
            return False
        if self.parameter.grad is not value or value._version != self.version:
            return True
        return value.layout is torch.strided and value.data_ptr() != self.address

    def is_submitted(self) -> bool:
        """Returns whether the gradient has been submitted, or will be submitted with its group."""
        if self.bundle is None or self.bundle.missing == 0:
            return self.announced
        return self.handle is not None or self.is_whole  # sparse gradients are reduced alone

    def has_agreed_form(self, value: torch.Tensor) -> bool:
        """Returns whether a dense tensor has the recorded shape, dtype and memory layout."""
        if value.dtype is not self.dtype or value.shape != self.shape:
            return False
        return value.is_contiguous() if self.is_row_major else value.stride() == self.strides

    def in_room(self, value: torch.Tensor) -> torch.Tensor:
        """Returns a gradient in the agreed form, in the gradient's room if backward has made it.

        zero_grad() drops the tensor in the room by default. This function then copies the next
        gradient, which backward has made elsewhere, and makes the copy the parameter's gradient. It
        does not move a tensor to which backward has only added, because the program may own it.
        """
        room = self.room
        if room is None or not self.is_new or value.requires_grad:
            return value
        with torch.no_grad():
            self.parameter.grad = room.copy_(value)
        return room

    def make_value(self, kind: int) -> None:
        """Creates a gradient of zeros for a rank without a gradient. `kind` is the kind on the
        other ranks.
        """
        parameter = self.parameter
        if kind == DENSE:
            parameter.grad = torch.zeros_like(parameter)
            return
        dims = kind - DENSE
        indices = torch.zeros((dims, 0), dtype=torch.int64, device=parameter.device)
        values = parameter.new_zeros((0, *parameter.shape[dims:]))
        parameter.grad = torch.sparse_coo_tensor(indices, values, parameter.shape)

    def usual_sparse(self, value: torch.Tensor) -> torch.Tensor:
        """Returns a sparse gradient. A gradient without elements gets the usual number of sparse
        dimensions, because in PyTorch 1.13 zero_grad() removes all elements and makes all
        dimensions sparse.
        """
        if value._nnz() > 0:
            self.sparse_dims = value.sparse_dim()
        elif value.sparse_dim() != self.sparse_dims:
            self.make_value(DENSE + self.sparse_dims)
            assert self.parameter.grad is not None
            return self.parameter.grad
        return value

    def dense(self, value: torch.Tensor) -> torch.Tensor:
        """Returns `value`, or a dense copy in the agreed layout, which is copied back later."""
        if value.layout is not torch.strided:
            return self._dense_of_sparse(value)
        if self.has_agreed_form(value) and not self.sends_copy:
            return value
        copy = self._empty().copy_(value)

        def copy_back(_: Any) -> None:
            value.copy_(copy)

        self.finish = copy_back
        return copy

    def _empty(self) -> torch.Tensor:
        """Returns a new tensor in the agreed shape, dtype and layout."""
        device = self.parameter.device
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device)

    def _dense_of_sparse(self, value: torch.Tensor) -> torch.Tensor:
        copy = self._empty().copy_(value.to_dense())
        dims = value.sparse_dim()

        def write_back(_: Any) -> None:
            self.parameter.grad = copy.to_sparse(dims)

        self.finish = write_back
        return copy

    def send(self, sent: torch.Tensor) -> None:
        """Records the tensor to send, which the current stream computes."""
        self.sent, self.stream = sent, _tensors.stream(sent)

    def row(self, reduction: Reduction, process_set: int, is_kept: bool = True) -> _rows.Allreduce:
        """Returns the arguments of native.allreduce_async for the tensor that is sent."""
        sent = self.sent
        assert sent is not None
        address, wire = sent.data_ptr(), reduction.wire(sent.dtype)
        return _rows.allreduce(
            name=self.name,
            dtype=_tensors.dtype_number(sent),
            shape=self.travels_as,
            input=address,
            output=address,
            keep=_tensors.storage(sent) if is_kept else None,
            op=int(reduction.op),
            compression=int(wire),
            prescale=reduction.prescale,
            postscale=reduction.postscale,
            process_set=process_set,
            error_feedback=wire in _EIGHT_BITS,
            stream=self.stream,
        )


class Bundle:
    """Gradients that are reduced together, as soon as the last of them is ready."""

    def __init__(self, members: Sequence[Gradient]) -> None:
        self.members = members
        # Differs from the name of a sparse member, which is also the name of a native group.
        self.name = f"group of {members[0].name}"
        for member in members:
            member.bundle = self
        self.begin_step()

    def begin_step(self) -> None:
        """Starts a step, in which no member has been announced yet."""
        self.missing = len(self.members)

    def count_down(self, reduction: Reduction, process_set: int) -> None:
        """Counts a member that is ready, that is reduced alone, or that no rank has. After the last
        member, submits the members that are ready.
        """
        self.missing -= 1
        if self.missing > 0:
            return
        members = [each for each in self.members if each.sent is not None]
        if not members:
            return
        rows = [each.row(reduction, process_set) for each in members]
        ids = native.grouped_allreduce_async(rows, self.name)
        for member, id in zip(members, ids):
            member.handle = handle_of(id, member.stream)


def make_bundles(
    gradients: Sequence[Gradient], groups: int | Sequence[Sequence[torch.Tensor]]
) -> None:
    """Divides gradients into bundles: one for each list of parameters, or the given number of
    bundles of about equal length.
    """
    if isinstance(groups, int):
        parts = _groups.divide(len(gradients), groups)
        bundles = [[gradients[i] for i in part] for part in parts]
    else:
        by_id = {id(each.parameter): each for each in gradients}
        bundles = [[by_id[id(p)] for p in group if id(p) in by_id] for group in groups]
    for members in bundles:
        if members:
            Bundle(members)
