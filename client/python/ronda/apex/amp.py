# SPDX-License-Identifier: Apache-2.0

"""Replaces apex.amp: mixed precision through torch.autocast, and loss scaling by Apex's rules.

The optimization levels, with torch.autocast:
    O0: float32.
    O1, O2: autocast over float32 weights, which are their own master weights; the loss is scaled.
    O3: a 16-bit model, including batch normalization unless keep_batchnorm_fp32 is set.
The 16-bit dtype is float16 on GPUs and bfloat16 on the CPU, unless cast_model_type overrides it.
This module scales losses itself instead of using torch's GradScaler, which lacks limits on the
scale, one scale per loss and, before torch 2.3, support for CPUs.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.amp.autocast_mode import autocast
from torch.nn.modules.batchnorm import _BatchNorm

from ronda.apex._loss_scale import LossScale, are_finite, multiply

__all__ = ["initialize", "load_state_dict", "master_params", "scale_loss", "state_dict"]

_LEVELS = ("O0", "O1", "O2", "O3")


_scales: list[LossScale] = [LossScale(1.0)]
# Optimizers whose gradients are still scaled, because of delay_unscale.
_delayed: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()


def initialize(
    models: Any,
    optimizers: Any = None,
    enabled: bool = True,
    opt_level: str = "O1",
    cast_model_type: torch.dtype | None = None,
    patch_torch_functions: bool | None = None,
    keep_batchnorm_fp32: bool | None = None,
    master_weights: bool | None = None,
    loss_scale: float | str | None = None,
    cast_model_outputs: torch.dtype | None = None,
    num_losses: int = 1,
    verbosity: int = 1,
    min_loss_scale: float | None = None,
    max_loss_scale: float = 2.0**24,
) -> Any:
    """Prepares models and optimizers for mixed precision. Call initialize() before the models and
    optimizers are distributed.

    Args:
        models: a module or a list; changed in place.
        optimizers: None, an optimizer or a list. After a loss with an overflow, the next step is
            skipped.
        enabled: if False, models and optimizers do not change, and losses are not scaled.
        opt_level: "O0" to "O3", see above.
        cast_model_type: the 16-bit dtype.
        patch_torch_functions, master_weights, verbosity: ignored, because autocast serves their
            purpose.
        keep_batchnorm_fp32: has an effect only in O3.
        loss_scale: a number, or "dynamic". None means the level's default, which is dynamic in O1
            and O2, else 1.
        cast_model_outputs: the dtype to which floating-point outputs are cast.
        num_losses: the number of losses, each with its own scale.
        min_loss_scale, max_loss_scale: limits of a dynamic scale. A minimum of None means 1: if
            gradients are not finite even at a scale of 1, a smaller scale would only hide the
            cause.

    Returns:
        `models`, or the pair of `models` and `optimizers` if optimizers are given.

    Raises:
        ValueError: the level does not exist.
    """
    if opt_level not in _LEVELS:
        raise ValueError(f"opt_level is {opt_level!r}: it must be one of {', '.join(_LEVELS)}")
    if enabled:
        for model in models if isinstance(models, (list, tuple)) else [models]:
            _prepare(model, opt_level, cast_model_type, bool(keep_batchnorm_fp32))
            if cast_model_outputs is not None:
                _Forward.wrap(model, _CastOutputs, cast_model_outputs)
        if loss_scale is None:
            loss_scale = "dynamic" if opt_level in ("O1", "O2") else 1.0
    else:
        loss_scale = 1.0
    _scales[:] = [_scale(loss_scale, min_loss_scale, max_loss_scale) for _ in range(num_losses)]
    return models if optimizers is None else (models, optimizers)


def _scale(scale: float | str, smallest: float | None, largest: float) -> LossScale:
    if scale != "dynamic":
        return LossScale(float(scale))
    return LossScale(
        min(2.0**16, largest), is_dynamic=True, smallest=smallest or 1.0, largest=largest
    )


def _prepare(model: nn.Module, level: str, dtype: torch.dtype | None, keeps_norms: bool) -> None:
    device = next((parameter.device.type for parameter in model.parameters()), "cpu")
    dtype = dtype or (torch.float16 if device == "cuda" else torch.bfloat16)
    if level in ("O1", "O2"):
        _Forward.wrap(model, autocast, device, dtype)
    elif level == "O3":
        model.to(dtype)
        for module in model.modules():
            if keeps_norms and isinstance(module, _BatchNorm):
                module.float()


class _Forward:
    """A wrapper of a model's forward(). A deep copy of the model gets a copy of the wrapper.

    The wrapper holds no bound method, because a copied bound method would still use the original's
    weights.
    """

    def __init__(self, model: nn.Module, wrapper: Any, args: Any) -> None:
        self._model = model
        self._wrapper = wrapper
        self._args = args
        self._inner = model.__dict__.get("forward")  # the model's own forward(), if it has one
        self.__signature__ = inspect.signature(model.forward)

    @classmethod
    def wrap(cls, model: nn.Module, wrapper: Any, *args: Any) -> None:
        """Decorates forward() with `wrapper(*args)`."""
        forward: Any = cls(model, wrapper, args)
        model.forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        forward: Any = self._inner or functools.partial(type(self._model).forward, self._model)
        return self._wrapper(*self._args)(forward)(*args, **kwargs)


class _CastOutputs:
    """A decorator that casts floating-point tensors in the result to a dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def _cast(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(self._dtype) if value.is_floating_point() else value
        if isinstance(value, dict):
            return {key: self._cast(each) for key, each in value.items()}
        return type(value)(map(self._cast, value)) if isinstance(value, (list, tuple)) else value

    def __call__(self, forward: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._cast(forward(*args, **kwargs))

        return call


def master_params(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Returns the parameters that `optimizer` updates, for instance to clip their gradients."""
    for group in optimizer.param_groups:
        yield from group["params"]


@contextlib.contextmanager
def scale_loss(
    loss: torch.Tensor,
    optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    loss_id: int = 0,
    model: nn.Module | None = None,
    delay_unscale: bool = False,
    delay_overflow_check: bool = False,
) -> Iterator[torch.Tensor]:
    """Yields the scaled loss. After the block, the gradients are those of the unscaled loss.

    They are added to the gradients of earlier blocks. After an overflow the next step() of each
    optimizer is skipped. If gradients are averaged over ranks, all ranks have the same gradients,
    and skip the same steps.

    Args:
        loss: the block calls backward() on the yielded loss.
        optimizers: their parameters get gradients from the loss.
        loss_id: the number of the loss, below num_losses.
        model: ignored.
        delay_unscale: another backward() adds to these gradients before they are unscaled.
        delay_overflow_check: ignored.
    """
    scale = _scales[loss_id]
    several: Sequence[Any] = optimizers if isinstance(optimizers, (list, tuple)) else [optimizers]
    # backward() adds to the gradients of earlier calls, and the end of this call divides the whole
    # sum by the scale. The earlier gradients are therefore multiplied by the scale first.
    multiply(_gradients(each for each in several if each not in _delayed), scale.value)
    yield loss.float() * scale.value
    if delay_unscale:
        _delayed.update(several)
        return
    _delayed.difference_update(several)
    gradients = _gradients(several)
    multiply(gradients, 1.0 / scale.value)
    has_overflowed = scale.is_dynamic and not are_finite(gradients)
    scale.update(has_overflowed)
    if has_overflowed:
        for optimizer in several:
            _skip_next_step(optimizer)


def _gradients(optimizers: Iterable[torch.optim.Optimizer]) -> list[torch.Tensor]:
    return [p.grad for each in optimizers for p in master_params(each) if p.grad is not None]


def _skip_next_step(optimizer: Any) -> None:
    step = optimizer.step
    if getattr(step, "is_skip", False):
        return

    def skip(*_: Any, **__: Any) -> None:
        optimizer.step = step

    skip.is_skip = True  # type: ignore[attr-defined]
    optimizer.step = skip


def state_dict() -> dict[str, dict[str, float]]:
    """Returns the scales, in the format of Apex."""
    return {
        f"loss_scaler{i}": {"loss_scale": scale.value, "unskipped": scale.unskipped}
        for i, scale in enumerate(_scales)
    }


def load_state_dict(state: dict[str, dict[str, float]]) -> None:
    """Restores the scales that state_dict() has returned.

    Raises:
        ValueError: the state has a different number of losses.
    """
    if len(state) != len(_scales):
        raise ValueError(f"the state has {len(state)} losses, and initialize() {len(_scales)}")
    for i, scale in enumerate(_scales):
        scale.value = state[f"loss_scaler{i}"]["loss_scale"]
        scale.unskipped = int(state[f"loss_scaler{i}"]["unskipped"])
