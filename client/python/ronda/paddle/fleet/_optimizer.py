# SPDX-License-Identifier: Apache-2.0

"""Wraps Paddle's optimizers so that they reduce gradients over the ranks."""

from __future__ import annotations

from typing import Any

from ronda.paddle.fleet._gradients import GradientReducer
from ronda.paddle.fleet._strategy import DistributedStrategy
from ronda.types import Wire


class DistributedOptimizer:
    """The result of fleet.distributed_optimizer(): wraps an optimizer so that step() applies the
    reduced gradients. All other attributes come from the wrapped optimizer.

    Gradients are reduced in place. In the first step, step() reduces them. In later steps, they are
    reduced while backward runs, and are complete when backward() returns. If this rank lacks a
    gradient that another rank has, it contributes zeros. A gradient that no rank has stays None.
    With `gradient_merge`, only each k-th step() reduces and applies the sum of the backward passes,
    and clear_grad() does nothing between the passes.
    """

    def __init__(self, optimizer: Any, strategy: DistributedStrategy) -> None:
        """
        Args:
            optimizer: an optimizer of paddle.optimizer.
            strategy: the settings.
        """
        self._optimizer = optimizer
        wire = Wire.FP16 if strategy.fp16_allreduce else Wire.NONE
        self._passes, prescale = strategy.merging()
        self._done = 0  # passes of this step, so far
        self._reducer = GradientReducer(strategy.op(), wire, prescale)
        self._reducer.watch(self._parameters())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def step(self) -> None:
        """Reduces the gradients, and then calls the optimizer's step().

        Raises:
            RondaError: a reduction has failed, and the optimizer has not run.
            ValueError: Ronda does not support a gradient, the program has changed a gradient in
                flight, more backward passes have added to a gradient than in any earlier step, or
                a parameter is frozen only on this rank.
        """
        self._done += 1
        if self._done < self._passes:
            return
        self._done = 0
        self.reduce_gradients()
        self._optimizer.step()

    def minimize(self, loss: Any, *args: Any, **kwargs: Any) -> tuple[list[Any], list[Any]]:
        """Does the same as step(), like Paddle's minimize(). Call minimize() after
        loss.backward().
        """
        del loss, args, kwargs
        self.step()
        return [], []

    def clear_grad(self, set_to_zero: bool = True) -> None:
        """Clears the gradients, unless more backward passes will add to them."""
        if self._done == 0:
            self._reducer.begin_step()
            self._optimizer.clear_grad(set_to_zero)

    clear_gradients = clear_grad

    def reduce_gradients(self) -> None:
        """Reduces the gradients of all trainable parameters, in place, and waits."""
        self._reducer.reduce(self._parameters())

    def _parameters(self) -> list[Any]:
        """Returns the optimizer's parameters, in the optimizer's order. The optimizer may have its
        parameters in groups.
        """
        parameters: list[Any] = []
        for each in self._optimizer._parameter_list:
            parameters += each["params"] if isinstance(each, dict) else [each]
        return parameters
