# SPDX-License-Identifier: Apache-2.0

"""Reduces gradients on each Keras backend."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import keras

from ronda import _groups, reductions
from ronda._reduction import Reduction


@dataclasses.dataclass(frozen=True)
class GradientReduction:
    """A callable that reduces an optimizer's gradients with the options in its fields."""

    name: str
    reduction: Reduction
    compression: Any  # of ronda.tensorflow, or of ronda.keras
    sparse_as_dense: bool
    groups: _groups.Groups

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the reduced gradients. A gradient that is None stays None."""
        reduce = _BACKENDS[backend_name()]
        return _groups.reduce_in_groups(
            self.groups,
            gradients,
            variables,
            lambda ending, group: reduce(self, self.name + ending, group),
        )


def backend_name() -> str:
    """Returns the name of the library on which Keras runs.

    Raises:
        ValueError: ronda.keras does not support this library.
    """
    name: str = keras.backend.backend()
    if name not in _BACKENDS:
        raise ValueError(
            f"ronda.keras is for Keras on {', '.join(_BACKENDS)}, and not on {name}: set"
            " KERAS_BACKEND"
        )
    return name


def _on_tensorflow(how: GradientReduction, name: str, gradients: list[Any]) -> list[Any]:
    operations = importlib.import_module("ronda.tensorflow._operations")
    reduced: list[Any] = operations.reduce_gradients(
        "DistributedOptimizer",
        name,
        gradients,
        how.compression,
        how.reduction,
        how.sparse_as_dense,
    )
    return reduced


def _on_jax(how: GradientReduction, name: str, gradients: list[Any]) -> list[Any]:
    operations = importlib.import_module("ronda.jax.operations")
    reduced: list[Any] = operations.allreduce(
        gradients, name=name, grouped=True, **how.reduction.options()
    )
    return reduced


def _on_torch(how: GradientReduction, name: str, gradients: list[Any]) -> list[Any]:
    own = [gradient.detach().contiguous() for gradient in gradients]
    return reductions.grouped_allreduce(own, outs=own, name=name, **how.reduction.options())


_BACKENDS: dict[str, Callable[[GradientReduction, str, list[Any]], list[Any]]] = {
    "tensorflow": _on_tensorflow,
    "jax": _on_jax,
    "torch": _on_torch,
}
