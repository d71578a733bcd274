# SPDX-License-Identifier: Apache-2.0

"""Reduces the gradients of Paddle's parameters while backward computes them."""

from __future__ import annotations

import collections
import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import paddle  # type: ignore[import-not-found]
from paddle.base import core  # type: ignore[import-not-found]

from ronda import _rows, job, reductions
from ronda._library import native
from ronda.errors import MismatchError, RondaError
from ronda.handles import Handle
from ronda.paddle._tensors import description
from ronda.types import ReduceOp, Wire


class Gradient:
    """The gradient of a parameter in the current step."""

    def __init__(self, parameter: Any, position: int) -> None:
        """
        Args:
            parameter: the parameter.
            position: the parameter's place in the list of its optimizer, the same on every rank.
        """
        self.parameter = parameter
        self.position = position
        self.has_hook = False
        self.passes = 0  # backward passes of this step that have added to it
        self.usual = 0  # the most passes of a step so far
        self.handle: Handle | None = None  # of its reduction in this step
        self.sent: tuple[int, int] | None = None  # its place and version, until it is reduced

    def exists(self) -> bool:
        """Returns whether this rank has the gradient in this step."""
        is_trained = not self.parameter.stop_gradient
        return self.handle is not None or (is_trained and self.parameter.grad is not None)

    def is_changed(self) -> bool:
        """Returns whether the program has changed or replaced the gradient while it was in
        flight.
        """
        value = self.parameter.grad
        return self.sent is not None and (value is None or self.sent != _place_of(value))


class GradientReducer:
    """Reduces gradients in place, in every step.

    The first step shows how many backward passes add to each gradient. In later steps a hook
    submits the gradient after this number of passes, while backward continues. backward() returns
    when all gradients are reduced. If backward() has not computed all gradients, it does not wait
    for the reductions, because other ranks may have computed different gradients. These reductions
    stay in flight until reduce(), which submits the remaining gradients. The ranks may submit
    gradients at different times, because tensors are matched by name.

    The name of a gradient consists of the number of its reducer and the position of its parameter
    in the optimizer. Paddle's own names of parameters depend on all layers that a process has
    created, so they may differ between ranks. The reducers of a job get their numbers in the order
    of their first steps.
    """

    def __init__(self, op: ReduceOp, wire: Wire, prescale: float) -> None:
        """
        Args:
            op: the operation that combines the ranks' gradients.
            wire: the format in which the gradients are sent.
            prescale: multiplies each rank's gradients.
        """
        self._op = op
        self._wire = wire
        self._prescale = prescale
        self._gradients: dict[int, Gradient] = {}  # by the id of the parameter
        self._number = 0  # of this reducer in the job
        self._job = 0  # the number of that job; 0 before the first step
        self._is_queued = False  # backward will call _end_backward()
        self._failure: Exception | None = None  # of a hook; raised by reduce()

    def watch(self, parameters: list[Any]) -> None:
        """Installs hooks on the trainable parameters that have no hook of this reducer yet."""
        for position, parameter in enumerate(parameters):
            gradient = self._gradients.get(id(parameter))
            if gradient is None:
                gradient = self._gradients[id(parameter)] = Gradient(parameter, position)
            if parameter.stop_gradient or gradient.has_hook:
                continue
            gradient.has_hook = True
            _reduced[id(parameter)] = gradient
            # The hook has only a weak reference to this object, because Paddle keeps the hook for
            # the parameter's lifetime.
            parameter._register_backward_hook(_weakly(self, GradientReducer._computed, gradient))

    def _computed(self, gradient: Gradient) -> None:
        """Paddle calls this hook when backward has added to the gradient. Raises no exception,
        because Paddle would replace the exception; reduce() raises it instead.
        """
        if _reduced.get(id(gradient.parameter)) is not gradient:
            return  # an optimizer that was made later reduces the gradient
        gradient.passes += 1
        if self._job != job.number():
            return  # reduce() gives this reducer a number in the job
        if gradient.usual == 0 or gradient.passes < gradient.usual or self._failure is not None:
            return
        try:
            if gradient.passes > gradient.usual:
                raise ValueError(_TOO_OFTEN % (gradient.parameter.name, gradient.usual))
            self._submit(gradient)
            if not self._is_queued:
                self._is_queued = True
                core.eager._add_backward_final_hook(_weakly(self, GradientReducer._end_backward))
        except Exception as error:
            self._failure = error

    def _end_backward(self) -> None:
        """Paddle calls this function at the end of backward(). If all gradients of the step are
        computed, waits for their reductions, so that the program may read and change the gradients
        after backward().
        """
        self._is_queued = False
        trained = (each for each in self._gradients.values() if not each.parameter.stop_gradient)
        if all(each.handle is not None for each in trained):
            self._settle()

    def reduce(self, parameters: list[Any]) -> None:
        """Reduces the remaining gradients of this step, waits until all gradients are reduced, and
        begins the next step. If this rank lacks a gradient that another rank has, this rank
        contributes zeros. A gradient that no rank has stays None.

        Args:
            parameters: the optimizer's parameters.

        Raises:
            RondaError: a reduction has failed.
            ValueError: Ronda does not support a gradient, backward has added to a gradient too
                often, the program has changed a gradient in flight, or a parameter is frozen only
                on this rank.
        """
        self.watch(parameters)
        self._enter_job()
        gradients: list[Gradient] = []
        try:
            gradients = self._gradients_of_any_rank(parameters)
            self._submit_rest(gradients)
            for gradient in gradients:
                assert gradient.handle is not None
                gradient.handle.wait()
        except MismatchError as error:
            error.args = (f"{error}; {_ANOTHER_ORDER}",)
            raise
        except ValueError as error:
            self._refuse_rest(gradients, error)
            raise
        finally:
            self.begin_step()

    def _enter_job(self) -> None:
        """Gives this reducer a number, in its first step in a job."""
        if self._job != job.number():
            self._job = job.number()
            self._number = _numbers[self._job]
            _numbers[self._job] += 1

    def _gradients_of_any_rank(self, parameters: list[Any]) -> list[Gradient]:
        """Returns the gradients that at least one rank has in this step."""
        gradients = [self._gradients[id(each)] for each in parameters]
        found = bytearray(each.exists() for each in gradients)
        name = f"fleet.{self._number}.parameters"
        reductions.allreduce(found, ReduceOp.MAX, name=name, out=found)
        return [each for each, exists in zip(gradients, found) if exists]

    def _wire_name(self, gradient: Gradient) -> str:
        return f"fleet.{self._number}.gradient.{gradient.position}"

    def _refuse_rest(self, gradients: list[Gradient], error: ValueError) -> None:
        """Sends the error to the other ranks, which would otherwise wait for gradients that this
        rank does not submit.
        """
        with contextlib.suppress(RondaError):
            for gradient in gradients:
                if gradient.handle is None:
                    native.refuse(0, self._wire_name(gradient), f"{type(error).__name__}: {error}")

    def _submit_rest(self, gradients: list[Gradient]) -> None:
        if self._failure is not None:
            raise self._failure
        for gradient in gradients:
            if gradient.is_changed():
                raise ValueError(_CHANGED % gradient.parameter.name)
            if gradient.handle is not None:
                continue
            if gradient.parameter.stop_gradient:
                raise ValueError(_FROZEN % (gradient.parameter.name, native.rank()))
            if gradient.parameter.grad is None:
                gradient.parameter.grad = paddle.zeros_like(gradient.parameter)
            self._submit(gradient)

    def begin_step(self) -> None:
        """Waits for the reductions of this step, and drops their handles."""
        self._settle()
        self._failure = None
        self._is_queued = False
        for gradient in self._gradients.values():
            gradient.usual = max(gradient.usual, gradient.passes)
            gradient.passes = 0
            gradient.handle = gradient.sent = None

    def _settle(self) -> None:
        for gradient in self._gradients.values():
            if gradient.handle is not None:
                gradient.handle.settle()
                gradient.sent = None

    def _submit(self, gradient: Gradient) -> None:
        name, value = gradient.parameter.name, gradient.parameter.grad
        dtype, shape, address = description(value, f"the gradient of {name}")
        row = _rows.allreduce(
            name=self._wire_name(gradient),
            dtype=dtype,
            shape=shape,
            input=address,
            output=address,
            keep=value,
            op=int(self._op),
            compression=int(self._wire),
            prescale=self._prescale,
        )
        gradient.sent = _place_of(value)
        gradient.handle = Handle(native.allreduce_async(*row), lambda _: None)


