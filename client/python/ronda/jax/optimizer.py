# SPDX-License-Identifier: Apache-2.0

"""Data-parallel training with Optax optimizers."""

from __future__ import annotations

from typing import Any

from ronda.errors import InvalidArgumentError
from ronda.jax.operations import Compression, allreduce, broadcast
from ronda.process_sets import ProcessSet, global_process_set
from ronda.types import ReduceOp, Wire


def DistributedOptimizer(
    optimizer: Any,
    *,
    op: ReduceOp = ReduceOp.AVERAGE,
    compression: Wire = Compression.none,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
    error_feedback: bool = False,
    name: str = "gradients",
) -> Any:
    """Returns an optimizer that combines the gradients of all ranks before it passes them to
    `optimizer`.

    Args:
        optimizer: an optax.GradientTransformation. To add up the gradients of several passes, wrap
            the result in optax.MultiSteps.
        name: the name of the gradients. Two optimizers in one program need different names.
        op, compression, prescale, postscale, process_set, error_feedback: as for allreduce().

    Returns:
        A transformation of the same type.

    Raises:
        InvalidArgumentError: `optimizer` is not an optax.GradientTransformation.
    """
    if not all(callable(getattr(optimizer, each, None)) for each in ("init", "update", "_replace")):
        raise InvalidArgumentError(
            f"DistributedOptimizer: {type(optimizer).__name__} is not a GradientTransformation of"
            " Optax: pass one, such as optax.sgd(0.1)"
        )

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        reduced = allreduce(
            updates,
            op,
            name=name,
            compression=compression,
            prescale=prescale,
            postscale=postscale,
            process_set=process_set,
            error_feedback=error_feedback,
        )
        return optimizer.update(reduced, state, params, **extra)

    return optimizer._replace(update=update)


def broadcast_parameters(
    tree: Any, root: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns root's parameters or optimizer state on every rank, as a tree with the structure of
    `tree`.
    """
    return broadcast(tree, root, name="parameters", process_set=process_set)
