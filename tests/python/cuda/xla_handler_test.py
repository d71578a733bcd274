# SPDX-License-Identifier: Apache-2.0

"""Calls ronda.jax's handler for GPUs as XLA does, with arrays on a fake CUDA device."""

from __future__ import annotations

import unittest
from concurrent.futures import Future
from typing import Any

from xla_call import COMPLEX64, Device, Kind, Tensor, TooMany, Xla  # isort: skip  # before ronda
import ronda

COUNT = 1003


def setUpModule() -> None:
    ronda.init()


def tearDownModule() -> None:
    ronda.shutdown()


class HandlerTest(unittest.TestCase):
    def setUp(self) -> None:
        self.rank, self.size = ronda.rank(), ronda.size()
        # Not the first device, which a thread uses if it has not chosen a device.
        self.device = Device(1 + self.rank)
        self.stream = self.device.stream()
        self.xla = Xla("CUDA")
        self.held = self.device.hold(self.stream)
        self.addCleanup(self.held.set)

    def late(self, *shape: int, stream: int | None = None) -> Tensor:
        """Returns an array that is -1 until the stream continues, and then rank + 1."""
        tensor = self.device.tensor(*shape or (COUNT,))
        self.device.fill(stream or self.stream, tensor, [self.rank + 1.0])
        return tensor

    def call(self, kind: Kind, arguments: list[Tensor], results: list[Tensor], **options) -> None:
        """Makes a call, which must succeed while its stream is blocked, without waiting for a
        device.
        """
        stream = options.pop("stream", self.stream)
        options.setdefault("names", "\n".join(f"{self.id()}.{i}" for i in range(len(results))))
        self.assertIsNone(self.xla.call(kind, arguments, results, stream, **options))

    def values_later(self, tensor: Tensor, stream: int | None = None) -> Future[list[float]]:
        """Returns the values that later work on the stream will find in the array."""
        found = self.device.read(stream or self.stream, tensor)
        self.assertFalse(found.done())
        return found

    def check(self, found: Future[list[float]], expected: list[float]) -> None:
        self.held.set()
        values = found.result(timeout=200)
        self.assertTrue(values == expected, f"{values[:8]} ..., and not {expected[:8]} ...")

    def total(self) -> float:
        return self.size * (self.size + 1) / 2


class OrderTest(HandlerTest):
    def test_an_allreduce_comes_between_the_work_of_its_stream(self) -> None:
        own, out = self.late(), self.device.tensor(COUNT)
        self.call(Kind.ALLREDUCE, [own], [out])
        self.check(self.values_later(out), [self.total()] * COUNT)
        self.check(self.device.read(self.stream, own), [self.rank + 1.0] * COUNT)

    def test_each_stream_finds_its_own_result(self) -> None:
        other = self.device.stream()
        held = self.device.hold(other)
        self.addCleanup(held.set)
        first, second = self.late(), self.late(stream=other)
        sums = [self.device.tensor(COUNT) for _ in range(2)]
        self.call(Kind.ALLREDUCE, [first], sums[:1], names="first")
        self.call(Kind.ALLREDUCE, [second], sums[1:], names="second", stream=other, prescale=2.0)
        found = [self.values_later(sums[0]), self.values_later(sums[1], other)]
        held.set()
        self.check(found[0], [self.total()] * COUNT)
        self.check(found[1], [2 * self.total()] * COUNT)

    def test_steps_go_on_while_earlier_ones_are_on_the_device(self) -> None:
        arrays = [self.late(), *(self.device.tensor(COUNT) for _ in range(20))]
        for before, after in zip(arrays, arrays[1:]):  # the schedule is locked after a few
            self.call(Kind.ALLREDUCE, [before], [after], names="step")
        expected = self.total() * self.size ** (len(arrays) - 2)
        self.check(self.values_later(arrays[-1]), [expected] * COUNT)


