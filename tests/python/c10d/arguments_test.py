# SPDX-License-Identifier: Apache-2.0

"""Tests the arguments of collectives, such as strided tensors. Every rank must reject arguments
that do not match.
"""

from __future__ import annotations

import datetime
import os
import unittest
import weakref
from collections.abc import Callable, Sequence

import numpy as np
import ronda
import ronda.torch as hvd
import ronda.torch.c10d  # noqa: F401
import torch
import torch.distributed as dist
from ronda._in_flight import IN_FLIGHT
from ronda.torch import _tensors

HAS_BACKENDS = hasattr(getattr(torch._C._distributed_c10d, "Backend", None), "all_gather_single")
RANK = SIZE = 0


def setUpModule() -> None:
    global RANK, SIZE
    torch.set_num_threads(1)
    dist.init_process_group("ronda")
    RANK, SIZE = dist.get_rank(), dist.get_world_size()


def tearDownModule() -> None:
    dist.destroy_process_group()


def _matrix(rank: int) -> torch.Tensor:
    return torch.arange(4.0 * SIZE).view(2 * SIZE, 2) + 100 * rank


# Kinds of views whose elements are not in row-major order in memory. Each function returns a rank's
# view, with 2 * SIZE elements.
VIEWS: dict[str, Callable[[int], torch.Tensor]] = {
    "a column": lambda rank: _matrix(rank)[:, 0],
    "a column of two dimensions": lambda rank: _matrix(rank)[:, :1],
    "every other": lambda rank: _matrix(rank).view(-1)[1::2],
    "a negated view": lambda rank: torch.complex(_matrix(rank), _matrix(rank)).conj().imag[:, 1],
    "an expanded one": lambda rank: torch.full((1,), 7.0 + rank).expand(2 * SIZE),
}


class ForkTest(unittest.TestCase):
    def test_child_of_a_rank_is_no_rank(self):
        child = os.fork()
        if child == 0:
            text = ""
            try:
                dist.all_reduce(torch.ones(1))
            except ronda.NotInitializedError as error:
                text = str(error)
            finally:
                os._exit(0 if "fork()" in text else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class StridedInputsTest(unittest.TestCase):
    def check(self, what: str, found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]):
        for one, other in zip(found, wanted):
            self.assertTrue(
                torch.equal(one.reshape(-1), other.reshape(-1)), f"{what}: {one} is not {other}"
            )

    def each(self):
        """For each kind of view, yields its name, the views of all ranks, and memory for
        results.
        """
        for name, make in VIEWS.items():
            views = [make(rank) for rank in range(SIZE)]
            with self.subTest(name):
                yield views, [torch.zeros_like(view.contiguous()) for view in views]

    def test_gathers(self):
        for views, rooms in self.each():
            dist.all_gather(rooms, views[RANK])
            self.check("all_gather", rooms, views)
            whole = torch.zeros(SIZE * views[0].numel(), dtype=views[0].dtype)
            dist.all_gather_into_tensor(whole, views[RANK].reshape(-1))
            self.check("all_gather_into_tensor", whole.chunk(SIZE), views)
            rooms = [torch.zeros_like(room) for room in rooms] if RANK == 0 else None
            dist.gather(views[RANK], rooms, 0)
            self.check("gather", rooms or [], views)

    def test_scatters_and_exchanges(self):
        for views, rooms in self.each():
            dist.scatter(rooms[0], views if RANK == 0 else None, 0)
            self.check("scatter", rooms[:1], [views[RANK]])
            dist.all_to_all(rooms, [views[RANK]] * SIZE)
            self.check("all_to_all", rooms, views)
            room = torch.zeros_like(rooms[0])
            dist.all_to_all_single(room, views[RANK])
            parts = [view.reshape(-1)[2 * RANK : 2 * RANK + 2] for view in views]
            self.check("all_to_all_single", [room], [torch.cat(parts)])
            dist.reduce_scatter(room, views)
            self.check("reduce_scatter", [room], [SIZE * views[RANK]])

    def test_messages_and_broadcast(self):
        for views, rooms in self.each():
            if RANK == 0:
                dist.send(views[0], 1)
            elif RANK == 1:
                dist.recv(rooms[0], 0)
                self.check("recv", rooms[:1], views[:1])
            # The root's tensor is sent unchanged. The tensors of the other ranks must be writable.
            tensor = views[0] if RANK == 0 else rooms[0]
            dist.broadcast(tensor, 0)
            self.check("broadcast", [tensor], views[:1])


