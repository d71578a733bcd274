# SPDX-License-Identifier: Apache-2.0

"""The checked mode, in which ranks compare their gradients and parameters at every N-th step."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from ronda.process_sets import ProcessSet, global_process_set, is_active
from ronda.torch._fingerprints import combine, differ, fingerprint
from ronda.torch._watch import steps_between_checks
from ronda.torch.functions import allgather_object

_Named = Iterable[tuple[str, "torch.Tensor | None"]]
# The message that the ranks exchange after they have found a difference: the step, and the names
# and fingerprints of the tensors.
_Record = tuple[int, list[str], list[int]]


def check_numbers(
    named_tensors: _Named, step: int = 0, process_set: ProcessSet = global_process_set
) -> None:
    """Raises an error on all ranks unless they have bitwise equal tensors.

    The check costs a pass over the tensors and a message of 16 bytes.

    Args:
        named_tensors: pairs of names and tensors, as from model.named_parameters(). Every rank
            passes the same names in the same order. A rank that does not have a tensor passes None.
        step: a number for the error text. Every rank passes the same number.
        process_set: the ranks that compare.

    Raises:
        ValueError: ranks differ. The text names the first tensor that differs, and the ranks.
    """
    pairs = list(named_tensors)
    if not is_active(process_set) or not pairs:
        return
    names = [name for name, _ in pairs]
    device = next((each.device for _, each in pairs if each is not None), torch.device("cpu"))
    numbers = [torch.tensor(step), _number_of("\n".join(names)), *(_number(t) for _, t in pairs)]
    numbers = [number.to(device) for number in numbers]
    operation = f"check of {names[0]} and those behind it"
    if not differ(combine(numbers).view(1), operation, process_set)[0]:
        return
    own = (step, names, torch.stack(numbers[2:]).tolist())
    records = allgather_object(own, name=f"{operation}, in full", process_set=process_set)
    raise ValueError(f"ranks differ: {_first_difference(records, process_set.ranks)}")


def _number(tensor: torch.Tensor | None) -> torch.Tensor:
    """Returns a fingerprint of the tensor that also depends on its dtype and shape."""
    if tensor is None:
        return fingerprint(None)
    form = _number_of(f"{tensor.dtype} {tuple(tensor.shape)}")
    return combine([form.to(tensor.device), fingerprint(tensor)])


def _number_of(text: str) -> torch.Tensor:
    return torch.tensor(zlib.crc32(text.encode()))


def _first_difference(records: Sequence[_Record], ranks: Sequence[int]) -> str:
    steps, names, numbers = zip(*records)
    if len(set(steps)) > 1:
        return f"they check in other steps: {_who_has(steps, ranks)}"
    for index, its_names in enumerate(names):
        if its_names != names[0]:
            return f"rank {ranks[index]} checks other tensors than rank {ranks[0]}"
    differing = [i for i, each in enumerate(zip(*numbers)) if len(set(each)) > 1]
    first = differing[0]
    groups = _who_has([f"{each[first] & 0xFFFFFFFFFFFFFFFF:016x}" for each in numbers], ranks)
    text = f"in step {steps[0]}, {names[0][first]} is not the same. Its fingerprints: {groups}"
    return text + (f". So are {len(differing) - 1} more tensors" if len(differing) > 1 else "")


def _who_has(values: Sequence[Any], ranks: Sequence[int]) -> str:
    """Returns a text such as `100 on ranks 0, 2; 200 on rank 1`. The most frequent value comes
    first.
    """
    those: dict[Any, list[int]] = {}
    for rank, value in zip(ranks, values):
        those.setdefault(value, []).append(rank)
    by_count = sorted(those.items(), key=lambda each: -len(each[1]))
    return "; ".join(
        f"{value} on rank{'s' if len(its) > 1 else ''} {', '.join(map(str, its))}"
        for value, its in by_count
    )


class StepChecks:
    """Checks an optimizer's gradients and parameters at every N-th step, with RONDA_CHECK=N."""

    def __init__(self, has_own_gradients: bool = False) -> None:
        """
        Args:
            has_own_gradients: whether each rank has its own gradients.
        """
        self._every = steps_between_checks()
        self._has_own_gradients = has_own_gradients
        self._step = 0

    def is_due(self) -> bool:
        """Counts a finished step, and returns whether the caller must now call check()."""
        self._step += 1
        return self._every != 0 and self._step % self._every == 0

    def check(self, names: dict[torch.Tensor, str], process_set: ProcessSet) -> None:
        """Compares the parameters in `names`, and their gradients."""
        check_numbers(self._tensors(names), self._step, process_set)

    def _tensors(self, names: dict[torch.Tensor, str]) -> Iterator[tuple[str, torch.Tensor | None]]:
        for parameter, name in names.items():
            if parameter.requires_grad and not self._has_own_gradients:
                yield f"the gradient of '{name}'", parameter.grad
        for parameter, name in names.items():
            yield f"parameter '{name}'", parameter
