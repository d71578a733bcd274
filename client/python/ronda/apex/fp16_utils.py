# SPDX-License-Identifier: Apache-2.0

"""Replaces apex.fp16_utils: models in float16, and optimizers with float32 master parameters.

These functions convert to float16 on every device, as their names say. On CPUs, PyTorch computes in
float16 only since version 2; ronda.apex.amp uses bfloat16 on CPUs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import clip_grad_norm_ as clip_grad_norm

from ronda.apex._loss_scale import LossScale, are_finite, multiply

__all__ = [
    "BN_convert_float",
    "DynamicLossScaler",
    "FP16Model",
    "FP16_Optimizer",
    "LossScaler",
    "clip_grad_norm",
    "convert_module",
    "convert_network",
    "master_params_to_model_params",
    "model_grads_to_master_grads",
    "network_to_half",
    "prep_param_lists",
    "to_python_float",
    "tofp16",
]


def to_python_float(t: Any) -> float:
    """Returns the number in a tensor or sequence with one element."""
    return t.item() if hasattr(t, "item") else t[0]


class tofp16(nn.Module):  # noqa: N801
    """Converts its input to float16."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input.half()


def BN_convert_float(module: nn.Module) -> nn.Module:  # noqa: N802
    """Converts every batch normalization layer in `module` to float32, and returns `module`."""
    for each in module.modules():
        if isinstance(each, _BatchNorm):
            each.float()
    return module


def network_to_half(network: nn.Module) -> nn.Module:
    """Converts the inputs to float16, and converts `network` to float16 in place, except batch
    normalization.
    """
    return nn.Sequential(tofp16(), BN_convert_float(network.half()))


def convert_module(module: nn.Module, dtype: torch.dtype) -> None:
    """Converts floating-point parameters, gradients and buffers of `module` itself to `dtype`."""
    own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    for tensor in own:
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)
            if tensor.grad is not None:
                tensor.grad = tensor.grad.to(dtype)


