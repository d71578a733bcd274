# SPDX-License-Identifier: Apache-2.0

"""The part of the checked mode that detects changes to tensors while an operation uses them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ronda import _horovod
from ronda.torch import _tensors

_VARIABLE = "RONDA_CHECK"

# Whether the checked mode is on. None means that this job has not looked up the mode yet.
_is_on: bool | None = None
# In the checked mode, the number of results written in place to each storage, by address.
_results: Counter[int] = Counter()


def _forget() -> None:
    global _is_on
    _is_on = None
    _results.clear()


_horovod.at_shutdown(_forget)


def steps_between_checks() -> int:
    """Returns the value of RONDA_CHECK. 0 means no checks.

    Raises:
        ValueError: the value is not a number of steps.
    """
    text = os.environ.get(_VARIABLE) or "0"
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{_VARIABLE} is '{text}': it must be a number of steps, such as 100")
    return int(text)


class Watch:
    """Records the versions of tensors at the start of an operation on them."""

    __slots__ = ("_name", "_seen")

    def __init__(self, name: str, tensors: Sequence[torch.Tensor]) -> None:
        """
        Args:
            name: the name of the operation, for the error text.
            tensors: the tensors that the operation reads or writes.
        """
        self._name = name
        self._seen = [(each, _changes_of(each)) for each in tensors if not each.is_inference()]

    def check(self) -> None:
        """
        Raises:
            ValueError: the program has changed a tensor during the operation. The text names the
                operation.
        """
        for tensor, changes in self._seen:
            if _changes_of(tensor) > changes:
                raise ValueError(
                    f"{self._name}: {_tensors.describe(tensor)} was changed while its operation"
                    " ran, so the result may be of old elements, new ones, or both. Call"
                    " synchronize() before you change the tensor, or pass a clone() of it"
                )


def watch(name: str | None, tensors: Sequence[torch.Tensor]) -> Watch | None:
    """Starts to watch the tensors of an operation, in the checked mode."""
    global _is_on
    if _is_on is None:
        _is_on = steps_between_checks() > 0
    return Watch(name or "an operation without a name", tensors) if _is_on else None


def _changes_of(tensor: torch.Tensor) -> int:
    """Returns how often the program has changed a tensor, plus a constant."""
    return tensor._version - _results[_tensors.storage(tensor).data_ptr()]


def mark_changed(tensor: torch.Tensor) -> torch.Tensor:
    """Tells autograd that a result was written to a tensor, because autograd does not notice the
    write.
    """
    if not tensor.is_inference():
        _increment_version(tensor)
        if _is_on:
            _results[_tensors.storage(tensor).data_ptr()] += 1
    return tensor


def _change_nothing(tensor: torch.Tensor) -> None:
    """Increments the version of a tensor in versions of torch without increment_version(). Writes
    no element, but autograd counts the empty write as a change.
    """
    tensor.detach().view(-1)[:0].zero_()


_increment_version: Callable[[torch.Tensor], Any] = getattr(
    torch.autograd.graph, "increment_version", _change_nothing
)
