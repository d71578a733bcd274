# SPDX-License-Identifier: Apache-2.0

"""Reduces the gradients of a model while backward computes them.

In the first step each gradient is submitted separately, and the order in which they become ready is
recorded. In later steps the dense gradients form a prepared group in that order. A hook then only
passes the gradient's address, which changes from step to step because zero_grad() frees gradients.
The other ranks need not use a prepared group, because tensors are matched by name.

When backward() returns, its gradients are reduced. At the end of backward an autograd callback
waits for the gradients that all ranks have submitted (_report.py explains how a rank knows which
these are). Gradients that some rank lacks wait for synchronize(): no rank computes gradients then,
so a rank that lacks one submits zeros, and a gradient that no rank has stays None.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ronda import _groups, _horovod
from ronda._library import native
from ronda.errors import MismatchError, RondaError
from ronda.process_sets import id_of, is_active
from ronda.torch import _changes, _memory, _tensors
from ronda.torch._async_operations import allreduce_async_
from ronda.torch._gradient import (
    DENSE,
    NO_PLACE,
    NOTHING,
    SHAPE_IN_MEMORY,
    Gradient,
    Reduction,
    handle_of,
    kind_of,
    make_bundles,
)
from ronda.torch._hooks import (
    HAS_POST_ACCUMULATE_HOOKS,
    Backward,
    install_hook,
    remove_hooks,
)
from ronda.torch._report import REDUCTION, Exchange, Report
from ronda.torch._sparse import sparse_allreduce_async
from ronda.torch.compression import wire_of


class GradientReducer:
    """Reduces gradients in every step: hooks announce gradients, and synchronize() ends the step.

    Hooks may run on any thread, one after the other; the program's thread calls all other methods.
    If the process set has one member, or does not contain this rank, no gradient is reduced. In an
    elastic job the reducer checks the set again in each epoch.
    """

    def __init__(
        self,
        names: dict[torch.Tensor, str],
        reduction: Reduction,
        passes: int,
        groups: _groups.Groups,
        sparse_as_dense: bool,
    ) -> None:
        """Installs the hooks.

        Args:
            names: names of the parameters, including frozen ones; the same on every rank.
            reduction: how all gradients are reduced.
            passes: backward passes per step.
            groups: see DistributedOptimizer.
            sparse_as_dense: see DistributedOptimizer.
        """
        self._reduction = reduction
        self._passes = passes
        self._sparse_as_dense = sparse_as_dense
        self._is_custom = wire_of(reduction.compression) is None
        self._process_set: int | None = None  # None: not known in this epoch
        self._is_active = False
        self._gradients: list[Gradient] = []  # by name
        self._order: list[Gradient] = []  # the order of the submissions, in a step without a group
        self._members: list[Gradient] = []  # of the group
        self._group = 0
        self._rooms = _memory.Rooms()
        self._is_detached = False  # the group is not used any more in this step
        self._must_drop = False  # the group is also not used in the next step
        self._is_whole = False  # all gradients of this step are reduced
        self._failure: Exception | None = None  # raised when all are reduced
        self._backward = Backward(weakref.ref(self))
        # When this object is destroyed, _give_back() releases these:
        self._hooks: dict[int, list[Any]] = {}
        self._groups: list[int] = []
        self._exchanges: list[Exchange] = []
        resources = (self._hooks, self._groups, self._exchanges)
        weakref.finalize(self, _give_back, *resources).atexit = False
        _reducers.add(self)
        self._has_lost_hooks = False
        self.add(names)
        if groups is not None and not self._is_custom:
            make_bundles(self._gradients, groups)

    # -- Parameters --

    def add(self, names: dict[torch.Tensor, str]) -> None:
        """Adds parameters. Called between steps."""
        self._drop_group()
        _close(self._exchanges)
        for parameter, name in names.items():
            gradient = Gradient(parameter, name, self._passes)
            if id(parameter) in _reduced:
                for reducer in list(_reducers):
                    reducer._lose(parameter)
            _reduced[id(parameter)] = gradient
            self._gradients.append(gradient)
        self._gradients.sort(key=lambda each: each.name)
        self.watch()

    def watch(self) -> None:
        """Installs hooks on parameters that have become trainable."""
        for gradient in self._gradients:
            parameter = gradient.parameter
            if not HAS_POST_ACCUMULATE_HOOKS and parameter.shape != gradient.shape:
                # The hook is on a graph node that only accepts the old shape.
                remove_hooks(self._hooks.pop(id(parameter), []))
                gradient.look_at_parameter()
                self._drop_group()
            if id(parameter) not in self._hooks and parameter.requires_grad:
                if _reduced.setdefault(id(parameter), gradient) is gradient:
                    reducer = weakref.ref(self)
                    self._hooks[id(parameter)] = install_hook(gradient, self._backward, reducer)

    def set_passes(self, passes: int) -> None:
        """Sets the number of backward passes per step. Called between steps."""
        self._passes = passes
        for gradient in self._gradients:
            gradient.passes_left = passes

    def _lose(self, parameter: torch.Tensor) -> None:
        """Called when the program has created another reducer for the parameter."""
        if any(each.parameter is parameter for each in self._gradients):
            self._has_lost_hooks = True
            remove_hooks(self._hooks.pop(id(parameter), []))

    def _check_hooks(self) -> None:
        """Takes parameters back from reducers that no longer exist."""
        if not self._has_lost_hooks:
            return
        gc.collect()
        for gradient in self._gradients:
            if _reduced.setdefault(id(gradient.parameter), gradient) is not gradient:
                raise ValueError(_TAKEN % gradient.name)
        self._has_lost_hooks = False

    # -- The step --

    def is_active(self) -> bool:
        """Returns whether gradients must be reduced with other ranks."""
        if self._process_set is None:
            self._process_set = id_of(self._reduction.process_set)
            self._is_active = is_active(self._reduction.process_set)
        return self._is_active

    def is_pending(self) -> bool:
        """Returns whether backward has computed a gradient in this step."""
        passes = self._passes
        return self.is_active() and any(
            each.announced or each.passes_left < passes for each in self._gradients
        )

    def abolish(self) -> str | None:
        """Begins a new step if no gradient is in flight. If a gradient is in flight, returns its
        name.
        """
        if self._is_whole:
            self._begin_step()
        elif self.is_active():
            for gradient in self._gradients:
                if gradient.announced or gradient.passes_left < self._passes:
                    return gradient.name
        self.watch()
        return None

    def synchronize(self, takes_old: bool = True) -> None:
        """Reduces the gradients that have not been reduced yet, and begins the next step.

        Args:
            takes_old: if true, gradients that no backward pass of this step has computed are
                reduced as they are. If false, this rank contributes zeros for them if another rank
                has the gradient.

        Raises:
            ValueError: the program has changed gradients in flight, or has created another reducer
                for a parameter.
            RondaError: a submission or an operation failed. A new step has begun.
        """
        self._check_hooks()
        if self.is_active() and self._gradients:
            with torch.no_grad(), self._abandoning():
                self._make_whole(takes_old)
                self._settle_changes()
        self._begin_step()
        self.watch()

    def _make_whole(self, takes_old: bool) -> None:
        if takes_old and not self._is_whole:
            self._submit_what_there_is()
        while not self._is_whole:
            self._meet(is_open=False, takes_old=takes_old)

    @contextlib.contextmanager
    def _abandoning(self) -> Iterator[None]:
        """A context manager: an error of the job ends the step."""
        try:
            yield
        except RondaError:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Begins a new step. Waits for operations in flight, and drops their results."""
        for gradient in self._gradients:
            if gradient.handle is not None:
                with contextlib.suppress(RondaError):
                    gradient.handle.wait()
        _close(self._exchanges)
        self._forget()

    def end_epoch(self) -> None:
        """Like abandon(), but the next step also looks up the process set again."""
        self.abandon()
        self._process_set = None
        self._rooms.end_epoch()

    def _forget(self) -> None:
        self._drop_group()
        self._begin_step(prepares=False)

    def _begin_step(self, prepares: bool = True) -> None:
        if self._must_drop:
            self._drop_group()
        elif prepares and self._order:
            self._prepare()
        self._order.clear()
        self._is_whole = self._is_detached = self._backward.is_queued = False
        self._failure = None
        for gradient in self._gradients:
            gradient.begin_step(self._passes)
        for place, gradient in enumerate(self._members):
            gradient.place = place

    def report(self) -> None:
        """Reports to the other ranks, at the end of a backward pass, which gradients this rank has.

        The caller must call end_backward() later in this pass. REQUIRES: is_active().
        """
        with self._abandoning():
            self._begin_report(is_open=True)

    def end_backward(self) -> None:
        """Waits, after report(), for the gradients that all ranks have."""
        with torch.no_grad(), self._abandoning():
            self._meet(is_open=True)

    def repeated(self, gradient: Gradient) -> None:
        """Called when backward has computed a gradient again.

        The new gradient belongs to the next step if the program has dropped the first gradient, for
        instance because it skips a step.
        """
        is_new = gradient.parameter.grad is not gradient.value and not torch.is_grad_enabled()
        if not (self._is_whole and is_new):
            raise AssertionError(_TOO_OFTEN % gradient.name)
        self._begin_step()

    # -- Reports of the ranks --

    def _meet(self, is_open: bool, takes_old: bool = True) -> None:
        """Waits for the gradients that, according to the reports, all ranks have. If no report is
        open, no rank will compute more gradients: submits the missing ones, and waits for all. If
        this rank's report is already in flight, uses it.
        """
        self._begin_report(is_open, takes_old)
        everyone = self._exchange().finish()
        if not everyone.is_of_one_stage:
            raise ValueError(_changes.ON_SOME_RANKS % self._first(everyone.changed))
        if 1 in everyone.changed and self._failure is None:
            self._failure = ValueError(_changes.CHANGED % self._first(everyone.changed))
        some_lack = 1 in everyone.lacks
        if some_lack:
            self._detach()
        if some_lack and everyone.is_open:
            self._wait([g for g, lacks in zip(self._gradients, everyone.lacks) if not lacks])
            return
        if some_lack:
            self._submit_rest(everyone.kinds)
        self._wait(self._gradients)
        self._is_whole = True
        if self._failure is not None:
            failure = self._failure
            self._forget()
            raise failure

    def _begin_report(self, is_open: bool, takes_old: bool = True) -> None:
        """Begins this rank's report, unless one is in flight."""
        exchange = self._exchange()
        if not exchange.is_under_way:
            exchange.begin(self._own_report(is_open, takes_old))

    def _own_report(self, is_open: bool, takes_old: bool) -> Report:
        count = len(self._gradients)
        lacks, kinds, changed = bytearray(count), bytearray([DENSE]) * count, bytearray(count)
        for i, gradient in enumerate(self._gradients):
            if not gradient.is_submitted():
                lacks[i] = 1
                there_is = gradient.announced or (takes_old and not is_open)
                kinds[i] = kind_of(gradient.parameter.grad) if there_is else NOTHING
            else:
                kinds[i] = gradient.kind
            changed[i] = gradient.announced and not gradient.is_whole and gradient.is_changed()
        return Report(bytes(lacks), bytes(kinds), bytes(changed), is_open, REDUCTION)

    def _exchange(self) -> Exchange:
        if not self._exchanges:
            assert self._process_set is not None
            names = [each.name for each in self._gradients]
            self._exchanges.append(Exchange(names, self._process_set))
        return self._exchanges[0]

    def _first(self, flags: bytes) -> str:
        return next((g.name for g, flag in zip(self._gradients, flags) if flag), "")

    def _submit_what_there_is(self) -> None:
        """Submits, as they are, the gradients that no backward pass of this step has computed."""
        for gradient in self._gradients:
            if not gradient.announced and gradient.parameter.grad is not None:
                self.announce(gradient)

    def _submit_rest(self, kinds: bytes) -> None:
        """Submits zeros for gradients that this rank lacks and another rank has. Skips gradients
        that no rank has.
        """
        for gradient, kind in zip(self._gradients, kinds):
            if gradient.announced:
                continue
            if kind != NOTHING:
                gradient.make_value(kind)
                self.announce(gradient)
                continue
            self._must_drop |= gradient in self._members
            if gradient.bundle is not None:
                gradient.bundle.count_down(self._reduction, self._set())

    def _settle_changes(self) -> None:
        """Averages changed gradients again, unless every rank has made the same changes."""
        if not any(gradient.is_changed() for gradient in self._gradients):
            return
        try:
            _changes.settle(self._gradients, self._exchange(), self._reduction)
        except ValueError:
            self._forget()
            raise

    # -- Submission --

    def announce(self, gradient: Gradient) -> None:
        """Submits a gradient in the group, alone, or through the program's compressor."""
        if not self.is_active():
            gradient.passes_left = self._passes
            return
        value = gradient.parameter.grad
        assert value is not None
        if value.is_sparse:
            value = gradient.usual_sparse(value)
        elif value.layout is torch.strided and not gradient.has_agreed_form(value):
            self._adapt(gradient)
        gradient.announced = True
        gradient.kind = kind_of(value)
        gradient.note_value()
        if value.is_sparse and not self._sparse_as_dense:
            self._leave_group(gradient)
            self._submit_sparse(gradient, value)
            if gradient.bundle is not None:
                gradient.bundle.count_down(self._reduction, self._set())
        elif self._is_custom:
            self._submit_compressed(gradient, value)
        elif gradient.bundle is not None:
            gradient.send(gradient.dense(value))
            gradient.bundle.count_down(self._reduction, self._set())
        else:
            sent = gradient.dense(value)
            gradient.send(sent)
            if gradient.place != NO_PLACE:
                native.group_ready_on_stream(
                    gradient.group,
                    gradient.place,
                    sent.data_ptr(),
                    gradient.stream or 0,
                    _tensors.storage(sent),
                )
                return
            row = gradient.row(self._reduction, self._set())
            gradient.handle = handle_of(native.allreduce_async(*row), gradient.stream)
            if self._group == 0:
                self._order.append(gradient)

    def _adapt(self, gradient: Gradient) -> None:
        """Inspects the parameter again: its shape, dtype or memory layout may have changed since
        the last step.
        """
        before = gradient.dtype, gradient.travels_as, gradient.strides
        gradient.look_at_parameter()
        if (gradient.dtype, gradient.travels_as, gradient.strides) != before:
            self._leave_group(gradient)

    def _leave_group(self, gradient: Gradient) -> None:
        if gradient.place != NO_PLACE:
            self._detach()
            self._must_drop = True

    def _set(self) -> int:
        assert self._process_set is not None
        return self._process_set

    def _submit_sparse(self, gradient: Gradient, value: torch.Tensor) -> None:
        reduction = self._reduction

        def take(result: torch.Tensor) -> None:
            gradient.parameter.grad = result

        gradient.finish = take
        gradient.handle = sparse_allreduce_async(
            value, gradient.name, reduction.op, reduction.process_set
        )

    def _submit_compressed(self, gradient: Gradient, value: torch.Tensor) -> None:
        """Submits a gradient through the program's own compressor."""
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

    # -- Waiting, and the group --

    def _wait(self, gradients: Sequence[Gradient]) -> None:
        """Waits for gradients in flight, takes their results, and keeps the first error."""
        try:
            if gradients is self._gradients and self._group != 0 and not self._is_detached:
                self._wait_for_group()
        except RondaError as error:
            self._fail(error)
        finished = []
        for gradient in gradients:
            assert gradient.is_submitted() or not gradient.announced, gradient.name
            handle, gradient.handle = gradient.handle, None
            finish, gradient.finish = gradient.finish, None
            try:
                result = handle.wait() if handle is not None else None
            except RondaError as error:
                self._fail(error)
                continue
            if finish is not None:
                finish(result)
                finished.append(gradient)
            gradient.is_whole = True
        for gradient in finished:  # a copy also changes the version of gradients that share memory
            gradient.note_value()

    def _fail(self, error: RondaError) -> None:
        if isinstance(error, MismatchError):
            error.args = (f"{error}; {SHAPE_IN_MEMORY}",)
        self._failure = self._failure or error

    def _wait_for_group(self) -> None:
        stream = _tensors.stream(self._members[0].parameter)
        if stream is None:
            native.group_wait(self._group)
            return
        native.group_wait_on_stream(self._group, stream)
        # Every member's stream must wait, because torch reuses dropped gradients' memory on it.
        device = self._members[0].parameter.device
        for other in {each.stream for each in self._members} - {stream, None}:
            waiting: Any = torch.cuda.ExternalStream(other, device=device)
            waiting.wait_stream(torch.cuda.current_stream(device))

    def _prepare(self) -> None:
        """Prepares a group of this step's dense gradients, in the order of their submission."""
        rows = [each.row(self._reduction, self._set(), is_kept=False) for each in self._order]
        self._group = native.prepare_group(rows, "gradients")
        self._groups.append(self._group)
        self._members = list(self._order)
        for gradient in self._members:
            gradient.group = self._group
        if self._set() == 0:
            self._rooms.lay_out(self._members, self._reduction)

    def _detach(self) -> None:
        """Stops using the group in this step. Every gradient then has its own handle."""
        if self._group == 0 or self._is_detached:
            return
        self._is_detached = True
        for gradient, id in zip(self._members, native.group_detach(self._group)):
            gradient.place = NO_PLACE
            if id != 0:
                gradient.handle = handle_of(id, gradient.stream)

    def _drop_group(self) -> None:
        """Drops the group, so that the next step is like the first step."""
        self._must_drop = False
        self._order.clear()
        self._group = 0
        for gradient in self._members:
            gradient.group, gradient.place = 0, NO_PLACE
        self._members.clear()
        _release(self._groups)