def convert_network(network: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Converts `network`, except batch normalization layers with parameters, and returns
    `network`.
    """
    for module in network.modules():
        if isinstance(module, _BatchNorm) and module.affine:
            continue
        convert_module(module, dtype)
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()
    return network


class FP16Model(nn.Module):
    """Converts a network with convert_network(), and its inputs to float16."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = convert_network(network, dtype=torch.half)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.network(*(each.half() for each in inputs))


def prep_param_lists(
    model: nn.Module, flat_master: bool = False
) -> tuple[list[nn.Parameter], list[torch.Tensor]]:
    """Makes float32 copies of the trainable parameters.

    Args:
        model: the module that has the parameters.
        flat_master: whether one flat tensor holds all copies.

    Returns:
        The model's parameters, and the copies, which an optimizer has to update.

    Raises:
        ValueError: flat_master is set, and the parameters have several dtypes.
    """
    model_params = [each for each in model.parameters() if each.requires_grad]
    if not flat_master:
        copies = [each.detach().clone().float() for each in model_params]
        return model_params, [each.requires_grad_() for each in copies]
    dtypes = {each.dtype for each in model_params}
    if len(dtypes) > 1:
        raise ValueError(
            f"the model has parameters of {', '.join(sorted(map(str, dtypes)))}: flat_master=True "
            "takes those of one dtype. Pass flat_master=False, or use FP16_Optimizer"
        )
    master = nn.Parameter(_flat([each.detach() for each in model_params]).float())
    master.grad = torch.zeros_like(master)
    return model_params, [master]


@torch.no_grad()
def model_grads_to_master_grads(
    model_params: Sequence[torch.Tensor],
    master_params: Sequence[torch.Tensor],
    flat_master: bool = False,
) -> None:
    """Copies gradients. If a parameter has no gradient, its copy gets no gradient.

    Args:
        model_params, master_params, flat_master: as in prep_param_lists().

    Raises:
        ValueError: flat_master is set, and a parameter has no gradient.
    """
    if flat_master:
        gradients = [each.grad for each in model_params if each.grad is not None]
        if len(gradients) != len(model_params):
            missing = [i for i, each in enumerate(model_params) if each.grad is None]
            raise ValueError(
                f"parameters {missing} of model_params have no gradient, and the flat master would "
                "step on them as well: pass flat_master=False"
            )
        master_params[0].grad = _flat(gradients).to(master_params[0].dtype)
        return
    for model, master in zip(model_params, master_params):
        if model.grad is None:
            master.grad = None
        elif master.grad is None:
            master.grad = model.grad.to(master.dtype, copy=True)
        else:
            master.grad.copy_(model.grad)


@torch.no_grad()
def master_params_to_model_params(
    model_params: Sequence[torch.Tensor],
    master_params: Sequence[torch.Tensor],
    flat_master: bool = False,
) -> None:
    """Copies the master parameters to the model, after the optimizer has updated them.

    Args:
        model_params, master_params, flat_master: as in prep_param_lists().
    """
    masters: Iterable[torch.Tensor] = master_params
    if flat_master:
        masters = torch.split(master_params[0], [each.numel() for each in model_params])
    for model, master in zip(model_params, masters):
        model.copy_(master.view(model.shape) if flat_master else master)


def _flat(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


class LossScaler:
    """A constant loss scale."""

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = LossScale(scale)

    @property
    def loss_scale(self) -> float:
        """The factor."""
        return self._scale.value

    @loss_scale.setter
    def loss_scale(self, value: float) -> None:
        self._scale.value = float(value)

    cur_scale = loss_scale

    def has_overflow(self, params: Iterable[torch.Tensor]) -> bool:
        """Whether the gradients of `params` require a smaller scale."""
        gradients = (each.grad for each in params if each.grad is not None)
        return self._scale.is_dynamic and not are_finite(gradients)

    def update_scale(self, overflow: bool) -> None:
        """Updates the scale after a step."""
        self._scale.update(overflow)

    def scale_gradient(
        self, module: nn.Module, grad_in: Sequence[torch.Tensor], grad_out: Any
    ) -> tuple[torch.Tensor, ...]:
        """Scales gradients, as a backward hook of `module`."""
        return tuple(self.loss_scale * each for each in grad_in)

    def backward(self, loss: torch.Tensor, retain_graph: bool = False) -> None:
        """Computes the gradients of the scaled loss."""
        scaled: Any = loss * self.loss_scale
        scaled.backward(retain_graph=retain_graph)

    def state_dict(self) -> dict[str, float]:
        """The scale, and the steps since the last overflow."""
        return {"loss_scale": self._scale.value, "unskipped": self._scale.unskipped}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Restores the state that state_dict() has returned."""
        self._scale.value = float(state_dict["loss_scale"])
        self._scale.unskipped = int(state_dict["unskipped"])


class DynamicLossScaler(LossScaler):
    """A loss scale that falls after an overflow, and rises after `scale_window` steps without an
    overflow.

    Args:
        init_scale: the first scale.
        scale_factor: the number by which the scale is divided or multiplied.
        scale_window: a number of steps.
    """

    def __init__(
        self, init_scale: float = 2.0**32, scale_factor: float = 2.0, scale_window: int = 1000
    ) -> None:
        self._scale = LossScale(
            init_scale, is_dynamic=True, factor=scale_factor, window=scale_window
        )


class FP16_Optimizer:  # noqa: N801
    """An optimizer that updates float32 copies of 16-bit parameters, with a loss scale.

    optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), 0.1), dynamic_loss_scale=True)
    optimizer.zero_grad()
    optimizer.backward(loss)
    optimizer.step()

    If gradients are averaged over ranks, all ranks have the same gradients, and skip the same
    steps.

    Attributes:
        optimizer: the constructor's optimizer, which now updates the copies.
        overflow: whether the last gradients were not finite; if so, step() does not change the
            parameters.
        loss_scaler: the LossScaler or DynamicLossScaler.
        fp16_groups, fp32_from_fp16_groups, fp32_from_fp32_groups: for each group, the 16-bit
            parameters, their copies, and the other parameters.
    """

    def __init__(
        self,
        init_optimizer: torch.optim.Optimizer,
        static_loss_scale: float = 1.0,
        dynamic_loss_scale: bool = False,
        dynamic_loss_args: dict[str, Any] | None = None,
        verbose: bool = True,
    ) -> None:
        """
        Args:
            init_optimizer: an optimizer of 16-bit or 32-bit parameters, which this object changes.
            static_loss_scale: used unless dynamic_loss_scale is set.
            dynamic_loss_scale: use a DynamicLossScaler.
            dynamic_loss_args: arguments of its constructor.
            verbose: ignored: nothing is printed.

        Raises:
            TypeError: a parameter has a different dtype.
        """
        self.optimizer = init_optimizer
        self.overflow = False
        self.dynamic_loss_scale = dynamic_loss_scale
        self.loss_scaler: LossScaler = (
            DynamicLossScaler(**(dynamic_loss_args or {}))
            if dynamic_loss_scale
            else LossScaler(static_loss_scale)
        )
        self.fp16_groups: list[list[torch.Tensor]] = []
        self.fp32_from_fp16_groups: list[list[torch.Tensor]] = []
        self.fp32_from_fp32_groups: list[list[torch.Tensor]] = []
        self._is_unscaled = False  # the gradients of parameters of 32 bits
        for group in self.optimizer.param_groups:
            self._copy_parameters(group)
        # Casts an existing state to the dtype of the copies.
        self.optimizer.load_state_dict(self.optimizer.state_dict())

    def _copy_parameters(self, group: dict[str, Any]) -> None:
        narrow: list[torch.Tensor] = []
        copies: list[torch.Tensor] = []
        others: list[torch.Tensor] = []
        for i, parameter in enumerate(group["params"]):
            if not parameter.requires_grad:
                continue
            if parameter.dtype in (torch.float16, torch.bfloat16):
                master = parameter.detach().clone().float().requires_grad_()
                group["params"][i] = master
                if parameter in self.optimizer.state:
                    self.optimizer.state[master] = self.optimizer.state.pop(parameter)
                narrow.append(parameter)
                copies.append(master)
            elif parameter.dtype == torch.float32:
                others.append(parameter)
            else:
                raise TypeError(
                    f"a parameter of shape {tuple(parameter.shape)} is of {parameter.dtype}: "
                    "FP16_Optimizer takes float16, bfloat16 and float32"
                )
        self.fp16_groups.append(narrow)
        self.fp32_from_fp16_groups.append(copies)
        self.fp32_from_fp32_groups.append(others)

    def zero_grad(self, set_grads_to_None: bool = False) -> None:  # noqa: N803
        """Sets the gradients of the model and of the copies to zero, or removes them."""
        for parameter in itertools.chain(self._model_params(), self._masters()):
            if set_grads_to_None:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = parameter.grad.detach().zero_()

    def backward(
        self, loss: torch.Tensor, update_master_grads: bool = True, retain_graph: bool = False
    ) -> None:
        """Computes gradients, and adds them to the existing gradients. Replaces loss.backward().

        Args:
            loss: is scaled in float32.
            update_master_grads: if false, the program calls update_master_grads() after the last of
                several losses.
            retain_graph: whether another backward pass uses the graph.
        """
        if self._is_unscaled:
            multiply(_gradients(self._others()), self.loss_scale)
            self._is_unscaled = False
        self.loss_scaler.backward(loss.float(), retain_graph=retain_graph)
        if update_master_grads:
            self.update_master_grads()

    def update_master_grads(self) -> None:
        """Copies the model's gradients to the float32 copies of the parameters, and divides them
        there by the scale.
        """
        self.overflow = self.loss_scaler.has_overflow(self._model_params())
        if self.overflow:
            return
        for model_params, masters in zip(self.fp16_groups, self.fp32_from_fp16_groups):
            model_grads_to_master_grads(model_params, masters)
        multiply(_gradients(self._masters()), 1.0 / self.loss_scale)
        self._is_unscaled = True

    def clip_master_grads(self, max_norm: float, norm_type: float = 2) -> Any:
        """Clips the norm of the gradients that step() uses.

        Returns:
            The norm before clipping, or -1 after an overflow.
        """
        if self.overflow:
            return -1
        return clip_grad_norm(list(self._masters()), max_norm, norm_type)

    def inspect_master_grad_data(self) -> list[list[torch.Tensor | None]] | None:
        """The gradients that step() uses, for each group; None after an overflow."""
        if self.overflow:
            return None
        return [[each.grad for each in group["params"]] for group in self.param_groups]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the float32 copies, and then the model. After an overflow, only updates the
        scale.

        Args:
            closure: recomputes the loss with zero_grad() and backward() of this object.

        Returns:
            The result of the optimizer's step().

        Raises:
            TypeError: a closure was passed, and the scale is dynamic. A step with a closure cannot
                be skipped halfway.
        """
        if closure is not None and self.dynamic_loss_scale:
            raise TypeError("step() takes a closure with a static loss scale only")
        self.loss_scaler.update_scale(self.overflow)
        if self.overflow:
            return None
        result = self.optimizer.step(self._fresh(closure)) if closure else self.optimizer.step()
        self._update_model()
        return result

    def _fresh(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> Any:
            self._update_model()  # an optimizer may call the closure several times
            return closure()

        return call

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state, the scale and the copies of the parameters."""
        return {
            "loss_scaler": self.loss_scaler.state_dict(),
            "dynamic_loss_scale": self.dynamic_loss_scale,
            "overflow": self.overflow,
            "optimizer_state_dict": self.optimizer.state_dict(),
            "fp32_from_fp16": [
                [each.detach().clone() for each in group] for group in self.fp32_from_fp16_groups
            ],
        }

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sets the state to that of a state_dict(). The program loads the model's state separately.

        Raises:
            ValueError: the state belongs to the other kind of loss scale.
        """
        if state_dict["dynamic_loss_scale"] != self.dynamic_loss_scale:
            raise ValueError(
                f"the state is of dynamic_loss_scale={state_dict['dynamic_loss_scale']}: pass it "
                "to the constructor"
            )
        self.loss_scaler.load_state_dict(state_dict["loss_scaler"])
        self.overflow = state_dict["overflow"]
        self.optimizer.load_state_dict(state_dict["optimizer_state_dict"])
        for masters, saved in zip(self.fp32_from_fp16_groups, state_dict["fp32_from_fp16"]):
            master_params_to_model_params(masters, saved)

    @property
    def loss_scale(self) -> float:
        """The factor of the loss, which a program may set."""
        return self.loss_scaler.loss_scale

    @loss_scale.setter
    def loss_scale(self, value: float) -> None:
        self.loss_scaler.loss_scale = value

    @property
    def state(self) -> Any:
        """The optimizer's state."""
        return self.optimizer.state

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The optimizer's groups, for instance to set the learning rate."""
        return self.optimizer.param_groups

    def _update_model(self) -> None:
        for model_params, masters in zip(self.fp16_groups, self.fp32_from_fp16_groups):
            master_params_to_model_params(model_params, masters)

    def _model_params(self) -> Iterator[torch.Tensor]:
        return itertools.chain(*self.fp16_groups, *self.fp32_from_fp32_groups)

    def _others(self) -> Iterator[torch.Tensor]:
        return itertools.chain(*self.fp32_from_fp32_groups)

    def _masters(self) -> Iterator[torch.Tensor]:
        return itertools.chain(*self.fp32_from_fp16_groups, *self.fp32_from_fp32_groups)


def _gradients(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [each.grad for each in parameters if each.grad is not None]
