# SPDX-License-Identifier: Apache-2.0

"""Handles gradients that the program changes after backward() has reduced them, and before step().

If every rank makes the same change, for example by clipping, the gradients stay equal on all ranks.
A change may also depend on the rank, so the ranks compare changed gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ronda.torch._async_operations import allreduce_async_
from ronda.torch._fingerprints import differ, fingerprint
from ronda.torch._gradient import DENSE, NOTHING, Gradient, Reduction, kind_of
from ronda.torch._report import CHANGES, Exchange, Report
from ronda.types import ReduceOp

ON_SOME_RANKS = (
    "the gradient of '%s' was changed between backward() and step() on some ranks only: change"
    " gradients on every rank, or call optimizer.synchronize() before and step() within"
    " optimizer.skip_synchronize()"
)
CHANGED = (
    "the gradient of '%s' was changed while it was being reduced, on this rank or another: change"
    " gradients when backward() has returned; call optimizer.synchronize() before, and step()"
    " within optimizer.skip_synchronize(), if some ranks do not use the parameter"
)
_IN_OTHER_WAYS = (
    "the gradient of '%s' was changed between backward() and step(), on each rank in another way:"
    " only dense gradients of op=Average are averaged again"
)


def settle(gradients: Sequence[Gradient], exchange: Exchange, reduction: Reduction) -> None:
    """Averages changed gradients again, unless they are bitwise equal on all ranks.

    Every rank that has changed a gradient must call this function.

    Raises:
        ValueError: only some ranks have changed gradients, or a changed gradient cannot be
            averaged.
    """
    exchange.begin(_own_report(gradients))
    everyone = exchange.finish()
    changed = [each for each, flag in zip(gradients, everyone.changed) if flag]
    if not everyone.is_of_one_stage:
        raise ValueError(ON_SOME_RANKS % changed[0].name)
    differing = _differing(changed, reduction)
    forms = zip(gradients, everyone.lacks, everyone.kinds)
    dense = {each for each, lacks, kind in forms if kind == DENSE and not lacks}
    for each in differing:
        if reduction.op != ReduceOp.AVERAGE or each not in dense:
            raise ValueError(_IN_OTHER_WAYS % each.name)
    _average(differing, reduction)


def _own_report(gradients: Sequence[Gradient]) -> Report:
    kinds = bytes(kind_of(each.parameter.grad) for each in gradients)
    lacks = bytes(kind == NOTHING for kind in kinds)
    changed = bytes(each.is_changed() for each in gradients)
    return Report(lacks, kinds, changed, False, CHANGES)


def _differing(changed: Sequence[Gradient], reduction: Reduction) -> list[Gradient]:
    device = changed[0].parameter.device
    numbers = [fingerprint(each.parameter.grad).to(device) for each in changed]
    name = f"fingerprints of {changed[0].name} and {len(changed) - 1} more gradients"
    flags = differ(torch.stack(numbers), name, reduction.process_set)
    return [each for each, is_other in zip(changed, flags) if is_other]


def _average(gradients: Sequence[Gradient], reduction: Reduction) -> None:
    under_way = []
    for gradient in gradients:
        value = gradient.parameter.grad
        assert value is not None
        rows = value.detach().contiguous()
        handle = allreduce_async_(
            rows, name=gradient.name, op=ReduceOp.AVERAGE, process_set=reduction.process_set
        )
        under_way.append((handle, value, rows))
    for handle, value, rows in under_way:
        handle.wait()
        if rows.data_ptr() != value.data_ptr():
            value.copy_(rows)
