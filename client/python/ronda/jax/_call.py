# SPDX-License-Identifier: Apache-2.0

"""The class Call, which describes a collective call, and is the parameter of the JAX primitive."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any

from ronda import process_sets
from ronda._library import native
from ronda._xla import Kind
from ronda.errors import InvalidArgumentError, NotInitializedError
from ronda.process_sets import ProcessSet
from ronda.types import DType, ReduceOp, Wire

Shape = tuple[int, ...]

# 8-bit floating-point types, which Ronda can send, but not compute with.
_FLOAT8 = (
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)
# Ronda's DType for each JAX dtype, by name.
DTYPES: dict[str, DType] = {
    **{dtype.name.lower(): dtype for dtype in DType},
    **dict.fromkeys(_FLOAT8, DType.UINT8),
}


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of an operation, on any number of arrays.

    The name of each array consists of the call's name and the array's label.

    name: the same on every rank. None means a name that consists of the program's name, the
        function that makes the call, and the call's position in the program.
    by_order: whether the arrays have no names in a program, so that calls are matched by order.
    labels: one for each array.
    where: the line of the program that makes the call, for error texts.
    function: where the program defines the function that makes the call (traced_function()).
    grouped: whether the arrays are reduced together or not at all.
    peer: the root, or the other rank of a message.
    rows: for operations on rows, the number of rows of the results.
    splits: for ALLTOALL, the number of rows for each member. Empty means that all members get the
        same number of rows.
    received_splits: with `splits`, the number of rows from each member.
    received: shapes and types of the results of RECV.
    """

    kind: Kind
    name: str | None
    labels: tuple[str, ...]
    where: str
    function: str
    op: ReduceOp = ReduceOp.SUM
    wire: Wire = Wire.NONE
    prescale: float = 1.0
    postscale: float = 1.0
    error_feedback: bool = False
    grouped: bool = False
    by_order: bool = False
    process_set: int = 0
    peer: int = 0
    tag: int = 0
    rows: tuple[int, ...] = ()
    splits: tuple[int, ...] = ()
    received_splits: tuple[int, ...] = ()
    received: tuple[tuple[Shape, Any], ...] = ()

    def derived(self, suffix: str, **changes: Any) -> Call:
        """Returns the call that computes a derivative of this call, with `suffix` added to the
        name.
        """
        name = None if self.name is None else self.name + suffix
        return dataclasses.replace(self, **{"name": name, "error_feedback": False, **changes})

    def part(self, indices: Sequence[int]) -> Call:
        """Returns a copy of this call for only some of its arrays."""
        return dataclasses.replace(
            self,
            labels=tuple(self.labels[i] for i in indices),
            rows=tuple(self.rows[i] for i in indices) if self.rows else (),
        )

    def results(self, arrays: Sequence[Any]) -> list[tuple[Shape, Any]]:
        """Returns the shapes and types of the call's results for these arrays."""
        if self.kind == Kind.RECV:
            return list(self.received)
        shapes = [each.shape for each in arrays]
        if self.rows:
            shapes = [(rows, *shape[1:]) for rows, shape in zip(self.rows, shapes)]
        return [(shape, each.dtype) for shape, each in zip(shapes, arrays)]


def _folder(module: str) -> str:
    """Returns the folder of an installed module, or a name that no folder has."""
    spec = importlib.util.find_spec(module)
    return os.path.dirname(spec.origin) + os.sep if spec is not None and spec.origin else "\0"


_JAX = _folder("jax")
# program_line() skips stack frames in these folders.
_LIBRARIES = (_folder("ronda"), _JAX, _folder("keras"))


def program_line() -> str:
    """Returns the line of the program that calls Ronda or Keras, for example "train.py:42"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def traced_function() -> str:
    """Returns where the program defines the function that JAX traces, for example "train.py:30".

    This is the first line of the function, and not the line of the call, because ranks may make a
    call at different lines of a function, in branches on their rank.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and not frame.f_back.f_code.co_filename.startswith(_JAX):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_code.co_firstlineno}"


def id_of_members(function: str, process_set: ProcessSet) -> int:
    """Returns the id of a process set to which this rank belongs.

    Raises:
        NotInitializedError: init() has not been called.
        InvalidArgumentError: the job does not know the set, or this rank is not in it.
    """
    if not native.is_initialized():
        raise NotInitializedError(f"{function}: call ronda.jax.init() first")
    id = process_sets.id_of(process_set)
    if native.process_set_rank(id) < 0:
        raise InvalidArgumentError(
            f"{function}: rank {native.rank()} is not in {process_set}: only its members call it"
        )
    return id


def own_rows(rows: int, process_set: int) -> int:
    """Returns this rank's number of rows when `rows` rows are distributed among the members of a
    set.
    """
    count, position = native.process_set_size(process_set), native.process_set_rank(process_set)
    return rows // count + (position < rows % count)
