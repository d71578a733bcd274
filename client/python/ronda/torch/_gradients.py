"""Reduces the gradients of a model while backward computes them.

The first step submits each gradient by itself and notes the order in which they become ready. From
the second step on the dense ones are a prepared group in that order: a hook then only tells the
group where the gradient is in this step, since zero_grad() frees gradients. The other ranks need
not do the same: tensors meet by name.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ronda._library import native
from ronda.errors import RondaError
from ronda.process_sets import ProcessSet, id_of
from ronda.torch import _basics, _tensors
from ronda.torch._async_operations import allreduce_async_
from ronda.torch._handles import Handle
from ronda.torch._sparse import sparse_allreduce_async
from ronda.torch.compression import Compressor, wire_of
from ronda.types import ReduceOp, Wire

_HAS_POST_ACCUMULATE_HOOKS = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")
_EIGHT_BITS = (Wire.FP8_E4M3, Wire.FP8_E5M2)
_SIXTEEN_BITS = (torch.float16, torch.bfloat16)
_NO_PLACE = -1


@dataclass(frozen=True)
class Reduction:
    """How gradients are reduced."""

    op: ReduceOp
    prescale: float
    postscale: float
    compression: type[Compressor]
    process_set: ProcessSet

    def wire(self, dtype: torch.dtype) -> Wire:
        """The format in which a gradient of `dtype` travels."""
        wire = wire_of(self.compression) or Wire.NONE
        if not dtype.is_floating_point or (wire not in _EIGHT_BITS and dtype in _SIXTEEN_BITS):
            return Wire.NONE
        return wire


class _Gradient:
    """What is known of a parameter's gradient, in this step and before."""

    __slots__ = (
        "announced", "bundle", "finish", "group", "handle", "name", "parameter", "passes_left",
        "place", "strides", "value",
    )  # fmt: skip

    def __init__(self, parameter: torch.Tensor, name: str, passes: int) -> None:
        self.parameter = parameter
        self.name = name
        # The order of elements in memory on which all ranks agree: that of the parameter.
        self.strides = torch.empty_like(parameter).stride()
        self.bundle: _Bundle | None = None  # gradients that travel together
        self.group = 0  # the prepared group, if `place` says that the gradient is in it
        self.place = _NO_PLACE
        self.begin_step(passes)

    def begin_step(self, passes: int) -> None:
        self.passes_left = passes
        self.announced = False
        self.value: torch.Tensor | None = None  # what travels; holds the memory
        self.handle: Handle | None = None  # if it travels outside of the group
        self.finish: Callable[[Any], None] | None = None  # takes the result, if not in place
        if self.bundle is not None:
            self.bundle.missing = len(self.bundle.members)

    def fits(self, value: torch.Tensor) -> bool:
        """Whether the memory of `value`, a dense tensor, can be reduced as it is."""
        if value.stride() == self.strides:
            return True
        return value.is_contiguous() and self.parameter.is_contiguous()

    def dense(self, value: torch.Tensor) -> torch.Tensor:
        """`value`, or a copy with the agreed order, which is copied back afterwards."""
        if value.layout is not torch.strided:
            return self._dense_of_sparse(value)
        if self.fits(value):
            return value
        copy = torch.empty_like(self.parameter).copy_(value)

        def copy_back(_: Any) -> None:
            value.copy_(copy)

        self.finish = copy_back
        return copy

    def _dense_of_sparse(self, value: torch.Tensor) -> torch.Tensor:
        copy = torch.empty_like(self.parameter).copy_(value.to_dense())
        dims = value.sparse_dim()

        def write_back(_: Any) -> None:
            self.parameter.grad = copy.to_sparse(dims)

        self.finish = write_back
        return copy


class _Bundle:
    """Gradients that travel together, when the last of them is ready."""

    def __init__(self, members: Sequence[_Gradient]) -> None:
        self.members = members
        self.name = members[0].name
        self.missing = len(members)  # that have not been announced in this step
        for member in members:
            member.bundle = self


