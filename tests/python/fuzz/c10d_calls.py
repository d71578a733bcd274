# SPDX-License-Identifier: Apache-2.0

"""The collectives of random programs, with each rank's arguments and expected result."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import fuzzing
import torch
import torch.distributed as dist
from fuzzing import Placed, reduced, values_of
from torch import Tensor

_WHOLE_NUMBERS = ("BAND", "BOR", "BXOR")
_VIEWS_OF_INPUTS = ["expanded", "conjugated", "negated"]
# Collectives for which torch's own functions convert complex tensors to pairs of real numbers, and
# reject lazily conjugated tensors.
_REFUSE_CONJUGATED = (
    "all_gather",
    "all_gather_into_tensor",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "all_to_all_single",
    "message",
    "ring",
)


@dataclasses.dataclass(frozen=True)
class Call:
    """One collective of a group. The call is the same on all ranks, except for `layouts` and
    `odd`.
    """

    seed: int
    index: int  # in the program
    kind: str
    members: tuple[int, ...]
    dtype: torch.dtype
    shape: tuple[int, ...]
    op: str
    root: int  # a position in the group; the sender of a message
    other: int  # another position: the receiver
    layouts: tuple[tuple[str, str], ...]  # of input and output, by position
    is_async: bool
    odd: tuple[int, str] | None = None  # the position that differs, and the difference

    def __str__(self) -> str:
        text = f"{self.index}: {self.kind} of {self.dtype} {list(self.shape)}, ranks {self.members}"
        text += f", op {self.op}, root {self.root}, other {self.other}, layouts {self.layouts}"
        text += ", async" if self.is_async else ""
        return text + (f", but {self.odd[1]} at position {self.odd[0]}" if self.odd else "")

    def must_fail(self, position: int) -> bool:
        """Returns whether this rank gets an error. If one rank's call differs, all ranks get an
        error.
        """
        if self.odd is None:
            return False
        # In a gather, ranks may send different sizes. Only the root gets an error, because its
        # memory does not have the size of the data.
        return self.odd[1] != "shape" or self.kind != "gather" or position == self.root

    def values(self, position: int, part: int = 0) -> Tensor:
        high = 2 if self.dtype in (torch.bool, *fuzzing.FP8) or self.op == "PRODUCT" else 4
        values = values_of((self.seed, self.index, position, part), self.shape, high)
        if self.op == "PRODUCT":
            values += 1
        if self.op == "AVG":
            values *= len(self.members)  # the average is a whole number
        if self.layouts[position][0] == "expanded" and self.shape:
            values = values[:1].expand(self.shape).clone()
        return values

    def input(self, position: int, part: int = 0) -> Tensor:
        """Returns a tensor with the values, which the collective only reads."""
        values, layout = self.values(position, part), self.layouts[position][0]
        if layout == "expanded" and self.shape and self.shape[0] > 0:
            return values[:1].to(self.dtype).expand(self.shape)
        if layout == "conjugated" and self.dtype.is_complex and self.kind not in _REFUSE_CONJUGATED:
            return values.to(self.dtype).conj()
        if layout == "negated" and self.dtype in (torch.float32, torch.float64):
            return (
                torch.complex(values, -values)
                .to(torch.complex64 if self.dtype is torch.float32 else torch.complex128)
                .conj()
                .imag
            )
        return Placed(values, self.dtype, layout).tensor

    def place(self, position: int, values: Tensor | None = None) -> Placed:
        """Returns memory for a result. For an operation in place, the memory contains `values`."""
        if values is None:
            values = torch.zeros(self.shape, dtype=torch.float64)
        return Placed(values, self.dtype, self.layouts[position][1])

    def all_values(self) -> list[Tensor]:
        return [self.values(position) for position in range(len(self.members))]

    def reduce_op(self) -> Any:
        return getattr(dist.ReduceOp, self.op)


@dataclasses.dataclass
class Started:
    """The operations that a rank has started, and a function that checks their results."""

    works: list[Any]
    check: Callable[[], str] = lambda: ""
    tensor: Tensor | None = None  # may get other memory meanwhile


_Start = Callable[[Call, int, Any], Started]


def _works(work: Any) -> list[Any]:
    return [] if work is None else [work]


def _all_wrong(places: Sequence[Placed], expected: Sequence[Tensor]) -> Callable[[], str]:
    return lambda: "; ".join(
        text for place, values in zip(places, expected) if (text := place.wrong(values))
    )


def _all_reduce(call: Call, me: int, group: Any) -> Started:
    place = call.place(me, call.values(me))
    work = dist.all_reduce(place.tensor, call.reduce_op(), group, call.is_async)
    total = reduced(call.op, call.all_values())
    return Started(_works(work), lambda: place.wrong(total), place.tensor)


def _broadcast(call: Call, me: int, group: Any) -> Started:
    place = call.place(me, call.values(me))
    work = dist.broadcast(place.tensor, call.members[call.root], group, call.is_async)
    return Started(_works(work), lambda: place.wrong(call.values(call.root)), place.tensor)


def _reduce(call: Call, me: int, group: Any) -> Started:
    place = call.place(me, call.values(me))
    work = dist.reduce(
        place.tensor, call.members[call.root], call.reduce_op(), group, call.is_async
    )
    # On ranks other than the root, the content of the tensors is undefined.
    expected = reduced(call.op, call.all_values()) if me == call.root else None
    return Started(_works(work), lambda: place.wrong(expected))


def _all_gather(call: Call, me: int, group: Any) -> Started:
    places = [call.place(me) for _ in call.members]
    tensors = [place.tensor for place in places]
    work = dist.all_gather(tensors, call.input(me), group, call.is_async)
    return Started(_works(work), _all_wrong(places, call.all_values()))


def _rows(call: Call, position: int, values: Tensor) -> Placed:
    return Placed(values, call.dtype, call.layouts[position][1])


def _all_gather_into_tensor(call: Call, me: int, group: Any) -> Started:
    expected = torch.cat(call.all_values())
    place = _rows(call, me, torch.zeros_like(expected))
    work = dist.all_gather_into_tensor(place.tensor, call.input(me), group, call.is_async)
    return Started(_works(work), lambda: place.wrong(expected))


def _gather(call: Call, me: int, group: Any) -> Started:
    places = [call.place(me) for _ in call.members] if me == call.root else []
    tensors = [place.tensor for place in places] or None
    work = dist.gather(call.input(me), tensors, call.members[call.root], group, call.is_async)
    return Started(_works(work), _all_wrong(places, call.all_values()))


def _scatter(call: Call, me: int, group: Any) -> Started:
    place = call.place(me)
    parts = [call.input(me, part) for part in range(len(call.members))] if me == call.root else None
    work = dist.scatter(place.tensor, parts, call.members[call.root], group, call.is_async)
    return Started(_works(work), lambda: place.wrong(call.values(call.root, me)))


def _of_all(call: Call, part: int) -> Tensor:
    return reduced(call.op, [call.values(each, part) for each in range(len(call.members))])


def _reduce_scatter(call: Call, me: int, group: Any) -> Started:
    place = call.place(me)
    parts = [call.input(me, part) for part in range(len(call.members))]
    work = dist.reduce_scatter(place.tensor, parts, call.reduce_op(), group, call.is_async)
    return Started(_works(work), lambda: place.wrong(_of_all(call, me)))


def _reduce_scatter_tensor(call: Call, me: int, group: Any) -> Started:
    place = call.place(me)
    parts = torch.cat([call.values(me, part) for part in range(len(call.members))])
    rows = Placed(parts, call.dtype, call.layouts[me][0])
    work = dist.reduce_scatter_tensor(
        place.tensor, rows.tensor, call.reduce_op(), group, call.is_async
    )
    return Started(_works(work), lambda: place.wrong(_of_all(call, me)) or rows.wrong(parts))


def _all_to_all(call: Call, me: int, group: Any) -> Started:
    places = [call.place(me) for _ in call.members]
    parts = [call.input(me, part) for part in range(len(call.members))]
    work = dist.all_to_all([place.tensor for place in places], parts, group, call.is_async)
    expected = [call.values(each, me) for each in range(len(call.members))]
    return Started(_works(work), _all_wrong(places, expected))


def _split(call: Call, sender: int, receiver: int) -> int:
    return random.Random(f"{call.seed} {call.index} {sender} {receiver}").randrange(3)


def _all_to_all_single(call: Call, me: int, group: Any) -> Started:
    """Sends a random number of rows to each rank."""

    def rows(sender: int, receiver: int) -> Tensor:
        count = _split(call, sender, receiver)
        return call.values(sender, receiver).flatten()[:1].repeat(count, 2)

    everyone = range(len(call.members))
    expected = torch.cat([rows(each, me) for each in everyone])
    place = _rows(call, me, torch.zeros_like(expected))
    work = dist.all_to_all_single(
        place.tensor,
        Placed(torch.cat([rows(me, each) for each in everyone]), call.dtype, "whole").tensor,
        [_split(call, each, me) for each in everyone],
        [_split(call, me, each) for each in everyone],
        group,
        call.is_async,
    )
    return Started(_works(work), lambda: place.wrong(expected))


def _message(call: Call, me: int, group: Any) -> Started:
    if me == call.root:
        start = dist.isend if call.is_async else dist.send
        work = start(call.input(me), call.members[call.other], group)
        return Started(_works(work) if call.is_async else [])
    if me != call.other:
        return Started([])
    place = call.place(me)
    start = dist.irecv if call.is_async else dist.recv
    work = start(place.tensor, call.members[call.root], group)
    expected = call.values(call.root)
    return Started(_works(work) if call.is_async else [], lambda: place.wrong(expected))


def _ring(call: Call, me: int, group: Any) -> Started:
    size = len(call.members)
    place = call.place(me)
    following, previous = call.members[(me + 1) % size], call.members[(me - 1) % size]
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, call.input(me), following, group),
            dist.P2POp(dist.irecv, place.tensor, previous, group),
        ]
    )
    return Started(list(works), lambda: place.wrong(call.values((me - 1) % size)))


def _barrier(call: Call, _me: int, group: Any) -> Started:
    return Started(_works(dist.barrier(group, call.is_async)))


def _objects(call: Call, me: int, group: Any) -> Started:
    found: list[Any] = [None] * len(call.members)
    dist.all_gather_object(found, {"of": me, "call": call.index}, group)
    expected = [{"of": each, "call": call.index} for each in range(len(call.members))]
    return Started([], lambda: "" if found == expected else f"{found} instead of {expected}")


STARTS: dict[str, _Start] = {
    "all_reduce": _all_reduce,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "all_gather": _all_gather,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
    "message": _message,
    "ring": _ring,
    "barrier": _barrier,
    "objects": _objects,
}
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor")
# The ways in which one rank's call may differ. The table omits two kinds of differences. First,
# torch's functions reject some arguments before they call a backend; the other ranks would then
# wait for this rank until the deadline. Second, barriers are counted separately: if one rank calls
# a barrier and the other ranks call a different operation, the ranks wait for each other.
ODDITIES = {
    "all_reduce": ["shape", "dtype", "op", "kind"],
    "broadcast": ["shape", "dtype", "root", "kind"],
    "reduce": ["shape", "dtype", "op", "root", "kind"],
    "all_gather": ["shape", "dtype", "kind"],
    "all_gather_into_tensor": ["shape", "dtype", "kind"],
    "gather": ["shape", "dtype", "kind"],
    "reduce_scatter_tensor": ["shape", "dtype", "op", "kind"],
    "all_to_all": ["shape", "dtype"],
    "objects": ["kind"],
}


def _random_dtype(draw: random.Random, kind: str, op: str) -> torch.dtype:
    if op in _WHOLE_NUMBERS:
        return draw.choice(fuzzing.INTEGERS)
    numbers = fuzzing.FLOATS + fuzzing.INTEGERS
    if kind in REDUCTIONS:
        return draw.choice(numbers + (fuzzing.COMPLEX if op in ("SUM", "AVG") else []))
    moved = [torch.bool, *fuzzing.COMPLEX, *fuzzing.FP8, *fuzzing.UNSIGNED]
    return draw.choice(numbers + moved)


def _random_layouts(draw: random.Random) -> tuple[str, str]:
    return draw.choice(fuzzing.LAYOUTS + _VIEWS_OF_INPUTS), draw.choice(fuzzing.LAYOUTS)


def random_call(draw: random.Random, seed: int, index: int, members: tuple[int, ...]) -> Call:
    """Returns a random call that is the same on all members."""
    kinds = list(STARTS)
    if len(members) == 1:
        kinds = [kind for kind in kinds if kind not in ("message", "ring")]
    kind = draw.choice(kinds)
    op = "SUM"
    if kind in REDUCTIONS:
        op = draw.choice(["SUM", "SUM", "AVG", "PRODUCT", "MIN", "MAX", *_WHOLE_NUMBERS])
    shape = tuple(draw.choice([0, 1, 2, 3, 5]) for _ in range(draw.choice([1, 1, 2, 3, 4])))
    if kind in ("all_reduce", "broadcast", "all_gather", "message") and draw.random() < 0.1:
        shape = ()
    root, other = draw.sample(range(len(members)), 2) if len(members) > 1 else (0, 0)
    return Call(
        seed=seed,
        index=index,
        kind=kind,
        members=members,
        dtype=_random_dtype(draw, kind, op),
        shape=shape,
        op=op,
        root=root,
        other=other,
        layouts=tuple(_random_layouts(draw) for _ in members),
        is_async=draw.random() < 0.6,
    )


def with_oddity(draw: random.Random, call: Call) -> Call:
    """Returns the call with different arguments on one rank, if the kind of call allows a
    difference.
    """
    if len(call.members) == 1 or call.kind not in ODDITIES or 0 in call.shape or not call.shape:
        return call
    what = draw.choice(ODDITIES[call.kind])
    is_whole, is_complex = call.op in _WHOLE_NUMBERS, call.dtype.is_complex
    if (what == "dtype" and is_whole) or (what == "op" and is_complex):
        what = "shape"  # torch itself refuses those reductions
    layouts = tuple(("whole", "whole") for _ in call.members)
    return dataclasses.replace(call, layouts=layouts, odd=(draw.randrange(len(call.members)), what))


def as_made_by(call: Call, position: int) -> Call:
    """Returns the call as the rank at `position` makes it."""
    if call.odd is None or call.odd[0] != position:
        return call
    what = call.odd[1]
    if what == "shape":
        return dataclasses.replace(call, shape=(call.shape[0] + 1, *call.shape[1:]))
    if what == "dtype":
        other = torch.float32 if call.dtype is not torch.float32 else torch.int32
        return dataclasses.replace(call, dtype=other)
    if what == "op":
        return dataclasses.replace(call, op="MAX" if call.op != "MAX" else "MIN")
    if what == "root":
        return dataclasses.replace(call, root=(call.root + 1) % len(call.members))
    other_kind = "broadcast" if call.kind != "broadcast" else "all_reduce"
    return dataclasses.replace(call, kind=other_kind, op="SUM", dtype=torch.float32)
