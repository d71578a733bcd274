"""Gradients that the program changes after backward() has made them whole, and before step().

A change that every rank makes alike, as clipping does, leaves the ranks equal. One that depends on
the rank would not, so the ranks compare what they have then.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ronda.torch._async_operations import allreduce_async_
from ronda.torch._gradient import Gradient, Reduction
from ronda.torch._report import CHANGES, Exchange, Report
from ronda.types import ReduceOp

# The integers that have as many bytes as an element.
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

ON_SOME_RANKS = (
    "the gradient of '%s' was changed between backward() and step() on some ranks only: change"
    " gradients on every rank, or call optimizer.synchronize() before and step() within"
    " optimizer.skip_synchronize()"
)
_IN_OTHER_WAYS = (
    "the gradient of '%s' was changed between backward() and step(), on each rank in another way:"
    " only dense gradients of op=Average are averaged again"
)


def settle(gradients: Sequence[Gradient], exchange: Exchange, reduction: Reduction) -> None:
    """Averages the changed gradients again that are not the same on all ranks, to the last bit.

    Called on every rank, of which each has changed a gradient.

    Raises:
        ValueError: some ranks have changed none; or there is no average of what was changed.
    """
    none = bytes(len(gradients))
    own = bytes(each.is_changed() for each in gradients)
    exchange.begin(Report(none, none, own, False, CHANGES))
    everyone = exchange.finish()
    changed = [each for each, flag in zip(gradients, everyone.changed) if flag]
    if not everyone.is_of_one_stage:
        raise ValueError(ON_SOME_RANKS % changed[0].name)
    _average(_differing(changed, reduction), reduction)


def _differing(changed: Sequence[Gradient], reduction: Reduction) -> list[Gradient]:
    numbers = [_fingerprint(each.parameter.grad) for each in changed]
    device = changed[0].parameter.device
    own = torch.stack([number.to(device) for number in numbers])
    both = torch.cat([own, ~own])  # the largest of ~x belongs to the smallest x
    name = f"fingerprints of {changed[0].name} and {len(changed) - 1} more gradients"
    handle = allreduce_async_(both, name=name, op=ReduceOp.MAX, process_set=reduction.process_set)
    largest, smallest = handle.wait().view(2, -1)
    differs = (largest != ~smallest).tolist()  # a GPU is waited for once, here
    return [each for each, is_other in zip(changed, differs) if is_other]


def _fingerprint(value: torch.Tensor | None) -> torch.Tensor:
    """An int64 that depends on every bit of the elements, in no order, where these are."""
    if value is None:
        return torch.tensor(-1)
    if value.is_sparse:
        return _fingerprint(value._indices()) ^ _fingerprint(value._values())
    return value.detach().view(_BITS[value.element_size()]).sum(dtype=torch.int64)


def _average(gradients: Sequence[Gradient], reduction: Reduction) -> None:
    for gradient in gradients:
        value = gradient.parameter.grad
        if value is None or value.is_sparse or reduction.op != ReduceOp.AVERAGE:
            raise ValueError(_IN_OTHER_WAYS % gradient.name)
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
