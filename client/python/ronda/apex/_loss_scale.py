# SPDX-License-Identifier: Apache-2.0

"""The loss scale, and the check for gradients that are not finite."""

from __future__ import annotations

from collections.abc import Iterable

import torch

__all__ = ["LossScale", "are_finite", "multiply"]


class LossScale:
    """A loss scale. update() divides it after a step with an overflow, and multiplies it after
    `window` steps without an overflow.

    Attributes:
        is_dynamic: whether update() changes the scale.
        value: the scale.
        unskipped: the number of steps since the last overflow or the last growth of the scale.
    """

    def __init__(
        self,
        value: float,
        is_dynamic: bool = False,
        factor: float = 2.0,
        window: int = 2000,
        smallest: float = 1.0,
        largest: float = float("inf"),
    ) -> None:
        self.is_dynamic = is_dynamic
        self.value = float(value)
        self.unskipped = 0
        self._factor = factor
        self._window = window
        self._smallest = smallest
        self._largest = largest

    def update(self, has_overflowed: bool) -> None:
        """Updates the scale after a step."""
        if not self.is_dynamic:
            return
        self.unskipped = 0 if has_overflowed else self.unskipped + 1
        if has_overflowed:
            self.value = max(self.value / self._factor, self._smallest)
        elif self.unskipped == self._window:
            self.value = min(self.value * self._factor, self._largest)
            self.unskipped = 0


def are_finite(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Returns a boolean tensor on the device of `tensors`, so that the host does not wait for a
    GPU.
    """
    dense = [tensor.detach() for tensor in tensors if tensor.numel() > 0]
    if not dense:
        return torch.tensor(True)
    # Computes in float32, because old versions of torch have no float16 kernels for the CPU.
    return torch.stack([tensor.float().abs().max() for tensor in dense]).isfinite().all()


def multiply(tensors: Iterable[torch.Tensor], factor: float) -> None:
    """Multiplies tensors in place."""
    several = list(tensors)
    if several and factor != 1.0:
        torch._foreach_mul_(several, factor)
