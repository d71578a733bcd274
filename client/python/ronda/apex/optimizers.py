# SPDX-License-Identifier: Apache-2.0

"""Replaces apex.optimizers. SGD, Adam and Adagrad use torch's own functions; LAMB and NovoGrad are
written here.

Constructors take Apex's arguments. On CPUs and GPUs, steps use torch's fused kernels if these
exist, and otherwise torch's foreach operations. 16-bit parameters have float32 state, and their
steps are computed in float32. As in Apex, each group counts its own steps for the bias correction.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from ronda.apex._fused_optimizer import Batch, FusedOptimizer

try:
    from torch.utils import _foreach_utils
except ImportError:  # before torch 2
    _foreach_utils = None  # type: ignore[assignment]

__all__ = ["FusedAdagrad", "FusedAdam", "FusedLAMB", "FusedNovoGrad", "FusedSGD"]

_MOMENTUM = "momentum_buffer"


class FusedSGD(FusedOptimizer):
    """Stochastic gradient descent, like torch.optim.SGD."""

    counts_steps = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        wd_after_momentum: bool = False,
        materialize_master_grads: bool = True,
        set_grad_none: bool = False,
    ) -> None:
        """
        Args:
            params: parameters, or dicts of groups.
            lr: must be given, here or in each group.
            momentum, dampening, weight_decay, nesterov: as in torch.optim.SGD.
            wd_after_momentum: whether to leave the decay out of the momentum.
            materialize_master_grads: ignored, because parameters have one gradient here.
            set_grad_none: zero_grad() removes gradients.

        Raises:
            ValueError: an argument is out of its range.
        """
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("nesterov=True needs a momentum, and a dampening of 0")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
        }
        super().__init__(params, defaults, set_grad_none)
        if any(group["lr"] is None for group in self.param_groups):
            raise ValueError("FusedSGD has no default for lr: pass it")
        self.wd_after_momentum = wd_after_momentum

    def _update(self, batch: Batch) -> None:
        if self.wd_after_momentum:
            batch.decay()
        # torch's function cannot mix parameters in their first step with parameters in later steps.
        first: list[int] = []
        later: list[int] = []
        for i, state in enumerate(batch.states):
            (later if _MOMENTUM in state else first).append(i)
        for chosen in (first, later):
            if chosen:
                self._step_some(batch, chosen)

    def _step_some(self, batch: Batch, chosen: list[int]) -> None:
        group = batch.group
        weights = [batch.weights[i] for i in chosen]
        gradients = [batch.gradients[i] for i in chosen]
        momenta = [batch.states[i].get(_MOMENTUM) for i in chosen]
        kernels = _kernels(sgd, weights, gradients)
        if group["nesterov"] and "foreach" in kernels:
            gradients = [each.clone() for each in gradients]  # torch adds the momentum to them
        sgd(
            weights,
            gradients,
            momenta,
            has_sparse_grad=False,
            **kernels,
            weight_decay=0.0 if self.wd_after_momentum else group["weight_decay"],
            momentum=group["momentum"],
            lr=group["lr"],
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            maximize=False,
        )
        for i, momentum in zip(chosen, momenta):
            if momentum is not None:
                batch.states[i][_MOMENTUM] = momentum


class FusedAdam(FusedOptimizer):
    """Adam, like torch.optim.AdamW, or, with adam_w_mode=False, like torch.optim.Adam."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        set_grad_none: bool = True,
        capturable: bool = False,
        master_weights: bool = False,
    ) -> None:
        """
        Args:
            params: parameters, or dicts of groups.
            lr, betas, eps: as in torch.optim.AdamW.
            bias_correction: the averages are divided by 1 - beta ** step.
            adam_w_mode: whether to leave the decay out of the gradient.
            weight_decay: of the weights.
            amsgrad: must be False, as in Apex.
            set_grad_none: zero_grad() removes gradients.
            capturable: must be False.
            master_weights: whether to keep float32 weights for 16-bit parameters, also in
                state_dict().

        Raises:
            NotImplementedError: an argument does not have its required value.
            ValueError: an argument is out of its range.
        """
        _refuse_amsgrad(type(self), amsgrad)
        if capturable:
            raise NotImplementedError(
                "capturable=True is not there: FusedAdam counts steps on the host, which a CUDA "
                "graph would not repeat. Use torch.optim.AdamW(capturable=True)"
            )
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
        }
        super().__init__(params, defaults, set_grad_none, master_weights)
        self.adam_w_mode = adam_w_mode

    def _update(self, batch: Batch) -> None:
        group = batch.group
        function = adamw if self.adam_w_mode else adam
        averages, squares = batch.buffers("exp_avg"), batch.buffers("exp_avg_sq")
        kernels = _kernels(function, batch.weights, batch.gradients)
        # torch adds 1 to this number of steps. Without bias correction the number is 1e30: beta **
        # 1e30 is 0, so the averages are not corrected.
        done = group["step"] - 1 if group["bias_correction"] else 1e30
        device = batch.weights[0].device if "fused" in kernels else "cpu"
        steps = torch.full((len(averages),), float(done), dtype=torch.float32, device=device)
        function(
            batch.weights,
            batch.gradients,
            averages,
            squares,
            [],
            list(steps.unbind()),
            **kernels,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


class FusedAdagrad(FusedOptimizer):
    """Adagrad, like torch.optim.Adagrad without learning rate decay."""

    counts_steps = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
        set_grad_none: bool = True,
        adagrad_w_mode: bool = False,
    ) -> None:
        """
        Args:
            params: parameters, or dicts of groups.
            lr, eps: as in torch.optim.Adagrad.
            weight_decay: of the weights.
            set_grad_none: zero_grad() removes gradients.
            adagrad_w_mode: whether to leave the decay out of the gradient.

        Raises:
            ValueError: an argument is out of its range.
        """
        defaults = {"lr": lr, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults, set_grad_none)
        self.adagrad_w_mode = adagrad_w_mode

    def _update(self, batch: Batch) -> None:
        if self.adagrad_w_mode:
            batch.decay()
        adagrad(
            batch.weights,
            batch.gradients,
            batch.buffers("sum"),
            list(torch.zeros(len(batch.weights)).unbind()),  # steps, for a rate decay of 0
            has_sparse_grad=False,
            foreach=True,
            lr=batch.group["lr"],
            weight_decay=0.0 if self.adagrad_w_mode else batch.group["weight_decay"],
            lr_decay=0.0,
            eps=batch.group["eps"],
            maximize=False,
        )


