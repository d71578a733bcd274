# SPDX-License-Identifier: Apache-2.0

"""Helpers for fuzzers: tensors at any position in memory, exact values, and a loop over seeds.

A program depends only on its seed, so every rank runs the same program, and knows the inputs of all
ranks. All values are small whole numbers, so sums are exact in every dtype and in any order.
Results are compared bit for bit.
"""

import os
import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]
FP8 = [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)]
# Torch cannot compute with the larger unsigned types. It can only convert their values, and read
# and write their bytes.
UNSIGNED = [getattr(torch, name) for name in ("uint16", "uint32", "uint64") if hasattr(torch, name)]

_GUARD = 96.0  # exact in every dtype
LAYOUTS = ["whole", "offset", "column", "inner", "transposed", "channels_last"]


def wide(values: Tensor) -> Tensor:
    """Returns the values in a dtype that can represent all of them."""
    return values.detach().to(torch.complex128 if values.is_complex() else torch.float64)


def values_of(key: Sequence[object], shape: Sequence[int], high: int = 4) -> Tensor:
    """Returns whole numbers from 0 to `high` - 1 as float64; equal keys give equal numbers."""
    generator = torch.Generator().manual_seed(random.Random(repr(key)).getrandbits(60))
    return torch.randint(0, high, tuple(shape), generator=generator).to(torch.float64)


def _region(layout: str, shape: Sequence[int], make: Callable[[Sequence[int]], Tensor]) -> Tensor:
    """Returns a tensor of this shape that lies inside a tensor that `make` creates."""
    shape = tuple(shape)
    if layout == "offset":
        return make([torch.Size(shape).numel() + 5])[3:-2].view(shape)
    if layout == "column":
        return make([*shape, 3])[..., 1]
    if layout == "inner" and shape:
        return make([*shape[:-1], shape[-1] + 2])[..., 1:-1]
    if layout == "transposed":
        return make(shape[::-1]).permute(list(range(len(shape) - 1, -1, -1)))
    if layout == "channels_last" and len(shape) == 4:
        return make([shape[0], *shape[2:], shape[1]]).permute(0, 3, 1, 2)
    return make(shape)


class Placed:
    """A tensor inside a larger tensor. The rest of the larger tensor must not change."""

    def __init__(self, values: Tensor, dtype: torch.dtype, layout: str) -> None:
        whole: list[Tensor] = []

        def make(shape: Sequence[int]) -> Tensor:
            whole.append(torch.full(tuple(shape), _GUARD).to(dtype))
            return whole[-1]

        def make_mask(shape: Sequence[int]) -> Tensor:
            whole.append(torch.ones(tuple(shape), dtype=torch.bool))
            return whole[-1]

        self.tensor = _region(layout, values.shape, make)
        self.tensor.copy_(values.to(dtype))
        _region(layout, values.shape, make_mask).fill_(False)
        # The program may replace its tensor's memory. The attributes below keep the original
        # memory.
        self._whole, self._outside = whole[0].detach(), whole[1]
        self._alias = _region(layout, values.shape, lambda shape: self._whole)

    def wrong(self, expected: Tensor | None) -> str:
        """Returns a text about the unexpected values, or "" if there are none."""
        if expected is not None and not torch.equal(wide(self._alias), wide(expected)):
            return f"{wide(self._alias).tolist()} instead of {wide(expected).tolist()}"
        outside = wide(self._whole)[self._outside]
        guard = wide(torch.full((1,), _GUARD).to(self._whole.dtype))
        return "" if bool((outside == guard).all()) else "neighbours were overwritten"


def reduced(op: str, values: Sequence[Tensor]) -> Tensor:
    """Returns the result that one process computes from all ranks' values."""
    stacked = torch.stack(list(values))
    if op in ("SUM", "AVG"):
        total = stacked.sum(0)
        return total if op == "SUM" else total / len(values)
    if op == "PRODUCT":
        return stacked.prod(0)
    if op in ("MIN", "MAX"):
        return stacked.amin(0) if op == "MIN" else stacked.amax(0)
    result = stacked[0].to(torch.int64)
    for each in stacked[1:].to(torch.int64):
        result = {"BAND": result & each, "BOR": result | each, "BXOR": result ^ each}[op]
    return result.to(torch.float64)


def for_each_program(name: str, run: Callable[[int], list[str]], programs: int) -> None:
    """Runs programs with consecutive seeds; raises AssertionError with the seed of the first one
    that fails. FUZZ_PROGRAMS in the environment sets the number of programs, and FUZZ_SEED the
    first seed.
    """
    first = int(os.environ.get("FUZZ_SEED", "1"))
    count = int(os.environ.get("FUZZ_PROGRAMS", programs))
    print(f"{name}: programs {first} to {first + count - 1}", flush=True)
    for seed in range(first, first + count):
        failures = run(seed)
        if failures:
            raise AssertionError(
                f"{name}: FUZZ_SEED={seed} FUZZ_PROGRAMS=1 fails:\n" + "\n".join(failures)
            )