class SwappedMemoryTest(unittest.TestCase):
    """The program replaces the memory of tensors while an operation on them runs."""

    COLLECTIVES: dict[str, Callable[[torch.Tensor], object]] = {
        "all_reduce": lambda tensor: dist.all_reduce(tensor, async_op=True),
        "reduce": lambda tensor: dist.reduce(tensor, 0, async_op=True),
        "broadcast": lambda tensor: dist.broadcast(tensor, 0, async_op=True),
        "all_gather": lambda tensor: dist.all_gather(
            [torch.zeros_like(tensor) for _ in range(SIZE)], tensor, async_op=True
        ),
    }

    def test_the_operation_keeps_the_memory(self):
        for name, start in self.COLLECTIVES.items():
            with self.subTest(name):
                memory = np.ones(1000, dtype=np.float32)
                tensor = torch.from_numpy(memory)
                freed = weakref.ref(memory)
                work = start(tensor)
                tensor.data = torch.zeros(1000)
                del memory
                self.assertIsNotNone(freed())
                work.wait()

    def test_results_come_to_the_memory_that_was_passed(self):
        for stride in (1, 2):
            with self.subTest(stride=stride):
                memory = torch.ones(6)
                tensor = memory[::stride]
                work = dist.all_reduce(tensor, async_op=True)
                tensor.set_(torch.zeros(4))
                work.wait()
                self.assertEqual(memory[::stride].tolist(), [SIZE] * (6 // stride))
                self.assertEqual(tensor.tolist(), [0.0] * 4)


class InferenceModeTest(unittest.TestCase):
    """Collectives on inference-mode tensors complete after inference mode has ended."""

    def columns(self) -> list[torch.Tensor]:
        """Returns a strided tensor for each rank."""
        return [(torch.arange(6.0).view(2, 3) + rank).t() for rank in range(SIZE)]

    def start(self) -> tuple[list[dist.Work], list[torch.Tensor], list[torch.Tensor]]:
        """Starts collectives. Returns the works, their outputs, and the expected values."""
        with torch.inference_mode():
            mine, rooms = self.columns()[RANK], [torch.zeros(3, 2) for _ in range(SIZE)]
            whole, sparse = torch.zeros(2, 3 * SIZE).t(), torch.eye(3).to_sparse()
            works = [
                dist.all_gather(rooms, mine.contiguous(), async_op=True),
                dist.all_gather_into_tensor(whole, mine.contiguous(), async_op=True),
                dist.all_reduce(sparse, async_op=True),
                dist.all_reduce(mine, async_op=True),
            ]
        columns = self.columns()
        wanted = [*columns, torch.cat(columns), SIZE * torch.eye(3), sum(columns)]
        return works, [*rooms, whole, sparse, mine], wanted

    def check(self, found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> None:
        for one, other in zip(found, wanted, strict=True):
            dense = one.to_dense() if one.is_sparse else one
            self.assertTrue(torch.equal(dense, other), f"{one} is not {other}")

    def test_wait(self):
        works, outputs, wanted = self.start()
        for work in works:
            work.wait()
        self.check(outputs, wanted)

    def test_futures(self):
        works, outputs, wanted = self.start()
        for future in [work.get_future() for work in works]:
            future.wait()
        self.check(outputs, wanted)


class RefusalTest(unittest.TestCase):
    """If one rank rejects a call, the call fails on all ranks that wait for it. The next call
    works.
    """

    def refused(self, what: str, call: Callable[[], object], text: str) -> None:
        """Expects that the call raises on this rank. Each rank's error contains `text`."""
        with self.subTest(what), self.assertRaisesRegex((ValueError, RuntimeError), text):
            call()
        total = torch.ones(1)
        dist.all_reduce(total)
        self.assertEqual(total.item(), SIZE)

    def test_outputs_of_other_sizes(self):
        data = torch.full((4,), float(RANK))
        rooms = [torch.zeros(3), torch.zeros(5), torch.zeros(4)][:SIZE]
        self.refused("all_gather", lambda: dist.all_gather(rooms, data), "elements")
        rooms = [torch.zeros(6) for _ in range(SIZE)]
        self.refused("wider", lambda: dist.all_gather(rooms, data), "elements")
        outputs = rooms if RANK == 0 else None
        self.refused("gather", lambda: dist.gather(data, outputs, 0), "elements")
        outputs = [torch.zeros(4)] * (SIZE - 1) + [torch.zeros(5)] if RANK == 0 else None
        self.refused("an output", lambda: dist.gather(data, outputs, 0), "has 5 elements")
        longer = torch.full((4 + (RANK == SIZE - 1),), 1.0)
        outputs = [torch.zeros(4) for _ in range(SIZE)] if RANK == 0 else None
        self.refused(
            "a longer input", lambda: dist.gather(longer, outputs, 0), r"ranks disagree.*\b5\b"
        )
        inputs = rooms if RANK == 0 else None
        self.refused("scatter", lambda: dist.scatter(data, inputs, 0), "elements")
        room = torch.zeros(3)
        self.refused(
            "reduce_scatter", lambda: dist.reduce_scatter(room, rooms), "elements|this rank"
        )

    def test_coalesced_outputs_match_the_inputs(self):
        group = ronda.torch.c10d.group_of(dist.distributed_c10d._get_default_group())
        inputs, rooms = [torch.ones(SIZE)], [torch.zeros(SIZE * SIZE) for _ in range(2)]
        self.refused(
            "all_gather_single",
            lambda: group.all_gather_single_coalesced(rooms, inputs).wait(),
            "1 inputs, and outputs for 2",
        )
        self.refused(
            "reduce_scatter_single",
            lambda: group.reduce_scatter_single_coalesced([torch.ones(1)] * 2, inputs).wait(),
            "1 inputs, and outputs for 2",
        )
        whole = [[torch.zeros(SIZE)] for _ in range(SIZE)]
        for what, lists, text in (
            ("a longer list", [*whole[:-1], whole[-1] * 2], "1 inputs, and outputs for 2"),
            ("a missing list", whole[:-1], f"{SIZE - 1} lists of output"),
        ):
            self.refused(
                what, lambda lists=lists: group.allgather_coalesced(lists, inputs).wait(), text
            )

    def test_splits_that_disagree(self):
        rows = torch.arange(2.0 * SIZE)
        # Each rank sends all its rows to rank 0, but expects two rows from every rank.
        to_send = [2 * SIZE] + [0] * (SIZE - 1)
        room = torch.zeros(2 * SIZE)
        self.refused(
            "all_to_all_single",
            lambda: dist.all_to_all_single(room, rows, [2] * SIZE, to_send),
            "has sent|bytes|rows",
        )

    def test_one_rank_refuses(self):
        data = torch.ones(4, dtype=torch.int32)
        room = torch.zeros(4, dtype=torch.int32 if RANK else torch.float32)
        outputs = [torch.zeros_like(room) for _ in range(SIZE)]
        own = "dtype" if RANK == 0 else "rank 0 .*refused.*dtype"
        # Calls the group's methods, because torch's functions would reject the dtypes on this rank
        # before they call the group.
        group = dist.distributed_c10d._get_default_group()
        self.refused("all_gather", lambda: group.allgather([outputs], [data]).wait(), own)
        self.refused(
            "reduce_scatter", lambda: group.reduce_scatter([room], [[data] * SIZE]).wait(), own
        )
        self.refused("all_to_all", lambda: group.alltoall(outputs, [data] * SIZE).wait(), own)

    def test_one_rank_refuses_a_reduction(self):
        """The core of rank 0 refuses what the other ranks submit, in calls that wait and others."""
        op = dist.ReduceOp.BAND
        numbers = torch.ones(4, dtype=torch.int32 if RANK else torch.float32)
        own = "band is not defined" if RANK == 0 else "rank 0 .*refused.*band is not defined"
        self.refused("all_reduce", lambda: dist.all_reduce(numbers, op), own)
        self.refused(
            "all_reduce, async", lambda: dist.all_reduce(numbers, op, async_op=True).wait(), own
        )

    def test_one_rank_refuses_some_of_several_tensors(self):
        """The tensors before the refused one are reduced; the later ones fail on every rank."""
        opts = dist.AllreduceCoalescedOptions()
        opts.reduceOp = dist.ReduceOp.BAND
        group = ronda.torch.c10d.group_of(dist.distributed_c10d._get_default_group())
        kinds = [torch.int32, torch.int32, torch.int32 if RANK else torch.float32, torch.int32]
        tensors = [torch.full((4,), RANK + 2).to(kind) for kind in kinds]
        own = "band is not defined" if RANK == 0 else "rank 0 .*refused.*band is not defined"
        before = group._get_sequence_number_for_group()
        self.refused("all_reduce", lambda: group.allreduce_coalesced(tensors, opts).wait(), own)
        self.assertEqual(group._get_sequence_number_for_group(), before + 5)
        dist.barrier()
        self.assertEqual(tensors[1].tolist(), [2 & 3 & (SIZE + 1)] * 4)

    def test_dtypes_that_differ_between_ranks(self):
        mixed = torch.ones(4, dtype=torch.int32 if RANK else torch.float32)
        self.refused("all_reduce", lambda: dist.all_reduce(mixed), "ranks disagree")
        self.refused("broadcast", lambda: dist.broadcast(mixed, 0), "ranks disagree")

    def test_complex_numbers_have_sums_only(self):
        tensor, parts = torch.full((2,), 1 + 2j), [torch.full((2,), 1 + 2j)] * SIZE
        for name in ("PRODUCT", "MIN", "MAX", "BXOR"):
            op = getattr(dist.ReduceOp, name)
            text = f"ReduceOp.{name} of a tensor of torch.complex64"
            self.refused("reduce", lambda op=op: dist.reduce(tensor, 0, op), text)
            self.refused(
                "reduce_scatter", lambda op=op: dist.reduce_scatter(tensor, parts, op), text
            )
            self.refused(
                "reduce_scatter_tensor",
                lambda op=op: dist.reduce_scatter_tensor(tensor, torch.cat(parts), op),
                text,
            )

    def test_ops_are_named(self):
        sparse = torch.eye(3).to_sparse()
        self.refused("sparse", lambda: dist.all_reduce(sparse, dist.ReduceOp.MAX), "ReduceOp.MAX")

    def test_one_rank_refuses_a_sparse_tensor(self):
        sparse = torch.eye(3).to_sparse()
        op = dist.ReduceOp.MAX if RANK == 0 else dist.ReduceOp.SUM
        own = "ReduceOp.MAX" if RANK == 0 else "rank 0 .*refused.*ReduceOp.MAX"
        self.refused("sparse", lambda: dist.all_reduce(sparse, op), own)


class SparseTest(unittest.TestCase):
    def test_values_are_exact(self):
        for dtype, value in (
            (torch.int32, 2**24 + 1),
            (torch.int64, 2**40 + 1),
            (torch.float64, 1 + 2.0**-40),
            (torch.uint8, 3),
            (torch.bool, True),
        ):
            dense = torch.zeros(SIZE + 2, 3, dtype=dtype)
            dense[RANK] = value
            dense[SIZE] = value
            for dimensions in (1, 2):
                with self.subTest(dtype=dtype, dimensions=dimensions):
                    tensor = dense.to_sparse(dimensions)
                    dist.all_reduce(tensor)
                    every = True if dtype is torch.bool else SIZE * torch.tensor(value, dtype=dtype)
                    wanted = torch.zeros_like(dense)
                    wanted[:SIZE], wanted[SIZE] = value, every
                    self.assertTrue(torch.equal(tensor.to_dense(), wanted))

    def test_averages(self):
        # Calls the group's method, because torch's all_reduce() would pass a copy of a complex
        # sparse tensor to the group.
        group = dist.distributed_c10d._get_default_group()
        opts = dist.distributed_c10d.AllreduceOptions()
        opts.reduceOp = dist.ReduceOp.AVG
        for dtype in (torch.float64, torch.complex64):
            with self.subTest(dtype=dtype):
                tensor = (torch.eye(3, dtype=dtype) * (RANK + 1)).to_sparse()
                group.allreduce([tensor], opts).wait()
                wanted = torch.eye(3, dtype=dtype) * (SIZE + 1) / 2
                torch.testing.assert_close(tensor.to_dense(), wanted)


class EarlierOperation:
    """An operation in flight, which writes 3 to a tensor when a caller waits for it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.has_ended = tensor, False
        IN_FLIGHT.add(self, _tensors.spans([], [tensor]))

    def poll(self) -> bool:
        return self.has_ended

    def settle(self) -> None:
        self.tensor.fill_(3)
        self.has_ended = True


def _negated(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a lazily negated view of a tensor."""
    return torch.view_as_complex(tensor.view(-1, 2)).conj().imag


class OrderTest(unittest.TestCase):
    """Several collectives on one tensor take effect in the order of the calls."""

    def test_second_call_waits_for_the_first(self):
        total = SIZE * (SIZE + 1) / 2
        last = SIZE - 1
        for size in (4, 1000, 300000):
            cases = (
                (lambda t: dist.all_reduce(t, async_op=True), total * SIZE),
                (lambda t: dist.broadcast(t, 0, async_op=True), total),
            )
            for second, wanted in cases:
                tensor = torch.full((size,), 1.0 + RANK)
                works = [dist.all_reduce(tensor, async_op=True), second(tensor)]
                for work in works:
                    work.wait()
                self.assertTrue((tensor == wanted).all(), tensor)
            sparse = torch.ones(size).to_sparse()
            for work in [dist.all_reduce(sparse, async_op=True) for _ in range(2)]:
                work.wait()
            self.assertTrue((sparse.to_dense() == SIZE * SIZE).all(), sparse)
            tensor = torch.full((size,), 1.0 + RANK)
            works = [dist.broadcast(tensor, last, async_op=True)]
            works.append(dist.all_reduce(tensor[: size // 2], async_op=True))
            for work in reversed(works):
                work.wait()
            self.assertTrue((tensor[: size // 2] == SIZE * SIZE).all())
            self.assertTrue((tensor[size // 2 :] == SIZE).all())

    def test_copied_inputs_have_the_results_of_earlier_operations(self):
        """An operation waits for earlier ones on its tensors before it copies an input."""
        size = 2 * SIZE
        room, rooms = torch.zeros(size), [torch.zeros(size) for _ in range(SIZE)]

        def in_place(x: torch.Tensor) -> torch.Tensor:
            flat = x.view(-1)
            dist.all_gather_into_tensor(flat, flat.chunk(SIZE)[RANK])
            return flat

        def returned(call: Callable[[], object], output: torch.Tensor) -> torch.Tensor:
            call()
            return output

        calls: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], int]] = {
            "all_reduce": (lambda x: returned(lambda: dist.all_reduce(x[:, 0]), x[:, 0]), SIZE),
            "broadcast": (lambda x: returned(lambda: dist.broadcast(x[:, 0], 0), x[:, 0]), 1),
            "all_gather": (
                lambda x: returned(lambda: dist.all_gather(rooms, x[:, 0]), rooms[1]),
                1,
            ),
            "all_gather in place": (in_place, 1),
            "scatter": (
                lambda x: returned(
                    lambda: dist.scatter(room, [x[0]] * SIZE if RANK == 0 else None), room
                ),
                1,
            ),
            "reduce_scatter": (
                lambda x: returned(lambda: dist.reduce_scatter(room, [x[0]] * SIZE), room),
                SIZE,
            ),
            "all_to_all": (
                lambda x: returned(lambda: dist.all_to_all(rooms, [x[0]] * SIZE), rooms[1]),
                1,
            ),
            "a negated view": (lambda x: -hvd.allgather(_negated(x[0])), 1),
        }
        hvd.init()
        for name, (call, factor) in calls.items():
            with self.subTest(name):
                tensor = torch.zeros(size, size)
                EarlierOperation(tensor)
                found = call(tensor)
                self.assertTrue((found == 3 * factor).all(), found)
        hvd.shutdown()

    def test_coalesced_operations_wait_for_earlier_ones(self):
        """Operations before a block take effect before the operations of the block."""
        tensor = torch.zeros(3)
        earlier = EarlierOperation(tensor)
        group = ronda.torch.c10d.group_of(dist.distributed_c10d._get_default_group())
        group.start_coalescing()
        group.allreduce([tensor])
        self.assertTrue(earlier.has_ended)
        group.end_coalescing().wait()
        self.assertEqual(tensor.tolist(), [3.0 * SIZE] * 3)

    def test_messages_of_columns_are_independent(self):
        """Ranks 0 and 1 exchange the columns of a matrix, in an order that works only if receives
        of different columns do not wait for each other.
        """
        group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=60))
        if RANK > 1:
            return
        matrix = torch.full((3, 4), float(RANK))
        works = [
            *(dist.irecv(matrix[:, i], 1 - RANK, group, tag=i) for i in (0, 3)),
            *(dist.isend(matrix[:, 2 - i // 3], 1 - RANK, group, tag=i) for i in (3, 0)),
        ]
        for work in works:
            work.wait()
        self.assertEqual(matrix.tolist(), [[1.0 - RANK, RANK, RANK, 1.0 - RANK]] * 3)

    def test_spans_of_views(self):
        """Slices conflict if they have an element in common. Others that repeat with the same
        period do not.
        """
        whole = torch.arange(240).view(4, 5, 12)
        slices = [
            (slice(None), slice(None), 0),
            (slice(None), slice(None), slice(3, 5)),
            (slice(None), 2),
            (slice(None), slice(3, 5)),
            (slice(1, 3), slice(1, 4), slice(5, 7)),
            (3,),
        ]
        for one in slices:
            for other in slices:
                views = [whole[one], whole[other]]
                spans = [_tensors.span(view, True) for view in views]
                common = set(views[0].flatten().tolist()) & set(views[1].flatten().tolist())
                self.assertEqual(spans[0].conflicts_with(spans[1]), bool(common), (one, other))

    def test_operations_of_horovods_api_on_the_same_tensor(self):
        hvd.init()
        total = SIZE * (SIZE + 1) / 2
        for round in range(20):
            tensor = torch.full((100000,), 1.0 + RANK)
            work = dist.all_reduce(tensor, async_op=True)
            handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"after c10d {round}")
            last = dist.all_reduce(tensor, async_op=True)
            last.wait()
            hvd.synchronize(handle)
            work.wait()
            self.assertTrue((tensor == total * SIZE * SIZE).all(), tensor)
        hvd.shutdown()


class TimeoutTest(unittest.TestCase):
    """Only rank 0 makes a call. When the call has timed out, all ranks continue."""

    def group(self, timeout_s: float = 500) -> dist.ProcessGroup:
        return dist.new_group(timeout=datetime.timedelta(seconds=timeout_s))

    def check_late(self, call: Callable[[], object], words: str = "rank 1") -> None:
        store = dist.distributed_c10d._get_default_store()
        if RANK == 0:
            with self.assertRaisesRegex(RuntimeError, words):
                call()
            store.set(self.id(), "1")
        else:
            store.wait([self.id()], datetime.timedelta(seconds=60))
        dist.barrier()

    def test_barriers_know_the_groups_timeout(self):
        # The timeout is not shorter, because torch 1.13 must also create the group within this
        # time.
        group = self.group(3)
        self.check_late(lambda: dist.barrier(group))

    def test_a_collective_knows_the_timeout_of_its_call(self):
        group = self.group()
        opts = dist.distributed_c10d.AllreduceOptions()
        opts.timeout = datetime.timedelta(seconds=1)
        self.check_late(lambda: group.allreduce([torch.ones(1)], opts).wait(), "timeout.*rank 1")

    def test_a_blocking_collective_says_timeout(self):
        group = self.group(3)
        self.check_late(lambda: dist.all_reduce(torch.ones(1), group=group), "timeout.*rank 1")

    def test_monitored_barrier_knows_the_timeout_of_its_call(self):
        group = self.group()
        self.check_late(lambda: group.monitored_barrier(datetime.timedelta(seconds=1)))

    @unittest.skipUnless(HAS_BACKENDS, "before 2.15 torch refuses all backends but gloo")
    def test_torch_s_monitored_barrier_knows_the_timeout_of_its_call(self):
        group, limit = self.group(), datetime.timedelta(seconds=1)
        self.check_late(lambda: dist.monitored_barrier(group, timeout=limit))

    def test_monitored_barrier_without_a_timeout_ends_at_once(self):
        group = self.group()
        self.check_late(lambda: group.monitored_barrier(datetime.timedelta(0)))