class FusedLAMB(FusedOptimizer):
    """LAMB: Adam with a step whose length is proportional to the length of the parameter.

    Algorithm 2 of You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76
    minutes" (arXiv:1904.00962), after Apex's clipping. g is a gradient, p a parameter and |...| the
    Euclidean norm:

        g = g / max(1, |all g| / max_grad_norm)
        m = beta1 m + beta3 g, where beta3 is 1 - beta1, or 1 without grad_averaging
        v = beta2 v + (1 - beta2) g^2
        u = m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay p
        p = p - lr (|p| / |u|) u, or p - lr u where a norm is 0

    Without adam_w_mode the decay is added to g instead of u. Without use_nvlamb the ratio of norms
    is 1 in groups without decay.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        adam_w_mode: bool = True,
        grad_averaging: bool = True,
        set_grad_none: bool = True,
        max_grad_norm: float = 1.0,
        use_nvlamb: bool = False,
    ) -> None:
        """
        Args:
            params: parameters, or dicts of groups.
            lr, betas, eps, weight_decay: see above.
            bias_correction: if false, m and v are not divided.
            amsgrad: must be False, as in Apex.
            adam_w_mode, grad_averaging, use_nvlamb: see above.
            set_grad_none: zero_grad() removes gradients.
            max_grad_norm: the largest norm of all gradients together; math.inf means no clipping.

        Raises:
            NotImplementedError: amsgrad is True.
            ValueError: an argument is out of its range.
        """
        _refuse_amsgrad(type(self), amsgrad)
        if not max_grad_norm > 0:
            raise ValueError(
                f"max_grad_norm is {max_grad_norm}: it must be above 0; math.inf clips nothing"
            )
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "grad_averaging": grad_averaging,
            "max_grad_norm": max_grad_norm,
        }
        super().__init__(params, defaults, set_grad_none)
        self.adam_w_mode = adam_w_mode
        self.use_nvlamb = use_nvlamb

    def _step_batches(self, batches: list[Batch]) -> None:
        gradients = [each for batch in batches for each in batch.gradients]
        largest = self.defaults["max_grad_norm"]
        if gradients and largest != math.inf:
            norm = torch.stack(list(torch._foreach_norm(gradients))).norm()
            divisor = (norm / largest).clamp(min=1.0)
            for batch in (each for each in batches if each.gradients):
                batch.gradients = _divided(batch.gradients, [divisor] * len(batch.gradients))
        super()._step_batches(batches)

    def _update(self, batch: Batch) -> None:
        group, weights = batch.group, batch.weights
        beta1, beta2 = group["betas"]
        decay = group["weight_decay"]
        gradients = batch.gradients
        if decay != 0 and not self.adam_w_mode:
            gradients = list(torch._foreach_add(gradients, weights, alpha=decay))
        averages, squares = batch.buffers("exp_avg"), batch.buffers("exp_avg_sq")
        _average(averages, gradients, beta1, group["grad_averaging"])
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - beta2)
        correction1, correction2 = _corrections(group)
        roots = torch._foreach_div(squares, correction2)
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["eps"])
        updates = list(torch._foreach_div(averages, correction1))
        torch._foreach_div_(updates, roots)
        if decay != 0 and self.adam_w_mode:
            torch._foreach_add_(updates, weights, alpha=decay)
        if decay != 0 or self.use_nvlamb:
            updates = self._in_proportion(updates, weights)
        torch._foreach_add_(weights, updates, alpha=-group["lr"])

    @staticmethod
    def _in_proportion(
        updates: list[torch.Tensor], weights: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        lengths = torch.stack(list(torch._foreach_norm(weights)))
        steps = torch.stack(list(torch._foreach_norm(updates)))
        has_both = (lengths != 0) & (steps != 0)
        inverse = torch.where(has_both, steps / lengths, torch.ones_like(steps))
        return _divided(updates, list(inverse.unbind()))


class FusedNovoGrad(FusedOptimizer):
    """NovoGrad: Adam with one second moment for each parameter tensor.

    Ginsburg et al., "Stochastic Gradient Methods with Layer-wise Adaptive Moments for Training of
    Deep Networks" (arXiv:1905.11286), with Apex's bias correction. g is a gradient, p a parameter
    and |...| the norm:

        n = sqrt(beta2 n^2 + (1 - beta2) |g|^2), or beta2 n + (1 - beta2) |g| of the largest value
        d = n / sqrt(1 - beta2^step) + eps
        m = beta1 m + beta3 g, where beta3 is 1 - beta1, or 1 without grad_averaging
        p = p - lr (m / (1 - beta1^step) / d + weight_decay p)

    With reg_inside_moment m averages g / d + weight_decay p, and p = p - lr m / (1 - beta1^step).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        reg_inside_moment: bool = False,
        grad_averaging: bool = True,
        norm_type: int = 2,
        init_zero: bool = False,
        set_grad_none: bool = True,
    ) -> None:
        """
        Args:
            params: parameters, or dicts of groups.
            lr, betas, eps, weight_decay: see above.
            bias_correction: if false, n and m are not divided.
            amsgrad: must be False, as in Apex.
            reg_inside_moment, grad_averaging: see above.
            norm_type: 2, or 0 for the largest absolute value.
            init_zero: n is 0 before the first step, instead of the first gradient's norm.
            set_grad_none: zero_grad() removes gradients.

        Raises:
            NotImplementedError: amsgrad is True.
            ValueError: an argument is out of its range.
        """
        _refuse_amsgrad(type(self), amsgrad)
        if norm_type not in (0, 2):
            raise ValueError(f"norm_type is {norm_type}: it must be 2, or 0 for the largest value")
        defaults = {
            "lr": lr,
            "bias_correction": bias_correction,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "grad_averaging": grad_averaging,
            "norm_type": norm_type,
            "init_zero": init_zero,
        }
        super().__init__(params, defaults, set_grad_none)
        self.reg_inside_moment = reg_inside_moment

    def _update(self, batch: Batch) -> None:
        group, weights, gradients = batch.group, batch.weights, batch.gradients
        correction1, correction2 = _corrections(group)
        norms = self._norms(batch)
        denominators = list((norms / math.sqrt(correction2) + group["eps"]).unbind())
        averages = batch.buffers("exp_avg")
        if self.reg_inside_moment:
            gradients = _divided(gradients, denominators)
            torch._foreach_add_(gradients, weights, alpha=group["weight_decay"])
        _average(averages, gradients, group["betas"][0], group["grad_averaging"])
        updates = list(torch._foreach_div(averages, correction1))
        if not self.reg_inside_moment:
            updates = _divided(updates, denominators)
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        torch._foreach_add_(weights, updates, alpha=-group["lr"])

    @staticmethod
    def _norms(batch: Batch) -> torch.Tensor:
        """Combines the gradients' norms with the states, and returns the states."""
        group, name = batch.group, "exp_avg_sq"  # Apex's name of the norm
        is_largest = group["norm_type"] == 0
        new = torch._foreach_norm(batch.gradients, math.inf if is_largest else 2.0)
        for state, norm in zip(batch.states, new):
            if name not in state:
                state[name] = torch.zeros_like(norm) if group["init_zero"] else norm
        old, now = torch.stack([state[name] for state in batch.states]), torch.stack(list(new))
        beta = group["betas"][1]
        blended: torch.Tensor
        if is_largest:
            blended = beta * old + (1 - beta) * now
        else:
            blended = (beta * old.square() + (1 - beta) * now.square()).sqrt()
        for state, norm in zip(batch.states, blended.unbind()):
            state[name] = norm.clone()
        return blended


