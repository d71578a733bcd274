# SPDX-License-Identifier: Apache-2.0

"""Compares every torch.distributed collective over Ronda with a result that each rank computes
itself.
"""

from __future__ import annotations

import datetime
import functools
import operator
import threading
import unittest

import ronda.torch.c10d  # noqa: F401
import torch
import torch.distributed as dist

# In newer versions of torch a group has a backend for each device. Before torch 2.15, the group
# itself was Ronda's backend.
HAS_BACKENDS = hasattr(getattr(torch._C._distributed_c10d, "Backend", None), "all_gather_single")
RANK = SIZE = 0
GROUPS: dict[str, tuple[list[int], object]] = {}


def setUpModule() -> None:
    global RANK, SIZE
    torch.set_num_threads(1)
    dist.init_process_group("ronda")
    RANK, SIZE = dist.get_rank(), dist.get_world_size()
    everyone = list(range(SIZE))
    for name, ranks in {"all": everyone, "last": [SIZE - 1], "ends": sorted({0, SIZE - 1})}.items():
        GROUPS[name] = (ranks, dist.new_group(ranks))
    GROUPS["world"] = (everyone, None)


def tearDownModule() -> None:
    dist.destroy_process_group()


def in_each_group(test):
    """Calls test(self, ranks, group) for the world and for subgroups, on their members."""

    @functools.wraps(test)
    def run(self):
        for name, (ranks, group) in GROUPS.items():
            if RANK in ranks:
                with self.subTest(group=name):
                    test(self, ranks, group)

    return run