def _place_of(value: Any) -> tuple[int, int]:
    """Returns the address of a tensor, and a version number that Paddle increments with each change
    to the tensor.
    """
    return value.data_ptr(), value.inplace_version


def _weakly(
    reducer: GradientReducer, method: Callable[..., None], *arguments: Any
) -> Callable[..., None]:
    """Returns a hook that calls the method, unless the reducer has been destroyed."""
    reference = weakref.ref(reducer)
    held = [weakref.ref(each) for each in arguments]

    def hook(*_: Any) -> None:
        reducer = reference()
        if reducer is not None:
            method(reducer, *(each() for each in held))

    return hook


_TOO_OFTEN = (
    "the gradient of %s was computed by more than %d backward passes, the most of any step before,"
    " and is reduced already: call step() or clear_grad() of its optimizer first, or add passes up"
    " with gradient_merge"
)
_CHANGED = (
    "the gradient of %s was changed after backward(), while it was being reduced: change gradients"
    " only after a backward() that has computed all of them, or after reduce_gradients()"
)
_FROZEN = (
    "the parameter %s is frozen (stop_gradient) on rank %d, and another rank trains it: freeze the"
    " same parameters on every rank"
)
_ANOTHER_ORDER = (
    "gradients are matched by the position of their parameters in the optimizer: give the optimizer"
    " the same parameters in the same order on every rank"
)
# By the number of a job, how many reducers have made a step in it.
_numbers: collections.Counter[int] = collections.Counter()
# By parameter id, the Gradient of the newest reducer that watches the parameter.
_reduced: weakref.WeakValueDictionary[int, Gradient] = weakref.WeakValueDictionary()
