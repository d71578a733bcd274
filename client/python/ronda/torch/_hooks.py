# SPDX-License-Identifier: Apache-2.0

"""The hooks of a GradientReducer, which autograd calls during a backward pass and at its end."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ronda._library import native
from ronda.torch import _tensors
from ronda.torch._gradient import Gradient

if TYPE_CHECKING:
    from ronda.torch._gradients import GradientReducer


HAS_POST_ACCUMULATE_HOOKS = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")


class Backward:
    """Notifies a reducer at the end of the backward pass in which its first hook ran.

    If a pass has several reducers, all reducers make their reports before the first reducer waits,
    because other ranks may reach the reducers in a different order, or not reach some of them.
    """

    def __init__(self, reducer: weakref.ref[GradientReducer]) -> None:
        self._reducer = reducer
        self.is_queued = False

    def queue(self) -> None:
        """Called by a reducer's hooks, so that the reducer is notified at the end of the pass."""
        _queue(self._report)
        self.is_queued = True

    def _report(self) -> None:
        self.is_queued = False
        reducer = self._reducer()
        if reducer is not None and reducer.report():
            _queue(self._wait)  # runs after all callbacks that are already queued

    def _wait(self) -> None:
        reducer = self._reducer()
        if reducer is not None:
            reducer.end_backward()


def _queue(callback: Callable[[], None]) -> None:
    """Makes autograd call `callback` at the end of the backward pass."""
    engine: Any = torch.autograd.Variable._execution_engine
    engine.queue_callback(callback)


_APPLY: Any = torch.autograd.function.BackwardCFunction.apply


def is_nested() -> bool:
    """Returns whether the backward pass that ends now was started inside another pass, for instance
    by torch.utils.checkpoint.
    """
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code is _APPLY.__code__:
            return True
        frame = frame.f_back
    return False


def install_hook(
    gradient: Gradient, backward: Backward, reducer: weakref.ref[GradientReducer]
) -> list[Any]:
    """Makes autograd announce a gradient to `reducer`. Returns the argument for remove_hooks()."""
    parameter, hook = gradient.parameter, make_hook(gradient, backward, reducer)
    if HAS_POST_ACCUMULATE_HOOKS:
        register: Any = getattr(parameter, "register_post_accumulate_grad_hook")  # noqa: B009
        return [register(hook)]
    # The node that accumulates the gradient lives only while an object refers to it.
    function: Any = parameter.expand_as(parameter).grad_fn
    node = function.next_functions[0][0]
    return [node, node.register_hook(hook)]


def remove_hooks(installed: list[Any]) -> None:
    """Removes the hooks that install_hook() has installed."""
    for each in installed:
        if hasattr(each, "remove"):
            each.remove()


def make_hook(
    gradient: Gradient, backward: Backward, reducer: weakref.ref[GradientReducer]
) -> Callable[..., None]:
    """Returns the hook, which is called whenever backward has added to the gradient. The hook is
    called often, so it must be fast.
    """
    parameter, strided, storage = gradient.parameter, torch.strided, _tensors.storage
    stream_of, group_ready_on_stream = _tensors.stream, native.group_ready_on_stream

    def hook(*_: Any) -> None:
        if gradient.announced:
            owner = reducer()
            if owner is not None:
                owner.repeated(gradient)
        gradient.passes_left -= 1
        if gradient.passes_left > 0:
            return
        if not backward.is_queued:
            backward.queue()
        value: Any = parameter.grad
        place = gradient.place
        if (
            place >= 0
            and value.layout is strided
            and value.dtype is gradient.dtype
            and value.shape == gradient.shape
            and (
                value.is_contiguous()
                if gradient.is_row_major
                else value.stride() == gradient.strides
            )
        ):
            gradient.announced = True
            if gradient.room is not None:
                value = gradient.in_room(value)
            gradient.value = value
            gradient.version = value._version
            gradient.address = address = value.data_ptr()
            gradient.stream = stream = stream_of(value) if value.is_cuda else None
            group_ready_on_stream(gradient.group, place, address, stream or 0, storage(value))
            return
        owner = reducer()
        if owner is not None:
            owner.announce(gradient)

    return hook
