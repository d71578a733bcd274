# SPDX-License-Identifier: Apache-2.0

"""Reductions of gradients in each of Keras's backends."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from ronda import _carried_errors, reductions
from ronda._reduction import Reduction


@dataclasses.dataclass(frozen=True)
class GradientReduction:
    """How the gradients of an optimizer are reduced."""

    name: str
    reduction: Reduction
    compression: Any  # of ronda.tensorflow, or of ronda.keras
    sparse_as_dense: bool

    def __call__(self, gradients: Sequence[Any]) -> list[Any]:
        """The reduced gradients; None stays None."""
        present = [i for i, each in enumerate(gradients) if each is not None]
        reduced = list(gradients)
        if present:
            reduce = _BACKENDS[backend_name()]
            for i, each in zip(present, reduce(self, [gradients[i] for i in present])):
                reduced[i] = each
        return reduced


def backend_name() -> str:
    """The library on which Keras runs.

    Raises:
        ValueError: ronda.keras does not know it.
    """
    name: str = keras.backend.backend()
    if name not in _BACKENDS:
        raise ValueError(
            f"ronda.keras is for Keras on {', '.join(_BACKENDS)}, and not on {name}: set"
            " KERAS_BACKEND"
        )
    return name


def _on_tensorflow(how: GradientReduction, gradients: list[Any]) -> list[Any]:
    operations = importlib.import_module("ronda.tensorflow._operations")
    reduced: list[Any] = operations.reduce_gradients(
        "DistributedOptimizer",
        how.name,
        gradients,
        how.compression,
        how.reduction,
        how.sparse_as_dense,
    )
    return reduced


def _on_jax(how: GradientReduction, gradients: list[Any]) -> list[Any]:
    jax = importlib.import_module("jax")
    callbacks = importlib.import_module("jax.experimental")

    def run(*arrays: Any) -> list[np.ndarray]:
        with _carried_errors.kept():
            own = [np.asarray(array) for array in arrays]
            return reductions.grouped_allreduce(own, name=how.name, **how.reduction.options())

    results = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in gradients]
    # Ordered: XLA then neither removes nor duplicates a call, and keeps the program's order.
    reduced: list[Any] = callbacks.io_callback(run, results, *gradients, ordered=True)
    return reduced


def _on_torch(how: GradientReduction, gradients: list[Any]) -> list[Any]:
    own = [gradient.detach().contiguous() for gradient in gradients]
    return reductions.grouped_allreduce(own, outs=own, name=how.name, **how.reduction.options())


_BACKENDS: dict[str, Callable[[GradientReduction, list[Any]], list[Any]]] = {
    "tensorflow": _on_tensorflow,
    "jax": _on_jax,
    "torch": _on_torch,
}