def _refuse_amsgrad(optimizer: type, amsgrad: bool) -> None:
    if amsgrad:
        raise NotImplementedError(
            f"amsgrad=True is not there: {optimizer.__name__} has no such variant, as in Apex. Use "
            "torch.optim.AdamW(amsgrad=True)"
        )


@functools.cache
def _fused_devices(function: Callable[..., None]) -> tuple[str, ...]:
    if _foreach_utils is None or "fused" not in inspect.signature(function).parameters:
        return ()
    devices = getattr(_foreach_utils, "_get_fused_kernels_supported_devices", lambda: ["cuda"])()
    return tuple(device for device in ("cpu", "cuda") if device in devices)


def _kernels(function: Callable[..., None], *lists: list[torch.Tensor]) -> dict[str, Any]:
    """Returns the argument that makes `function` use its fastest implementation."""
    tensors = list(itertools.chain(*lists))
    devices = {tensor.device for tensor in tensors}
    # torch's fused kernels for CPUs read a gradient in the order of the parameter's elements,
    # whatever its strides.
    if (
        len(devices) == 1
        and tensors[0].device.type in _fused_devices(function)
        and all(tensor.is_contiguous() for tensor in tensors)
    ):
        return {"fused": True}
    return {"foreach": True}


def _divided(tensors: list[torch.Tensor], divisors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Divides each tensor by a tensor of one element. The divisors stay on their device."""
    return list(torch._foreach_div(tensors, divisors))


def _average(
    averages: list[torch.Tensor], values: list[torch.Tensor], beta: float, is_mean: bool
) -> None:
    torch._foreach_mul_(averages, beta)
    torch._foreach_add_(averages, values, alpha=1 - beta if is_mean else 1.0)


def _corrections(group: dict[str, Any]) -> tuple[float, float]:
    if not group["bias_correction"]:
        return 1.0, 1.0
    beta1, beta2 = group["betas"]
    return 1 - beta1 ** group["step"], 1 - beta2 ** group["step"]
