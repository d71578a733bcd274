# SPDX-License-Identifier: Apache-2.0

"""Replaces apex.multi_tensor_apply: a wrapper that calls an operation of ronda.apex.amp_C.

norm, _ = multi_tensor_applier(amp_C.multi_tensor_l2norm, overflow, [gradients], False)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["MultiTensorApply", "multi_tensor_applier"]


class MultiTensorApply:
    """Calls an operation with a chunk size, which amp_C's operations accept but do not need.

    Attributes:
        available: True. Programs check `available` before they import amp_C.
        chunk_size: elements, as passed to the constructor.
    """

    available = True

    def __init__(self, chunk_size: int) -> None:
        self.chunk_size = chunk_size

    def __call__(
        self,
        op: Callable[..., Any],
        noop_flag_buffer: torch.Tensor,
        tensor_lists: Sequence[Sequence[torch.Tensor]],
        *args: Any,
    ) -> Any:
        """Returns op(chunk_size, noop_flag_buffer, tensor_lists, *args)."""
        return op(self.chunk_size, noop_flag_buffer, tensor_lists, *args)


multi_tensor_applier = MultiTensorApply(2048 * 32)