class GradientReducer:
    """Reduces gradients in every step: hooks announce them, and synchronize() waits.

    Hooks may run on any thread, one after the other; the rest is called by the trainer's thread.
    """

    def __init__(
        self,
        names: dict[torch.Tensor, str],
        reduction: Reduction,
        passes: int,
        groups: int | Sequence[Sequence[torch.Tensor]] | None,
        sparse_as_dense: bool,
    ) -> None:
        """Installs the hooks.

        Args:
            names: of the parameters, in the same order on every rank.
            reduction: of all gradients.
            passes: backward passes in a step.
            groups: see DistributedOptimizer.
            sparse_as_dense: see DistributedOptimizer.
        """
        self._reduction = reduction
        self._process_set = id_of(reduction.process_set)
        self._passes = passes
        self._sparse_as_dense = sparse_as_dense
        self._is_custom = wire_of(reduction.compression) is None
        self._gradients: list[_Gradient] = []
        self._order: list[_Gradient] = []  # of the first step
        self._group = 0
        # What holds the hooks, and the group; given back with this object.
        self._hooks: list[Any] = []
        self._groups: list[int] = []
        weakref.finalize(self, _give_back, self._hooks, self._groups).atexit = False
        _reducers.add(self)
        self.add(names)
        if groups is not None:
            self._make_bundles(groups)

    def add(self, names: dict[torch.Tensor, str]) -> None:
        """Takes more parameters; between steps."""
        self._drop_group()
        for parameter, name in names.items():
            if parameter.requires_grad:
                gradient = _Gradient(parameter, name, self._passes)
                self._gradients.append(gradient)
                self._install_hook(gradient)

    def set_passes(self, passes: int) -> None:
        """Sets the number of backward passes in a step; between steps."""
        self._passes = passes
        for gradient in self._gradients:
            gradient.passes_left = passes

    def is_pending(self) -> bool:
        """Whether a gradient has been computed since the last synchronize()."""
        passes = self._passes
        return any(each.announced or each.passes_left < passes for each in self._gradients)

    def synchronize(self) -> None:
        """Submits what backward has not computed, waits for all, and begins the next step.

        Raises:
            RondaError: a submission or an operation failed; the next step begins all the same.
        """
        try:
            for gradient in self._gradients:
                if not gradient.announced:
                    self._announce(gradient)
            self._wait()
        except Exception:
            self.abandon()
            raise
        if self._order:
            self._prepare()
        for gradient in self._gradients:
            gradient.begin_step(self._passes)

    def abandon(self) -> None:
        """Begins a new step. Waits for what is in flight, and drops it."""
        for gradient in self._gradients:
            if gradient.handle is not None:
                with contextlib.suppress(RondaError):
                    gradient.handle.wait()
        self._drop_group()
        for gradient in self._gradients:
            gradient.begin_step(self._passes)

    def _make_bundles(self, groups: int | Sequence[Sequence[torch.Tensor]]) -> None:
        if isinstance(groups, int):
            total, count = len(self._gradients), min(groups, len(self._gradients))
            cuts = [i * total // count for i in range(count + 1)]
            bundles = [self._gradients[a:b] for a, b in zip(cuts, cuts[1:])]
        else:
            by_id = {id(each.parameter): each for each in self._gradients}
            bundles = [[by_id[id(p)] for p in group if id(p) in by_id] for group in groups]
        for members in bundles:
            if members:
                _Bundle(members)

    def _install_hook(self, gradient: _Gradient) -> None:
        parameter, hook = gradient.parameter, _make_hook(gradient, weakref.ref(self))
        if _HAS_POST_ACCUMULATE_HOOKS:
            register: Any = getattr(parameter, "register_post_accumulate_grad_hook")  # noqa: B009
            self._hooks.append(register(hook))
            return
        # The node that adds to the gradient lives as long as somebody holds it.
        function: Any = parameter.expand_as(parameter).grad_fn
        node = function.next_functions[0][0]
        self._hooks += [node, node.register_hook(hook)]

    def _announce(self, gradient: _Gradient) -> None:
        """Submits a gradient, as it is, in whichever way serves it."""
        parameter = gradient.parameter
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        value = parameter.grad
        gradient.announced = True
        if gradient.bundle is not None:
            gradient.value = gradient.dense(value)
            gradient.bundle.missing -= 1
            if gradient.bundle.missing == 0:
                self._submit_bundle(gradient.bundle)
        elif gradient.place != _NO_PLACE:
            gradient.value = gradient.dense(value)
            native.group_ready_at(gradient.group, gradient.place, gradient.value.data_ptr(), _tensors.stream(gradient.value) or 0)
        elif value.is_sparse and not self._sparse_as_dense:
            self._submit_sparse(gradient, value)
        elif self._is_custom:
            self._submit_compressed(gradient, value)
        else:
            gradient.value = gradient.dense(value)
            row = self._row(gradient)
            gradient.handle = Handle([native.allreduce_async(*row)], row[-1], lambda _: None)
            if self._group == 0 and not value.is_sparse:
                self._order.append(gradient)

    def _row(self, gradient: _Gradient, keep: bool = True) -> tuple[Any, ...]:
        """The arguments of native.allreduce_async for the gradient's value."""
        value, reduction = gradient.value, self._reduction
        assert value is not None
        address, wire = value.data_ptr(), reduction.wire(value.dtype)
        return (
            gradient.name,
            _tensors.dtype_number(value),
            tuple(value.shape),
            address,
            address,
            value if keep else None,
            int(reduction.op),
            int(wire),
            reduction.prescale,
            reduction.postscale,
            self._process_set,
            wire in _EIGHT_BITS,
            False,
            0.0,
            _tensors.stream(value),
        )

    def _submit_bundle(self, bundle: _Bundle) -> None:
        rows = [self._row(member) for member in bundle.members]
        ids = native.grouped_allreduce_async(rows, bundle.name)
        for member, id, row in zip(bundle.members, ids, rows):
            member.handle = Handle([id], row[-1], lambda _: None)

    def _submit_sparse(self, gradient: _Gradient, value: torch.Tensor) -> None:
        reduction = self._reduction

        def take(result: torch.Tensor) -> None:
            gradient.parameter.grad = result

        gradient.finish = take
        gradient.handle = sparse_allreduce_async(
            value, gradient.name, reduction.op, reduction.process_set
        )

    def _submit_compressed(self, gradient: _Gradient, value: torch.Tensor) -> None:
        """By way of the program's own compressor."""
        reduction = self._reduction
        short, context = reduction.compression.compress(gradient.dense(value).contiguous())
        write_back = gradient.finish
        data = value if write_back is None else None

        def take(result: torch.Tensor) -> None:
            long = reduction.compression.decompress(result, context)
            if data is not None:
                data.copy_(long)
            elif write_back is not None:
                write_back(long)

        gradient.finish = take
        gradient.handle = allreduce_async_(
            short,
            None,
            gradient.name,
            reduction.op,
            reduction.prescale,
            reduction.postscale,
            reduction.process_set,
        )

    def _wait(self) -> None:
        if self._group != 0:
            stream = self._stream()
            if stream is None:
                native.group_wait(self._group)
            else:
                native.group_wait_on_stream(self._group, stream)
        for gradient in self._gradients:
            result = gradient.handle.wait() if gradient.handle is not None else None
            if gradient.finish is not None:
                gradient.finish(result)

    def _stream(self) -> int | None:
        """The stream that waits: the current one of the GPU, if there is one."""
        for gradient in self._gradients:
            if gradient.parameter.is_cuda:
                return _tensors.stream(gradient.parameter)
        return None

    def _prepare(self) -> None:
        """Makes the group of the gradients that were dense in this step, in their order."""
        rows = [self._row(gradient, keep=False) for gradient in self._order]
        self._group = native.prepare_group(rows, "gradients")
        self._groups.append(self._group)
        for place, gradient in enumerate(self._order):
            gradient.group, gradient.place = self._group, place
        self._order.clear()

    def _drop_group(self) -> None:
        """The next step is as the first one."""
        self._order.clear()
        self._group = 0
        for gradient in self._gradients:
            gradient.group, gradient.place = 0, _NO_PLACE
        _give_back([], self._groups)


def _make_hook(gradient: _Gradient, reducer: weakref.ref[GradientReducer]) -> Callable[..., None]:
    """Called whenever backward has added to the gradient. Few look-ups: it is called often."""
    parameter, strided, group_ready_at = gradient.parameter, torch.strided, native.group_ready_at
    is_contiguous = parameter.is_contiguous()

    def hook(*_: Any) -> None:
        if gradient.announced:
            raise AssertionError(_TOO_OFTEN % gradient.name)
        gradient.passes_left -= 1
        if gradient.passes_left > 0:
            return
        value: Any = parameter.grad
        place = gradient.place
        if place >= 0 and is_contiguous and value.layout is strided and value.is_contiguous():
            gradient.announced = True
            gradient.value = value
            group_ready_at(gradient.group, place, value.data_ptr())
            return
        owner = reducer()
        if owner is not None:
            owner._announce(gradient)

    return hook


def _give_back(hooks: list[Any], groups: list[int]) -> None:
    for hook in hooks:
        if hasattr(hook, "remove"):
            hook.remove()
    hooks.clear()
    while groups:
        native.group_release(groups.pop())


def _abandon_all() -> None:
    """Groups are of one job."""
    for reducer in list(_reducers):
        reducer.abandon()


_TOO_OFTEN = (
    "the gradient of '%s' was computed more than backward_passes_per_step times before step() or"
    " synchronize(): raise backward_passes_per_step to add gradients up locally"
)
_reducers: weakref.WeakSet[GradientReducer] = weakref.WeakSet()
_basics.at_shutdown(_abandon_all)
