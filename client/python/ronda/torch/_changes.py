"""Gradients that the program changes after backward() has made them whole, and before step().

A change that every rank makes alike, as clipping does, leaves the ranks equal. One that depends on
the rank would not, so the ranks compare what they have then.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from ronda.torch import _tensors
from ronda.torch._async_operations import allreduce_async_
from ronda.torch._gradient import DENSE, NOTHING, Gradient, Reduction, kind_of
from ronda.torch._report import CHANGES, Exchange, Report
from ronda.types import ReduceOp

# By bytes of an element: the integers that it is looked at as. They have at most 32 bits, so that
# each of them counts in a product of 64.
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int32}
_PART = 1 << 18  # words that are looked at together
_MULTIPLIER = 6364136223846793005

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

    Every rank that has changed a gradient calls it.

    Raises:
        ValueError: some ranks have not changed a gradient, or what a rank has changed has no
            average.
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
    """An int64, where the elements are, that depends on every bit of them and on its place."""
    if value is None:
        return torch.tensor(-1)
    if value.is_sparse:
        return _fingerprint(value._indices()) ^ _fingerprint(value._values())
    elements = _tensors.plain(value.detach()).contiguous().view(-1)
    words = elements.view(_WORDS[value.element_size()])
    factors, number = _factors(value.device), torch.tensor(0)
    for begin in range(0, len(words), _PART):
        part = words[begin : begin + _PART].long()
        of_part = part.mul_(factors[: len(part)]).sum()
        number = of_part if begin == 0 else of_part.add_(number, alpha=_MULTIPLIER)
    return number


@functools.lru_cache
def _factors(device: torch.device) -> torch.Tensor:
    """One for each place in a part; the same on every rank. Sums and products are modulo 2^64."""
    generator = torch.Generator("cpu").manual_seed(0)  # the program's default device may differ
    factors = torch.empty(_PART, dtype=torch.int64, device="cpu").random_(generator=generator)
    return factors.to(device)


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