def data(rank: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Returns small whole numbers, which every dtype can represent and add without rounding."""
    torch.manual_seed(rank)
    numbers = torch.randint(0, 4, shape)
    return numbers % 2 == 1 if dtype is torch.bool else numbers.to(dtype)


class TensorsAreEqual(unittest.TestCase):
    def check(self, actual: torch.Tensor, expected: torch.Tensor) -> None:
        self.assertEqual(actual.dtype, expected.dtype)
        self.assertTrue(torch.equal(actual, expected), f"{actual} is not {expected}")


class ReductionTest(TensorsAreEqual):
    FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    OPS = (
        ("SUM", operator.add, FLOATS + INTEGERS + (torch.complex64,)),
        ("PRODUCT", operator.mul, FLOATS + INTEGERS),
        ("MIN", torch.minimum, FLOATS + INTEGERS),
        ("MAX", torch.maximum, FLOATS + INTEGERS),
        ("BAND", operator.and_, INTEGERS + (torch.bool,)),
        ("BOR", operator.or_, INTEGERS + (torch.bool,)),
        ("BXOR", operator.xor, INTEGERS + (torch.bool,)),
    )

    @in_each_group
    def test_allreduce(self, ranks, group):
        for name, function, dtypes in self.OPS:
            for dtype in dtypes:
                with self.subTest(op=name, dtype=dtype):
                    tensor = data(RANK, 3, 5, dtype=dtype)
                    dist.all_reduce(tensor, getattr(dist.ReduceOp, name), group)
                    parts = [data(rank, 3, 5, dtype=dtype) for rank in ranks]
                    self.check(tensor, functools.reduce(function, parts))

    @in_each_group
    def test_average(self, ranks, group):
        tensor = data(RANK, 7)
        dist.all_reduce(tensor, dist.ReduceOp.AVG, group)
        mean = sum(data(rank, 7) for rank in ranks) / len(ranks)
        torch.testing.assert_close(tensor, mean)

    @in_each_group
    def test_layouts(self, ranks, group):
        base = data(RANK, 4, 6)
        expected = sum(data(rank, 4, 6) for rank in ranks)
        transposed, columns = base.clone().t(), base.clone()
        dist.all_reduce(transposed, group=group)
        self.check(transposed, expected.t())
        dist.all_reduce(columns[:, ::2], group=group)
        self.check(columns[:, ::2], expected[:, ::2])
        self.check(columns[:, 1::2], base[:, 1::2])
        scalar, empty = torch.tensor(2.0), torch.empty(0)
        dist.all_reduce(scalar, group=group)
        dist.all_reduce(empty, group=group)
        self.check(scalar, torch.tensor(2.0 * len(ranks)))

    @in_each_group
    def test_coalesced(self, ranks, group):
        tensors = [data(RANK, 3), data(RANK, 2, 2).t()]
        dist.all_reduce_coalesced(tensors, group=group)
        self.check(tensors[0], sum(data(rank, 3) for rank in ranks))
        self.check(tensors[1], sum(data(rank, 2, 2) for rank in ranks).t())

    @in_each_group
    def test_sparse(self, ranks, group):
        def part(rank):
            values = data(rank, 2, 3)
            return torch.sparse_coo_tensor(torch.tensor([[rank, 5]]), values, (SIZE + 6, 3))

        tensor = part(RANK)
        dist.all_reduce(tensor, group=group)
        self.check(tensor.to_dense(), sum(part(rank).to_dense() for rank in ranks))

    @in_each_group
    def test_reduce(self, ranks, group):
        for root in ranks:
            tensor = data(RANK, 4, 3).t()
            dist.reduce(tensor, root, group=group)
            if root == RANK:
                self.check(tensor, sum(data(rank, 4, 3) for rank in ranks).t())

    @in_each_group
    def test_reduce_scatter(self, ranks, group):
        total = sum(data(rank, len(ranks), 4) for rank in ranks)
        expected = total[ranks.index(RANK)]
        pieces = list(data(RANK, len(ranks), 4))
        for inputs in (pieces, [piece.clone() for piece in pieces]):
            output = torch.empty(4)
            dist.reduce_scatter(output, inputs, group=group)
            self.check(output, expected)
        output = torch.empty(4)
        flat = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
        flat(output, data(RANK, len(ranks), 4).view(-1), group=group)
        self.check(output, expected)

    @in_each_group
    def test_reduce_scatter_of_different_sizes(self, ranks, group):
        mine = ranks.index(RANK)
        inputs = [data(RANK + i, i, 3).t() for i in range(len(ranks))]
        before = [each.clone() for each in inputs]
        output = torch.empty(mine, 3).t()
        dist.reduce_scatter(output, inputs, group=group)
        self.check(output, sum(data(rank + mine, mine, 3).t() for rank in ranks))
        for each, value in zip(inputs, before):
            self.check(each, value)

    @in_each_group
    def test_reduce_scatter_in_place_and_coalesced(self, ranks, group):
        pg = group or dist.distributed_c10d._get_default_group()
        inputs = [data(RANK, len(ranks), 4), data(RANK + 9, len(ranks), 2)]
        totals = [
            sum(data(rank + more, len(ranks), width) for rank in ranks)
            for more, width in ((0, 4), (9, 2))
        ]
        mine = ranks.index(RANK)
        outputs = [inputs[0][mine], torch.empty(2)]
        pg.reduce_scatter_tensor_coalesced(outputs, inputs).wait()
        for output, total in zip(outputs, totals):
            self.check(output, total[mine])

    def test_premultiplied_sum(self):
        op = torch._C._distributed_c10d._make_nccl_premul_sum(0.5)
        tensor = torch.full((3,), 4.0)
        if torch.__version__ < "2":
            with self.assertRaisesRegex(NotImplementedError, "factor of PREMUL_SUM"):
                dist.all_reduce(tensor, op)
        else:
            dist.all_reduce(tensor, op)
            self.check(tensor, torch.full((3,), 2.0 * SIZE))


class MovementTest(TensorsAreEqual):
    DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex128)

    @in_each_group
    def test_broadcast(self, ranks, group):
        for root in ranks:
            for dtype in self.DTYPES:
                tensor = data(RANK, 3, 2, dtype=dtype).t()
                dist.broadcast(tensor, root, group)
                self.check(tensor, data(root, 3, 2, dtype=dtype).t())

    @in_each_group
    def test_allgather(self, ranks, group):
        for dtype in self.DTYPES:
            expected = torch.stack([data(rank, 3, 2, dtype=dtype) for rank in ranks])
            apart = [torch.empty(3, 2, dtype=dtype) for _ in ranks]
            adjacent = list(torch.empty(len(ranks), 3, 2, dtype=dtype))
            for outputs in (apart, adjacent):
                dist.all_gather(outputs, data(RANK, 3, 2, dtype=dtype), group)
                self.check(torch.stack(outputs), expected)
            whole = torch.empty(len(ranks) * 3, 2, dtype=dtype)
            dist.all_gather_into_tensor(whole, data(RANK, 3, 2, dtype=dtype), group)
            self.check(whole, expected.view(whole.shape))

    @in_each_group
    def test_allgather_in_place(self, ranks, group):
        whole = torch.zeros(len(ranks), 5)
        own = whole[ranks.index(RANK)]
        own.copy_(data(RANK, 5))
        dist.all_gather_into_tensor(whole.view(-1), own, group)
        self.check(whole, torch.stack([data(rank, 5) for rank in ranks]))

    @in_each_group
    def test_allgather_of_different_sizes(self, ranks, group):
        outputs = [torch.empty(rank + 1) for rank in ranks]
        pg = group or dist.distributed_c10d._get_default_group()
        pg.allgather([outputs], [data(RANK, RANK + 1)]).wait()
        for rank, output in zip(ranks, outputs):
            self.check(output, data(rank, rank + 1))

    @in_each_group
    def test_allgather_coalesced(self, ranks, group):
        shapes = ((2, 2), (3,))
        inputs = [data(RANK, *shape) for shape in shapes]
        lists = [[torch.empty(shape) for shape in shapes] for _ in ranks]
        dist.all_gather_coalesced(lists, inputs, group)
        for rank, row in zip(ranks, lists):
            for shape, output in zip(shapes, row):
                self.check(output, data(rank, *shape))
        pg = group or dist.distributed_c10d._get_default_group()
        outputs = [torch.empty(len(ranks), *shape) for shape in shapes]
        pg.allgather_into_tensor_coalesced(outputs, inputs).wait()
        for shape, output in zip(shapes, outputs):
            self.check(output, torch.stack([data(rank, *shape) for rank in ranks]))

    @in_each_group
    def test_gather(self, ranks, group):
        for root in ranks:
            outputs = [torch.empty(2, 3) for _ in ranks] if root == RANK else None
            dist.gather(data(RANK, 2, 3), outputs, root, group)
            for rank, output in zip(ranks, outputs or []):
                self.check(output, data(rank, 2, 3))

    @in_each_group
    def test_gather_in_place(self, ranks, group):
        for root in ranks:
            whole = torch.zeros(len(ranks), 5)
            own = whole[ranks.index(RANK)]
            own.copy_(data(RANK, 5))
            dist.gather(own, list(whole) if root == RANK else None, root, group)
            if root == RANK:
                self.check(whole, torch.stack([data(rank, 5) for rank in ranks]))

    @in_each_group
    def test_scatter(self, ranks, group):
        for root in ranks:
            inputs = [data(100 * root + rank, 2, 3).bool() for rank in ranks]
            output = torch.zeros(2, 3).bool()
            dist.scatter(output, inputs if root == RANK else None, root, group)
            self.check(output, data(100 * root + RANK, 2, 3).bool())

    @in_each_group
    def test_alltoall(self, ranks, group):
        def part(sender, receiver):
            return data(10 * sender + receiver, sender + receiver + 1)

        inputs = [part(RANK, rank) for rank in ranks]
        outputs = [torch.empty(rank + RANK + 1) for rank in ranks]
        dist.all_to_all(outputs, inputs, group)
        for rank, output in zip(ranks, outputs):
            self.check(output, part(rank, RANK))

    @in_each_group
    def test_alltoall_single(self, ranks, group):
        even = torch.stack([data(10 * RANK + rank, 2, 3) for rank in ranks]).flatten(0, 1)
        output = torch.empty_like(even)
        dist.all_to_all_single(output, even, group=group)
        expected = torch.cat([data(10 * rank + RANK, 2, 3) for rank in ranks])
        self.check(output, expected)
        flat = torch.empty(even.numel())
        dist.all_to_all_single(flat, even, group=group)
        self.check(flat, expected.view(-1))
        rows = [rank + 1 for rank in ranks]
        uneven = torch.cat([data(10 * RANK + rank, rank + 1, 2) for rank in ranks])
        output = torch.empty(len(ranks) * (RANK + 1), 2)
        dist.all_to_all_single(output, uneven, [RANK + 1] * len(ranks), rows, group)
        self.check(output, torch.cat([data(10 * rank + RANK, RANK + 1, 2) for rank in ranks]))

    @in_each_group
    def test_objects(self, ranks, group):
        gathered = [None] * len(ranks)
        dist.all_gather_object(gathered, {"rank": RANK, "long": "x" * 1000 * RANK}, group)
        self.assertEqual([each["rank"] for each in gathered], ranks)
        root = ranks[-1]
        objects = [("from", RANK)]
        dist.broadcast_object_list(objects, root, group)
        self.assertEqual(objects, [("from", root)])
        collected = [None] * len(ranks) if root == RANK else None
        dist.gather_object(RANK, collected, root, group)
        self.assertEqual(collected, ranks if root == RANK else None)
        if len(ranks) == SIZE:  # torch 1.13 numbers the root within the subgroup here
            received = [None]
            dist.scatter_object_list(received, [[rank] for rank in ranks], root, group)
            self.assertEqual(received, [[RANK]])


class PointToPointTest(TensorsAreEqual):
    @in_each_group
    def test_ring_with_tags(self, ranks, group):
        if len(ranks) == 1:
            return
        mine = ranks.index(RANK)
        following, previous = ranks[(mine + 1) % len(ranks)], ranks[mine - 1]
        received = [torch.empty(4), torch.empty(3, dtype=torch.bool)]
        works = [
            dist.isend(data(RANK, 4), following, group, tag=7),
            dist.isend(data(RANK, 3).bool(), following, group, tag=8),
            # The tags identify the messages, so the receives may be in a different order from the
            # sends.
            dist.irecv(received[1], previous, group, tag=8),
            dist.irecv(received[0], previous, group, tag=7),
        ]
        for work in works:
            work.wait()
        self.check(received[0], data(previous, 4))
        self.check(received[1], data(previous, 3).bool())

    def test_blocking(self):
        tensor = data(RANK, 2, 2).t()
        if RANK == 0:
            dist.send(tensor, 1)
        elif RANK == 1:
            self.assertEqual(dist.recv(tensor, 0), 0)
            self.check(tensor, data(0, 2, 2).t())

    def test_batch(self):
        following, previous = (RANK + 1) % SIZE, (RANK - 1) % SIZE
        received = torch.empty(5)
        operations = [
            dist.P2POp(dist.isend, data(RANK, 5), following),
            dist.P2POp(dist.irecv, received, previous),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        self.check(received, data(previous, 5))

    def test_any_source(self):
        """Each message is received once, with its sender. Later receives that name a sender still
        get the sender's other messages.
        """
        if RANK != 0:
            for number in range(2):
                dist.send(torch.tensor([10.0 * RANK + number]), 0, tag=3)
            return
        received: dict[int, list[float]] = {rank: [] for rank in range(1, SIZE)}
        tensor = torch.empty(1)
        for _ in range(SIZE - 1):
            received[dist.recv(tensor, tag=3)].append(tensor.item())
        for rank in received:
            while len(received[rank]) < 2:
                self.assertEqual(dist.recv(tensor, rank, tag=3), rank)
                received[rank].append(tensor.item())
        self.assertEqual(received, {rank: [10.0 * rank, 10.0 * rank + 1] for rank in received})


class WorkTest(TensorsAreEqual):
    def test_states(self):
        tensor = data(RANK, 1000)
        work = dist.all_reduce(tensor, async_op=True)
        self.assertTrue(work.wait())
        self.assertTrue(work.is_completed())
        self.assertTrue(work.is_success())
        self.assertIsNone(work.exception())
        self.assertIs(work.result()[0], tensor)
        work.synchronize()

    def test_polling_moves_the_result(self):
        tensor = data(RANK, 4, 6).t()
        work = dist.all_reduce(tensor, async_op=True)
        while not work.is_completed():
            pass
        self.check(tensor, sum(data(rank, 4, 6) for rank in range(SIZE)).t())

    def test_future(self):
        tensor = data(RANK, 4, 6).t()
        work = dist.all_reduce(tensor, async_op=True)
        doubled = work.get_future().then(lambda future: future.value()[0] * 2)
        expected = sum(data(rank, 4, 6) for rank in range(SIZE)).t()
        self.check(doubled.wait(), expected * 2)
        self.check(work.get_future().wait()[0], expected)
        self.assertTrue(work.wait())

    def test_future_of_a_work_that_is_over(self):
        tensor = data(RANK, 3)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        self.assertIs(work.get_future().wait()[0], tensor)

    def test_callback_waits_for_a_future_that_exists(self):
        """The second collective ends while the callback of the first one waits for it."""
        store = dist.distributed_c10d._get_default_store()
        keys = [f"{self.id()} {i}" for i in range(2)]
        if RANK != 0:
            works = []
            for key in keys:
                store.wait([key], datetime.timedelta(seconds=120))
                works.append(dist.all_reduce(torch.ones(1), async_op=True))
            for work in works:
                work.wait()
            return
        works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in keys]
        has_ended = threading.Event()

        def wait(_: torch.futures.Future) -> bool:
            store.set(keys[1], "")
            return has_ended.wait(60)

        works[1].get_future().add_done_callback(lambda _: has_ended.set())
        waited = works[0].get_future().then(wait)
        store.set(keys[0], "")
        self.assertTrue(waited.wait())

    def test_timeout(self):
        """If a wait times out before the operation ends, the operation stays in flight."""
        if RANK == 0:
            tensor = torch.empty(1)
            work = dist.irecv(tensor, 1)
            with self.assertRaisesRegex(TimeoutError, "recv has not ended within 0.05 s"):
                work.wait(datetime.timedelta(milliseconds=50))
            self.assertFalse(work.is_completed())
        dist.barrier()
        if RANK == 0:
            work.wait()
            self.check(tensor, torch.ones(1))
        elif RANK == 1:
            dist.send(torch.ones(1), 0)

    def test_late_rank_is_named_after_the_groups_timeout(self):
        # The timeout is not shorter, because torch 1.13 must also create the group within this
        # time.
        group = dist.new_group(timeout=datetime.timedelta(seconds=3))
        store = dist.distributed_c10d._get_default_store()
        if RANK == 0:
            with self.assertRaisesRegex(TimeoutError, "rank 1"):
                dist.all_reduce(torch.ones(1), group=group)
            store.set("late", "1")
        else:
            store.wait(["late"], datetime.timedelta(seconds=60))
        dist.barrier()

    def test_mismatch_reaches_wait_and_future(self):
        for get in (lambda work: work.wait(), lambda work: work.get_future().wait()):
            work = dist.all_reduce(torch.ones(2 + RANK), async_op=True)
            with self.assertRaisesRegex(RuntimeError, "ranks disagree"):
                get(work)
            self.assertFalse(work.is_success())
            self.assertIn("ranks disagree", str(work.exception()))
        dist.barrier()

    def test_many_in_flight(self):
        tensors = [data(RANK + i, 10 * i) for i in range(50)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for work in reversed(works):
            work.wait()
        for i, tensor in enumerate(tensors):
            self.check(tensor, sum(data(rank + i, 10 * i) for rank in range(SIZE)))


class GroupTest(unittest.TestCase):
    def test_names_and_ranks(self):
        ranks, group = GROUPS["all"]
        self.assertEqual(dist.get_backend(group), "ronda")
        self.assertEqual((group.rank(), group.size()), (RANK, SIZE))
        backend = group._get_backend(torch.device("cpu")) if HAS_BACKENDS else group
        self.assertEqual(backend.name(), "ronda")

    @in_each_group
    def test_barriers(self, ranks, group):
        dist.barrier(group)
        dist.barrier(group, async_op=True).wait()
        pg = group or dist.distributed_c10d._get_default_group()
        pg.monitored_barrier(datetime.timedelta(seconds=30))

    def test_arguments_are_refused(self):
        cases = (
            (
                "cut into|as many elements",
                lambda: dist.reduce_scatter(torch.ones(2), [torch.ones(3)] * SIZE),
            ),
            (
                "times as many",
                lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(2 * SIZE + 1)),
            ),
            (
                "add up",
                lambda: dist.all_to_all_single(
                    torch.ones(SIZE), torch.ones(SIZE), [2] * SIZE, [1] * SIZE
                ),
            ),
            ("one device", lambda: GROUPS["all"][1].allreduce([torch.ones(1), torch.ones(1)])),
        )
        for text, call in cases:
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                call()
