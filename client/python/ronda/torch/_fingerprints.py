# SPDX-License-Identifier: Apache-2.0

"""Fingerprints, which ranks exchange to compare their tensors. If two tensors differ, their
fingerprints almost certainly differ.
"""

from __future__ import annotations

import functools

import torch

from ronda.process_sets import ProcessSet
from ronda.torch import _tensors
from ronda.torch._async_operations import allreduce_async_
from ronda.types import ReduceOp

# By element size in bytes, the integer type of the words in which tensors are read. A word has at
# most 32 bits, so its 64-bit product with a factor depends on each bit of the word.
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int32}
_PART = 1 << 18  # words that are processed together
_MULTIPLIER = 6364136223846793005


def fingerprint(value: torch.Tensor | None) -> torch.Tensor:
    """Returns an int64 that depends on every bit of the tensor, and on the position of each bit.
    The result is on the tensor's device.

    The fingerprint does not depend on strides, the number of threads, or whether a GPU computes it.
    If two tensors of the same shape and dtype differ in a single word, their fingerprints always
    differ.
    """
    if value is None:
        return torch.tensor(-1)
    if value.is_sparse:
        value = value.detach().coalesce()
        return combine([fingerprint(value.indices()), fingerprint(value.values())])
    if value.is_complex():
        value = torch.view_as_real(value.detach().resolve_conj())
    elements = _tensors.plain(value.detach()).contiguous().view(-1)
    words = elements.view(_WORDS[value.element_size()])
    factors = _factors(value.device)
    parts = [
        words[begin : begin + _PART].long().mul_(factors[: len(words) - begin]).sum()
        for begin in range(0, len(words), _PART)
    ]
    return combine(parts) if parts else torch.tensor(0)


def combine(numbers: list[torch.Tensor]) -> torch.Tensor:
    """Combines several fingerprints, in their order. Sums and products are modulo 2^64."""
    total = numbers[0]
    for number in numbers[1:]:
        total = number.add(total, alpha=_MULTIPLIER)
    return total


@functools.lru_cache
def _factors(device: torch.device) -> torch.Tensor:
    """Returns an odd factor for each position in a part. The factors are the same on every rank."""
    generator = torch.Generator("cpu").manual_seed(0)  # the program's default device may differ
    factors = torch.empty(_PART, dtype=torch.int64, device="cpu").random_(generator=generator)
    return (factors | 1).to(device)


def differ(numbers: torch.Tensor, name: str, process_set: ProcessSet) -> list[bool]:
    """Returns for each number whether its value differs between ranks. A collective operation.

    Args:
        numbers: a tensor of dtype int64 and shape [n].
        name: the name of the operation.
        process_set: the ranks that compare.
    """
    # The maximum of ~x gives the minimum of x. The fingerprints are moved to host memory, because
    # another rank may have no GPU tensors. No other line of the checks makes the host wait for a
    # GPU.
    both = torch.cat([numbers, ~numbers]).cpu()
    handle = allreduce_async_(both, name=name, op=ReduceOp.MAX, process_set=process_set)
    largest, smallest = handle.wait().view(2, -1)
    flags: list[bool] = (largest != ~smallest).tolist()
    return flags
