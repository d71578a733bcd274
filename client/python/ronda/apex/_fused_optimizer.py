# SPDX-License-Identifier: Apache-2.0

"""The code that the optimizers of ronda.apex.optimizers share."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer

__all__ = ["Batch", "FusedOptimizer"]

_MASTER = "master_param"


@dataclasses.dataclass
class Batch:
    """The parameters of a group that have a gradient. All lists have the same length."""

    group: dict[str, Any]
    parameters: list[torch.Tensor]
    weights: list[torch.Tensor]  # the parameters, or their copies in float32
    gradients: list[torch.Tensor]  # of the weights' dtype
    states: list[dict[str, Any]]

    def buffers(self, name: str) -> list[torch.Tensor]:
        """Returns the state `name` of each weight, which is initially zero."""
        for state, weight in zip(self.states, self.weights):
            if name not in state:
                state[name] = torch.zeros_like(weight)
        return [state[name] for state in self.states]

    def decay(self) -> None:
        """Decays the weights as AdamW does. The optimizer's step must not apply the decay again.

        p - lr * (step + weight_decay * p) = (1 - lr * weight_decay) * p - lr * step
        """
        if self.group["weight_decay"] != 0:
            torch._foreach_mul_(self.weights, 1 - self.group["lr"] * self.group["weight_decay"])


class FusedOptimizer(Optimizer):
    """The base class of optimizers that update all parameters of a group at once.

    Args:
        params: parameters, or dicts of groups.
        defaults: the default values of the groups' options.
        set_grad_none: zero_grad() removes gradients instead of setting them to zero.
        master_weights: whether to keep float32 weights for 16-bit parameters between steps.
    """

    counts_steps = True  # in group["step"]

    def __init__(
        self,
        params: Iterable[Any],
        defaults: dict[str, Any],
        set_grad_none: bool,
        master_weights: bool = False,
    ) -> None:
        _check(defaults)
        super().__init__(params, defaults)
        self.set_grad_none = set_grad_none
        self.master_weights = master_weights

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Clears the gradients like torch's zero_grad(). If `set_to_none` is None, the
        constructor's set_grad_none applies.
        """
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters that have a gradient. The gradients do not change.

        Args:
            closure: recomputes the loss and the gradients.

        Returns:
            The result of `closure`.

        Raises:
            RuntimeError: a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step_batches([self._batch(group) for group in self.param_groups])
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Works like torch's load_state_dict(), but does not cast the state of a 16-bit parameter
        to the parameter's dtype.
        """
        super().load_state_dict(state_dict)
        names = itertools.chain(*(group["params"] for group in state_dict["param_groups"]))
        parameters = itertools.chain(*(group["params"] for group in self.param_groups))
        for name, parameter in zip(names, parameters):
            for key, value in state_dict["state"].get(name, {}).items():
                if isinstance(value, torch.Tensor) and parameter.element_size() < 4:
                    wide = value.detach().to(parameter.device, torch.float32, copy=True)
                    self.state[parameter][key] = wide

    def _step_batches(self, batches: list[Batch]) -> None:
        for batch in batches:
            if self.counts_steps:
                batch.group["step"] = batch.group.get("step", 0) + 1
            if not batch.parameters:
                continue
            self._update(batch)
            for parameter, weight in zip(batch.parameters, batch.weights):
                if weight is not parameter:
                    parameter.copy_(weight)

    def _update(self, batch: Batch) -> None:
        raise NotImplementedError

    def _batch(self, group: dict[str, Any]) -> Batch:
        batch = Batch(group, [], [], [], [])
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            if parameter.grad.is_sparse:
                raise RuntimeError(
                    f"a gradient of shape {tuple(parameter.grad.shape)} is sparse, and "
                    f"{type(self).__name__} takes dense ones: use torch.optim.SparseAdam for it"
                )
            state = self.state[parameter]
            weight = self._weight(parameter, state)
            batch.parameters.append(parameter)
            batch.weights.append(weight)
            batch.gradients.append(parameter.grad.to(weight.dtype))
            batch.states.append(state)
        return batch

    def _weight(self, parameter: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
        if parameter.element_size() >= 4:
            return parameter
        if not self.master_weights:
            return parameter.float()
        if _MASTER not in state:
            state[_MASTER] = parameter.float()
        master: torch.Tensor = state[_MASTER]
        return master


def _check(options: dict[str, Any]) -> None:
    for name in ("lr", "eps", "weight_decay", "momentum"):
        value = options.get(name)
        if value is not None and not value >= 0:
            raise ValueError(f"{name} is {value}: it must not be below 0")
    for beta in options.get("betas", ()):
        if not 0 <= beta < 1:
            raise ValueError(f"betas are {options['betas']}: each must be from 0 to below 1")