def _release(groups: list[int]) -> None:
    while groups:
        native.group_release(groups.pop())


def _close(exchanges: list[Exchange]) -> None:
    while exchanges:
        exchanges.pop().close()


def _give_back(hooks: dict[int, list[Any]], groups: list[int], exchanges: list[Exchange]) -> None:
    while hooks:
        remove_hooks(hooks.popitem()[1])
    _release(groups)
    _close(exchanges)


def _end_epoch() -> None:
    """Called at the end of a job or an epoch, because groups belong to one job or epoch."""
    for reducer in list(_reducers):
        reducer.end_epoch()


_TOO_OFTEN = (
    "the gradient of '%s' was computed more than backward_passes_per_step times before step(),"
    " synchronize() or zero_grad() of its optimizer: call one of them first; raise"
    " backward_passes_per_step to add gradients up locally; or freeze the parameter,"
    " requires_grad_(False), while another model's pass goes through it"
)
_TAKEN = (
    "'%s' is also a parameter of a DistributedOptimizer that was made later and reduces its"
    " gradient: give each parameter to one DistributedOptimizer"
)
_reducers: weakref.WeakSet[GradientReducer] = weakref.WeakSet()
# By parameter id, the Gradient of the newest reducer that watches the parameter.
_reduced: weakref.WeakValueDictionary[int, Gradient] = weakref.WeakValueDictionary()
_horovod.at_shutdown(_end_epoch)
