# SPDX-License-Identifier: Apache-2.0

"""The parts of NVIDIA's Apex that trainers import; Apex itself has removed many of them.

from ronda import apex
optimizer = apex.optimizers.FusedAdam(model.parameters())
model, optimizer = apex.amp.initialize(model, optimizer, opt_level="O1")
model = apex.parallel.DistributedDataParallel(model)
with apex.amp.scale_loss(loss, optimizer) as scaled_loss:
    scaled_loss.backward()

A submodule is imported at its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ronda.apex import amp, amp_C, fp16_utils, multi_tensor_apply, optimizers, parallel

__all__ = ["amp", "amp_C", "fp16_utils", "multi_tensor_apply", "optimizers", "parallel"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"ronda.apex.{name}")
    raise AttributeError(f"module 'ronda.apex' has no attribute {name!r}: it has {__all__}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
