# SPDX-License-Identifier: Apache-2.0

"""The settings of a training run, named as in Paddle's DistributedStrategy."""

from __future__ import annotations

import copy
import difflib
from typing import Any

from ronda.types import ReduceOp

# Settings that have an effect, with Paddle's defaults.
_SETTINGS: dict[str, Any] = {
    "find_unused_parameters": False,
    "fp16_allreduce": False,
    "fuse_all_reduce_ops": True,
    "fuse_grad_size_in_MB": 32,
    "gradient_merge": False,
    "gradient_merge_configs": {"k_steps": 1, "avg": True},
    "gradient_scale_configs": {"scale_strategy": "avg"},
}

# Settings that are accepted but have no effect, because they concern Paddle's own communication.
_WITHOUT_EFFECT = (
    "cudnn_batchnorm_spatial_persistent",
    "cudnn_exhaustive_search",
    "conv_workspace_size_limit",
    "fuse_grad_size_in_num",
    "hierarchical_allreduce_inter_nranks",
    "last_comm_group_size_MB",
    "nccl_comm_num",
    "sync_nccl_allreduce",
    "use_hierarchical_allreduce",
    "without_graph_optimization",
)

# Settings that would change the training, but are not implemented. Only False is accepted.
_SWITCHES = {
    "a_sync": "Ronda has no parameter servers",
    "adaptive_localsgd": "Ronda does not have it",
    "amp": "call paddle.amp.auto_cast() in the program",
    "asp": "Ronda does not have it",
    "auto": "Ronda replicates models",
    "dgc": "Ronda has it for trainers in C++ only, as ronda::training::TopK",
    "heter_ccl_mode": "Ronda does not have it",
    "lamb": "use paddle.optimizer.Lamb",
    "lars": "use an optimizer that has it",
    "localsgd": "Ronda has it for trainers in C++ only, as ronda::training::LocalSgd",
    "pipeline": "Ronda replicates models",
    "qat": "Ronda does not have it",
    "recompute": "call paddle.distributed.fleet.utils.recompute() in the model",
    "semi_auto": "Ronda replicates models",
    "sharding": "Ronda replicates models",
    "sync_batch_norm": "Ronda does not have it for Paddle",
    "tensor_parallel": "Ronda replicates models",
}


def _nearest(name: str, known: list[str]) -> str:
    found = difflib.get_close_matches(name, known, 1)
    return f"; is it {found[0]}?" if found else f"; there are {', '.join(sorted(known))}"


class DistributedStrategy:
    """Settings are attributes, named as in Paddle. A program may assign a dict to a configuration;
    keys that are missing from the dict keep their values.

    Raises, when an attribute is set:
        AttributeError: the setting is unknown. The text suggests the known setting with the most
            similar name.
        ValueError: Ronda does not support the setting, or the value has the wrong type.
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = copy.deepcopy(_SETTINGS)
        self._given: set[str] = set()  # by the program

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._values:
            return self._values[name]
        if name in _SWITCHES:
            return False
        known = [*_SETTINGS, *_WITHOUT_EFFECT, *_SWITCHES]
        raise AttributeError(f"DistributedStrategy has no {name}{_nearest(name, known)}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        elif name in _SETTINGS:
            self._values[name] = self._checked(name, value)
            self._given.add(name)
        elif name in _WITHOUT_EFFECT:
            self._values[name] = value
        elif name.removesuffix("_configs") in _SWITCHES and name not in _SWITCHES:
            self._values[name] = value  # the configuration of a feature that cannot be switched on
        elif name not in _SWITCHES:
            known = [*_SETTINGS, *_WITHOUT_EFFECT, *_SWITCHES]
            raise AttributeError(f"DistributedStrategy has no {name}{_nearest(name, known)}")
        elif value:
            raise ValueError(f"DistributedStrategy.{name} is not there: {_SWITCHES[name]}")

    def job_options(self) -> dict[str, int]:
        """Returns the fields of ronda_options that the program has set."""
        if not self.fuse_all_reduce_ops:
            return {"fusion_threshold": -1}
        if "fuse_grad_size_in_MB" not in self._given:
            return {}
        return {"fusion_threshold": int(self.fuse_grad_size_in_MB * 2**20)}

    def op(self) -> ReduceOp:
        """Returns the operation that reduces the gradients."""
        is_sum = self.gradient_scale_configs["scale_strategy"] == "sum"
        return ReduceOp.SUM if is_sum else ReduceOp.AVERAGE

    def merging(self) -> tuple[int, float]:
        """Returns the number of backward passes per step, and the factor that multiplies the sum of
        their gradients.
        """
        if not self.gradient_merge:
            return 1, 1.0
        configs = self.gradient_merge_configs
        return configs["k_steps"], 1 / configs["k_steps"] if configs["avg"] else 1.0

    def _checked(self, name: str, value: Any) -> Any:
        default = _SETTINGS[name]
        if isinstance(default, dict):
            return self._checked_configs(name, default, value)
        self._check_kind(name, default, value)
        if name == "fuse_grad_size_in_MB" and value <= 0:
            raise ValueError(f"DistributedStrategy.{name} is {value}: it must be above 0")
        return value

    def _checked_configs(self, name: str, defaults: dict[str, Any], value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"DistributedStrategy.{name} takes a dict, and got {value!r}")
        for key, each in value.items():
            if key not in defaults:
                raise ValueError(
                    f"DistributedStrategy.{name} has no {key}{_nearest(key, list(defaults))}"
                )
            self._check_kind(f"{name}[{key!r}]", defaults[key], each)
        merged = {**self._values[name], **value}
        if merged.get("k_steps", 1) < 1:
            raise ValueError(f"DistributedStrategy.{name}: k_steps is {merged['k_steps']}, below 1")
        if merged.get("scale_strategy", "avg") not in ("avg", "sum"):
            raise ValueError(
                f"DistributedStrategy.{name}: scale_strategy is {merged['scale_strategy']!r}; it"
                " may be 'avg' or 'sum'"
            )
        return merged

    @staticmethod
    def _check_kind(name: str, default: Any, value: Any) -> None:
        wanted = (int, float) if name == "fuse_grad_size_in_MB" else (type(default),)
        is_bool = isinstance(value, bool)
        if not isinstance(value, wanted) or is_bool != isinstance(default, bool):
            raise ValueError(
                f"DistributedStrategy.{name} takes a {type(default).__name__}, and got {value!r}"
            )
