# SPDX-License-Identifier: Apache-2.0

"""Runs tests for GPUs on CPUs. In a process that calls install(), the CPU acts as every GPU.

Features that only GPUs have, such as streams and events, are missing, so tests of these features
fail on any backend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.parallel
from torch.overrides import TorchFunctionMode


def install(gpus: int) -> None:
    """Makes the CPU act as `gpus` GPUs in this process and its forked children, until they end."""
    answers = {"is_available": True, "device_count": gpus, "current_device": 0}
    nothing = ("set_device", "synchronize", "manual_seed")
    for module in (torch.cuda, getattr(torch, "accelerator", None)):
        for name, answer in (answers | dict.fromkeys(nothing)).items():
            if hasattr(module, name):
                setattr(module, name, _returning(answer))
    _let_ddp_take_device_ids()
    _OnCpu().__enter__()


def _returning(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _let_ddp_take_device_ids() -> None:
    ddp = torch.nn.parallel.DistributedDataParallel
    original = ddp.__init__

    def init(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, **kwargs: Any
    ) -> None:
        original(self, module, **kwargs)

    ddp.__init__ = init


class _OnCpu(TorchFunctionMode):
    """Places tensors on the CPU that a program requests on a GPU."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = {
            name: _on_cpu(value) if name == "device" else value
            for name, value in (kwargs or {}).items()
        }
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.to:
            args = (args[0], *map(_on_cpu, args[1:]))
        return func(*args, **kwargs)


def _on_cpu(device: Any) -> Any:
    """Returns the CPU for "cuda:0", torch.device("cuda", 0) or 0, and any other value unchanged."""
    is_gpu = isinstance(device, (str, torch.device)) and str(device).startswith("cuda")
    return torch.device("cpu") if is_gpu or type(device) is int else device
