# SPDX-License-Identifier: Apache-2.0

"""Runs random training loops over a DistributedOptimizer. After each step the parameters must be
bitwise equal to what one process computes from all ranks' losses.

A loss is a weighted sum of the parameters. The weights are multiples of the number of ranks. So the
gradients, their averages and the steps of SGD are exact.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import unittest
from collections.abc import Sequence

import fuzzing
import ronda.torch as hvd
import torch
from fuzzing import values_of
from torch import Tensor, nn

_PROGRAMS = 60
_STEPS = 4
_SETS: list[hvd.ProcessSet] = []


def setUpModule() -> None:
    torch.set_num_threads(1)
    hvd.init()
    _SETS.append(hvd.global_process_set)
    if hvd.size() > 1:
        _SETS.append(hvd.add_process_set(list(range(1, hvd.size()))))


def tearDownModule() -> None:
    hvd.shutdown()


@dataclasses.dataclass(frozen=True)
class _Loop:
    """The random choices of a program, which are the same on every rank."""

    seed: int
    dtype: torch.dtype
    shapes: tuple[tuple[int, ...], ...]
    embedding: str  # "none", "dense" or "sparse": the gradients of parameter 0, a table of rows
    passes: int  # backward passes per step
    momentum: float
    is_sum: bool
    groups: int | None
    predivide: float
    is_compressed: bool
    sparse_as_dense: bool
    clears_to_none: bool
    by_closure: bool
    ending: str  # between the passes and step(): "nothing", "clip" or "synchronize"
    toggles: tuple[tuple[int, int], ...]  # before a step, a parameter is frozen or unfrozen
    usage: float  # the probability that a rank uses a parameter in a pass
    members: tuple[int, ...]

    def draws(self, *key: object) -> random.Random:
        return random.Random(repr((self.seed, *key)))

    def uses(self, step: int, turn: int, rank: int, index: int) -> int:
        """Returns how many times the rank uses the parameter in this pass."""
        draw = self.draws("uses", step, turn, rank, index)
        return 0 if draw.random() >= self.usage else draw.choice([1, 1, 2])

    def loss(self, parameters: Sequence[Tensor], step: int, turn: int, rank: int) -> Tensor:
        """Returns the loss of a rank in a pass. Ranks use the parameters in different orders."""
        order = list(range(len(parameters)))
        self.draws("order", step, turn, rank).shuffle(order)
        terms = [torch.zeros((), dtype=self.dtype, requires_grad=True)]
        for index in order:
            for use in range(self.uses(step, turn, rank, index)):
                terms.append(self._term(parameters[index], (step, turn, rank, index, use)))
        return torch.stack(terms).sum()

    def _term(self, parameter: Tensor, key: tuple[int, ...]) -> Tensor:
        taken = parameter
        if key[3] == 0 and self.embedding != "none":
            rows = values_of((self.seed, "rows", key), (3,), parameter.shape[0]).to(torch.int64)
            taken = nn.functional.embedding(rows, parameter, sparse=self.embedding == "sparse")
        factors = values_of((self.seed, "factors", key), taken.shape, 4) - 1
        return (taken * (factors * len(self.members)).to(self.dtype)).sum()


def _random_loop(seed: int, members: tuple[int, ...]) -> _Loop:
    draw = random.Random(seed)
    count = draw.randint(1, 5)
    embedding = draw.choice(["none", "none", "dense", "sparse"])
    shapes = [tuple(draw.choice([1, 2, 3, 7]) for _ in range(draw.randint(1, 3)))] * count
    shapes = [(4, 3) if embedding != "none" and i == 0 else each for i, each in enumerate(shapes)]
    usage = draw.choice([1.0, 1.0, 0.7, 0.3])
    passes = draw.choice([1, 1, 2, 3])
    by_closure = passes == 1 and draw.random() < 0.15
    groups = draw.choice([None, None, 1, 2]) if embedding != "sparse" else None
    toggles = [
        (draw.randrange(1, _STEPS), draw.randrange(count)) for _ in range(draw.choice([0, 0, 1, 2]))
    ]
    endings = ["nothing", "nothing", "synchronize"]
    # After backward(), a gradient is complete only if every rank has it and all other gradients in
    # its group.
    if usage == 1.0 and embedding != "sparse" and not (groups and toggles):
        endings.append("clip")
    is_sum = draw.random() < 0.3
    return _Loop(
        seed=seed,
        dtype=draw.choice([torch.float32, torch.float64]),
        shapes=tuple(shapes),
        embedding=embedding,
        passes=passes,
        momentum=0.0 if embedding == "sparse" else draw.choice([0.0, 0.5]),
        is_sum=is_sum,
        groups=groups,
        predivide=1.0 if is_sum else draw.choice([1.0, 1.0, 2.0, 4.0]),
        is_compressed=draw.random() < 0.2,
        sparse_as_dense=draw.random() < 0.5,
        clears_to_none=draw.random() < 0.6,
        by_closure=by_closure,
        ending="nothing" if by_closure else draw.choice(endings),
        toggles=tuple(toggles),
        usage=usage,
        members=members,
    )


class _Training:
    """The parameters of a model, and SGD on them."""

    def __init__(self, loop: _Loop) -> None:
        self.loop = loop
        self.parameters = [
            nn.Parameter(values_of((loop.seed, "parameter", i), shape).to(loop.dtype))
            for i, shape in enumerate(loop.shapes)
        ]
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(
            self.parameters, lr=1.0, momentum=loop.momentum
        )

    def toggle(self, step: int) -> None:
        for when, index in self.loop.toggles:
            if when == step:
                self.parameters[index].requires_grad_(not self.parameters[index].requires_grad)

    def clear(self) -> None:
        self.optimizer.zero_grad(set_to_none=self.loop.clears_to_none)

    def clip(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None and parameter.grad.layout is torch.strided:
                nn.utils.clip_grad_value_([parameter], 5.0)


class _OneProcess(_Training):
    """Trains in one process, with the losses of all ranks."""

    def step(self, step: int) -> None:
        self.toggle(step)
        self.clear()
        for turn in range(self.loop.passes):
            losses = [
                self.loop.loss(self.parameters, step, turn, rank) for rank in self.loop.members
            ]
            total = torch.stack(losses).sum()
            (total if self.loop.is_sum else total / len(losses)).backward()
        if self.loop.ending != "nothing":
            self.clip()
        self.optimizer.step()


class _Rank(_Training):
    """Trains on this rank, with a DistributedOptimizer."""

    def __init__(self, loop: _Loop, process_set: hvd.ProcessSet) -> None:
        super().__init__(loop)
        self.optimizer = hvd.DistributedOptimizer(
            self.optimizer,
            named_parameters=[(f"p{i}", each) for i, each in enumerate(self.parameters)],
            compression=hvd.Compression.fp16 if loop.is_compressed else hvd.Compression.none,
            backward_passes_per_step=loop.passes,
            op=hvd.Sum if loop.is_sum else hvd.Average,
            gradient_predivide_factor=loop.predivide,
            groups=loop.groups,
            sparse_as_dense=loop.sparse_as_dense,
            process_set=process_set,
        )

    def _backward(self, step: int, turn: int) -> Tensor:
        loss = self.loop.loss(self.parameters, step, turn, hvd.rank())
        loss.backward()
        return loss

    def step(self, step: int) -> None:
        self.toggle(step)
        if self.loop.by_closure:
            self.optimizer.step(lambda: (self.clear(), self._backward(step, 0))[1])
            return
        self.clear()
        for turn in range(self.loop.passes):
            self._backward(step, turn)
        skips = contextlib.nullcontext()
        if self.loop.ending == "synchronize":
            self.optimizer.synchronize()
            skips = self.optimizer.skip_synchronize()
        if self.loop.ending != "nothing":
            self.clip()
        with skips:
            self.optimizer.step()


def _run(seed: int) -> list[str]:
    """Runs one program, and returns the failures of this rank."""
    process_set = _SETS[seed % 5 == 0 and len(_SETS) > 1]
    members = tuple(process_set.ranks)
    loop = _random_loop(seed, members)
    if hvd.rank() not in members:
        return []
    one, rank = _OneProcess(loop), _Rank(loop, process_set)
    try:
        for step in range(_STEPS):
            one.step(step)
            rank.step(step)
            for index, (expected, found) in enumerate(zip(one.parameters, rank.parameters)):
                if not torch.equal(expected, found):
                    return [
                        f"rank {hvd.rank()}, step {step}: parameter {index} is {found.tolist()}"
                        f" instead of {expected.tolist()}",
                        str(loop),
                    ]
    except Exception as error:
        return [f"rank {hvd.rank()}: {type(error).__name__}: {error}", str(loop)]
    return []


class FuzzTest(unittest.TestCase):
    def test_training_loops_compute_what_one_process_does(self) -> None:
        fuzzing.for_each_program("hvd", _run, _PROGRAMS)


if __name__ == "__main__":
    unittest.main()
