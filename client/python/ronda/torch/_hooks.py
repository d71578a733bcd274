# SPDX-License-Identifier: Apache-2.0

"""The hooks of a GradientReducer, which autograd calls during a backward pass and at its end."""

from __future__ import annotations

import functools
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


# How many objects own a storage, whose address is the argument. Missing in old versions of torch.
_owners: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)
HAS_POST_ACCUMULATE_HOOKS = _owners is not None and hasattr(
    torch.Tensor, "register_post_accumulate_grad_hook"
)


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

    def _queue_once(self) -> None:
        if not self.is_queued:
            self.queue()

    def _report(self) -> None:
        self.is_queued = False
        reducer = self._reducer()
        if reducer is None or not reducer.is_active():
            return
        if is_nested():
            call_in_outer_pass(self._queue_once)
            return
        reducer.report()
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


def _outer_node() -> Any:
    """Returns the node of the outer pass's graph that has started the backward pass that runs now,
    or None.
    """
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code is _APPLY.__code__:
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


def is_nested() -> bool:
    """Returns whether the backward pass that ends now was started inside another pass, for instance
    by torch.utils.checkpoint.
    """
    return _outer_node() is not None


def call_in_outer_pass(callback: Callable[[], None]) -> None:
    """Makes autograd call `callback` in the outer pass, soon after the nested pass that ends now.

    REQUIRES: is_nested().
    """
    installed: list[Any] = []

    def hook(*_: Any) -> None:
        remove_hooks(installed)
        installed.clear()
        callback()

    # A callback can only be queued for the pass that runs. The node that has started the nested
    # pass has its result soon, and autograd then runs one of the next nodes.
    for node, _ in _outer_node().next_functions:
        if node is not None:
            installed.append(node.register_hook(hook))


def install_hook(
    gradient: Gradient, backward: Backward, reducer: weakref.ref[GradientReducer]
) -> list[Any]:
    """Makes autograd announce a gradient to `reducer`. Returns the argument for remove_hooks()."""
    return call_after_accumulation(gradient.parameter, make_hook(gradient, backward, reducer))


def call_after_accumulation(parameter: torch.Tensor, hook: Callable[..., None]) -> list[Any]:
    """Makes autograd call `hook` whenever it has added to the parameter's gradient. Returns the
    argument for remove_hooks(), which must stay alive.
    """
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


def make_sharing_test() -> Callable[[Any, Any], bool]:
    """Returns a function that tells a hook whether other tensors may use a gradient's memory. Its
    arguments are the gradient's storage and the arguments of the hook.

    Autograd may keep the tensor that it has computed as the parameter's gradient, without a copy.
    Another tensor may then be a view of the same memory: another parameter's gradient, or a tensor
    from which autograd will compute further gradients. Such a gradient must not be reduced in
    place: see separate().
    """
    owners = _owners
    if owners is None or not HAS_POST_ACCUMULATE_HOOKS:
        return _was_kept
    usual = _usual_owners(owners)
    return lambda memory, _: owners(memory._cdata) > usual


def separate(parameter: torch.Tensor, kept: list[weakref.ref[Any]]) -> bool:
    """Prepares the reduction of a gradient that shares memory with other tensors.

    Replaces a gradient that autograd has just made by a copy. But the program may have set the
    gradient itself, for example to a part of a flat tensor for all gradients, and then expects the
    result in that memory. Autograd adds to such a gradient in place, which increases its version.

    Args:
        parameter: has a strided gradient.
        kept: has a gradient that shared memory in an earlier call, if any. If the parameter still
            has that gradient, the program keeps it, and it is reduced in place.

    Returns:
        Whether to reduce a copy, and to copy the result back when backward has ended.
    """
    value: Any = parameter.grad
    if value._version == 0:
        parameter.grad = value.clone()
        return False
    if kept and kept[0]() is value:
        return False
    if is_view := value._is_view():
        # The program has made this view. All views of a tensor have one version, so a change of one
        # gradient would look like a change of the others.
        parameter.grad = value = value.data
    kept[:] = [weakref.ref(value)]
    return not is_view


def _was_kept(memory: Any, arguments: Any) -> bool:
    """Returns whether a gradient with this storage is the tensor that autograd has computed.
    `arguments` are the arguments of a hook of a graph node.
    """
    (computed,) = arguments[1]
    is_dense = computed.layout is torch.strided
    return is_dense and _tensors.storage(computed).data_ptr() == memory.data_ptr()


@functools.cache
def _usual_owners(owners: Callable[[int], int]) -> int:
    """Returns how many owners a gradient's storage has in a hook if no other tensor shares it."""
    found = []
    parameter = torch.ones(2, 2, device="cpu", requires_grad=True)

    def hook(_: Any) -> None:
        memory = _tensors.storage(parameter.grad)
        found.append(owners(memory._cdata))

    with torch.inference_mode(False), torch.enable_grad():
        installed = call_after_accumulation(parameter, hook)
        for _ in range(2):  # the second backward pass adds to the gradient
            (parameter.t() * 2).sum().backward()
    remove_hooks(installed)
    return max(found)


def make_hook(
    gradient: Gradient, backward: Backward, reducer: weakref.ref[GradientReducer]
) -> Callable[..., None]:
    """Returns the hook, which is called whenever backward has added to the gradient. The hook is
    called often, so it must be fast.
    """
    parameter, strided, storage = gradient.parameter, torch.strided, _tensors.storage
    stream_of, group_ready_on_stream = _tensors.stream, native.group_ready_on_stream
    is_shared = make_sharing_test()
    kept: list[weakref.ref[Any]] = []

    def hook(*arguments: Any) -> None:
        if gradient.announced:
            owner = reducer()
            if owner is not None:
                owner.repeated(gradient)
        value: Any = parameter.grad
        is_strided = value.layout is strided
        if is_strided:
            memory = storage(value)
            if is_shared(memory, arguments) and value is not gradient.room:
                gradient.sends_copy = separate(parameter, kept)
                value = parameter.grad
                memory = storage(value)
        gradient.passes_left -= 1
        if gradient.passes_left > 0:
            return
        if not backward.is_queued:
            backward.queue()
        place = gradient.place
        if (
            place >= 0
            and is_strided
            and not gradient.sends_copy
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
                memory = storage(value)
            gradient.value = value
            gradient.version = value._version
            gradient.address = address = value.data_ptr()
            gradient.stream = stream = stream_of(value) if value.is_cuda else None
            group_ready_on_stream(gradient.group, place, address, stream or 0, memory)
            return
        owner = reducer()
        if owner is not None:
            owner.announce(gradient)

    return hook
