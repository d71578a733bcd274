# SPDX-License-Identifier: Apache-2.0

"""The arguments that a front end passes to Ronda in each call that reduces tensors."""

from __future__ import annotations

import dataclasses
from typing import Any

from ronda.process_sets import ProcessSet, global_process_set
from ronda.types import ReduceOp, Wire


@dataclasses.dataclass(frozen=True)
class Reduction:
    """The arguments of reductions.allreduce() that all tensors of a call share."""

    op: ReduceOp = ReduceOp.AVERAGE
    wire: Wire = Wire.NONE
    prescale: float = 1.0
    postscale: float = 1.0
    process_set: ProcessSet = global_process_set

    def options(self) -> dict[str, Any]:
        """Returns the keyword arguments for the functions of ronda.reductions."""
        return {
            "op": self.op,
            "compression": self.wire,
            "prescale": self.prescale,
            "postscale": self.postscale,
            "process_set": self.process_set,
        }

    def check_differentiable(self) -> None:
        """Raises NotImplementedError if the reduction has no gradient."""
        if self.op not in (ReduceOp.AVERAGE, ReduceOp.SUM):
            raise NotImplementedError(
                f"{self.op.name} has no gradient here: only Average and Sum have one"
            )


def of_gradients(
    op: ReduceOp, wire: Wire, predivide: float, factor: float, process_set: ProcessSet
) -> Reduction:
    """Returns the reduction of an optimizer's gradients.

    Args:
        op: how the ranks' gradients are combined.
        wire: the format in which the gradients are sent.
        predivide: for an average, the part of the divisor that is applied before the sum.
        factor: multiplies the result.
        process_set: the ranks that take part.

    Raises:
        ValueError: `op` does not support `predivide`.
    """
    op = ReduceOp(op)
    if predivide != 1.0 and op != ReduceOp.AVERAGE:
        raise ValueError("gradient_predivide_factor is for op=Average: leave it out")
    return Reduction(op, wire, 1.0 / predivide, predivide * factor, process_set)