class OperationsTest(HandlerTest):
    def test_arrays_of_a_tree(self) -> None:
        own, found = [self.late(3), self.late(2, 2), self.late(1)], []
        for grouped in (0, 1):
            outs = [self.device.tensor(*each.shape) for each in own]
            self.call(Kind.ALLREDUCE, own, outs, grouped=grouped, op=int(ronda.ReduceOp.MAX))
            found += [self.values_later(each) for each in outs]
        for each, count in zip(found, (3, 4, 1) * 2):
            self.check(each, [float(self.size)] * count)

    def test_arrays_without_names_meet_in_their_order(self) -> None:
        own = [self.late(3), self.late(5)]
        outs = [self.device.tensor(3), self.device.tensor(5)]
        self.call(Kind.ALLREDUCE, own, outs, names="\n")
        self.check(self.values_later(outs[1]), [self.total()] * 5)

    def test_broadcast(self) -> None:
        own = self.late()
        self.call(Kind.BROADCAST, [own], [own], peer=1)
        self.check(self.values_later(own), [2.0] * COUNT)

    def test_rows(self) -> None:
        every = [rank + 1.0 for rank in range(self.size)]
        own, rows = self.late(2, 3), self.late(3, 2)
        gathered, share = self.device.tensor(2 * self.size, 3), self.device.tensor(2 - self.rank, 2)
        self.call(Kind.ALLGATHER, [own], [gathered])
        self.call(Kind.REDUCESCATTER, [rows], [share], op=int(ronda.ReduceOp.MAX))
        found = self.values_later(share)
        self.check(self.values_later(gathered), [each for each in every for _ in range(6)])
        self.check(found, [float(self.size)] * 2 * (2 - self.rank))

    def test_alltoall(self) -> None:
        own, even = self.late(3), self.late(self.size)
        received = [1, 1] if self.rank == 0 else [2, 2]
        rows, others = self.device.tensor(sum(received)), self.device.tensor(self.size)
        self.call(Kind.ALLTOALL, [own], [rows], splits=[1, 2], received=received)
        self.call(Kind.ALLTOALL, [even], [others], names="even")
        found = self.values_later(others)
        self.check(self.values_later(rows), [1.0] * received[0] + [2.0] * received[1])
        self.check(found, [1.0, 2.0])

    def test_messages(self) -> None:
        own, arrived = self.late(), self.device.tensor(COUNT)
        other = 1 - self.rank
        for sends in (self.rank == 0, self.rank == 1):  # in turn, or both would wait for a message
            if sends:
                self.call(Kind.SEND, [own], [own], peer=other, tag=1, names="")
            else:
                self.call(Kind.RECV, [], [arrived], peer=other, tag=1, names="")
        self.check(self.values_later(arrived), [other + 1.0] * COUNT)


class ErrorsTest(HandlerTest):
    def refused(self, words: str, kind: Kind, arguments, results, **options) -> None:
        options.setdefault("names", self.id())
        error = self.xla.call(kind, arguments, results, self.stream, **options)
        self.assertIsNotNone(error)
        self.assertRegex(error, words)
        for each in results:
            self.assertEqual(set(self.device.read(self.device.stream(), each).result()), {-1.0})
        own, out = self.late(), self.device.tensor(COUNT)  # the job goes on
        self.call(Kind.ALLREDUCE, [own], [out], names="after")
        self.check(self.values_later(out), [self.total()] * COUNT)

    def test_ranks_with_other_shapes_each_get_both(self) -> None:
        shape = 3 + self.rank
        self.refused(
            r"MismatchError: .*says shape \[[34]\].*says shape \[[34]\].*\[the test\]",
            Kind.ALLREDUCE,
            [self.late(shape)],
            [self.device.tensor(shape)],
        )

    def test_a_type_that_ronda_does_not_know(self) -> None:
        own, out = self.late(), self.device.tensor(COUNT)
        own.dtype = COMPLEX64 if self.rank == 0 else own.dtype
        words = "Ronda does not know the type of the array's elements"
        self.refused(
            f"InvalidArgumentError: {words}" if self.rank == 0 else f"MismatchError: .*{words}",
            Kind.ALLREDUCE,
            [own],
            [out],
        )

    def test_a_rank_without_a_stream_tells_the_others(self) -> None:
        own, out = self.late(), self.device.tensor(COUNT)
        self.xla.gives_streams = self.rank != 0
        words = "XLA's own words" if self.rank == 0 else "MismatchError: .*XLA has no stream"
        error = self.xla.call(Kind.ALLREDUCE, [own], [out], self.stream, names="no stream")
        self.assertRegex(error, words)

    def test_a_rank_without_memory_tells_the_others(self) -> None:
        own, out = self.late(), self.device.tensor(COUNT)
        received: Any = TooMany() if self.rank == 0 else ()
        for gives_streams, words in ((True, "no memory for the call"), (False, "XLA's own words")):
            self.xla.gives_streams = gives_streams or self.rank != 0
            found = words if self.rank == 0 else "MismatchError: .*no memory for the call"
            error = self.xla.call(
                Kind.ALLREDUCE, [own], [out], self.stream, names="no memory", received=received
            )
            self.assertRegex(error, found)

    def test_rows_that_the_program_does_not_expect(self) -> None:
        own, out = self.late(2), self.device.tensor(3)
        self.held.set()  # the ranks exchange rows before this rank finds that it has no room
        error = self.xla.call(Kind.ALLGATHER, [own], [out], self.stream, names="rows")
        self.assertRegex(error, "MismatchError: .*this rank's program expects 3: under jit every")
        error = self.xla.call(
            Kind.ALLTOALL,
            [own],
            [self.device.tensor(2)],
            self.stream,
            splits=[1, 1],
            received=[2, 0],
            names="",
        )
        self.assertRegex(error, r"'an array without a name': .*sent \[1, 1\] rows, but .*\[2, 0\]")

    def test_programs_of_other_versions(self) -> None:
        own = self.late()
        words = "InternalError: another version of Ronda has compiled the program"
        for kind, ticket in ((Kind.BARRIER, (0, 0)), (Kind.BROADCAST, (0, 8))):
            error = self.xla.call(kind, [own], [own], self.stream, ticket=ticket, names="x")
            self.assertRegex(error, words)


if __name__ == "__main__":
    unittest.main()
