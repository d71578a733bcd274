# SPDX-License-Identifier: Apache-2.0

"""Compares collectives, outside and inside of jit, with their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import ronda.jax as rj
from jax_cases import Case, both, numbers

SUMMED = ("int8", "int32", "uint16", "float16", "bfloat16", "float32")
MOVED = (*SUMMED, "bool", "float8_e4m3fn", "float8_e5m2")


class OperationsTest(Case):
    def every(self, *shape, dtype="float32"):
        """Returns the arrays of all ranks."""
        return [numbers(rank, shape or (6, 2), dtype) for rank in range(self.size)]

    def test_allreduce_adds_each_type(self):
        for dtype in SUMMED:
            expected = sum(np.asarray(each, np.float64) for each in self.every(dtype=dtype))
            for found in both(
                lambda x: rj.allreduce(x, rj.Sum), self.every(dtype=dtype)[self.rank]
            ):
                self.assertEqual(found.dtype, dtype)
                self.assert_same(found, expected)

    def test_allreduce_combines_as_asked(self):
        every = np.stack([np.asarray(each) for each in self.every()])
        own = self.every()[self.rank]
        for op, expected in (
            (rj.Average, every.mean(0)),
            (rj.Min, every.min(0)),
            (rj.Max, every.max(0)),
            (rj.Product, every.prod(0)),
        ):
            for found in both(lambda x: rj.allreduce(x, op), own):  # noqa: B023
                self.assert_same(found, expected)
        for found in both(lambda x: rj.allreduce(x, rj.Sum, prescale=2, postscale=3), own):
            self.assert_same(found, every.sum(0) * 6)

    def test_a_tree_keeps_its_structure(self):
        tree = {"w": numbers(self.rank), "b": [jnp.int32(self.rank), numbers(self.rank, ())]}
        expected = jax.tree_util.tree_map(
            lambda *each: sum(each),
            *[{"w": numbers(r), "b": [jnp.int32(r), numbers(r, ())]} for r in range(self.size)],
        )
        for found in both(lambda x: rj.allreduce(x, rj.Sum, name="tree"), tree):
            self.assert_same(found, expected)
        self.assertEqual(rj.allreduce({}), {})

    def test_a_group_is_reduced_like_its_arrays(self):
        tree = {"w": numbers(self.rank), "n": jnp.int32(self.rank), "b": numbers(self.rank, (3,))}
        for name in (None, "group"):
            found = both(lambda x: rj.allreduce(x, rj.Sum, name=name, grouped=True), tree)  # noqa: B023
            expected = rj.allreduce(tree, rj.Sum)
            self.assert_same(found, [expected, expected])

    def test_wires_are_close(self):
        own = numbers(self.rank) / 7
        expected = sum(numbers(rank) / 7 for rank in range(self.size))
        for wire, tolerance in (
            (rj.Compression.fp16, 2e-3),
            (rj.Compression.bf16, 2e-2),
            (rj.Compression.fp8, 0.2),
        ):
            for found in both(lambda x: rj.allreduce(x, rj.Sum, compression=wire), own):  # noqa: B023
                self.assert_same(found, expected, rtol=tolerance, atol=tolerance)

    def test_exchanges_move_each_type(self):
        rows = self.size * 2
        root = self.size - 1
        for dtype in MOVED:
            every = [np.asarray(each) for each in self.every(rows, 3, dtype=dtype)]
            own = self.every(rows, 3, dtype=dtype)[self.rank]
            shares = [np.split(each, self.size) for each in every]
            for found in both(
                lambda x: (rj.broadcast(x, root), rj.allgather(x), rj.alltoall(x)), own
            ):
                self.assertEqual({each.dtype.name for each in found}, {dtype})
                self.assert_same(found[0], every[root])
                self.assert_same(found[1], np.concatenate(every))
                self.assert_same(found[2], np.concatenate([each[self.rank] for each in shares]))

    def test_complex_numbers(self):
        every = [each * (1 + 2j) + 1j for each in self.every()]
        total, size = sum(every), self.size
        rows = np.array_split(total, size)[self.rank]
        for call, expected in (
            (lambda x: rj.allreduce(x, rj.Sum), total),
            (lambda x: rj.allreduce([x, x], name="complex", grouped=True)[1], total / size),
            (lambda x: rj.allreduce({"z": x[0, 0]})["z"], total[0, 0] / size),
            (lambda x: rj.reducescatter(x, rj.Sum), rows),
            (lambda x: rj.broadcast(x, size - 1), every[-1]),
            (rj.allgather, np.concatenate(every)),
            (lambda x: rj.alltoall(rj.alltoall(x[:size])), every[self.rank][:size]),
            (rj.barrier, every[self.rank]),
        ):
            for found in both(call, every[self.rank]):
                self.assertEqual(found.dtype, "complex64")
                np.testing.assert_allclose(found, expected, rtol=1e-6)
        if self.rank == 1:
            np.testing.assert_allclose(rj.recv(every[1], 0, tag=9), every[0])
        elif self.rank == 0 and size > 1:
            rj.send(every[0], 1, tag=9)

    def test_reducescatter_deals_the_rows_out(self):
        every = self.every(7, 2)
        shares = np.array_split(np.asarray(sum(every)), self.size)
        for found in both(lambda x: rj.reducescatter(x, rj.Sum), every[self.rank]):
            self.assert_same(found, shares[self.rank])

    def test_outside_of_jit_allgather_takes_different_numbers_of_rows(self):
        found = rj.allgather(numbers(self.rank, (self.rank + 1, 2)))
        self.assert_same(found, np.concatenate([numbers(r, (r + 1, 2)) for r in range(self.size)]))

    def test_alltoall_sends_as_many_rows_as_asked(self):
        # Rank r sends r + i rows to rank i, and none to itself.
        table = [
            [0 if rank == to else rank + to for to in range(self.size)] for rank in range(self.size)
        ]
        splits, received = table[self.rank], tuple(row[self.rank] for row in table)
        every = [
            {"x": numbers(rank, (sum(row), 2)), "n": jnp.full(sum(row), rank)}
            for rank, row in enumerate(table)
        ]
        starts = [sum(row[: self.rank]) for row in table]
        expected = jax.tree_util.tree_map(
            lambda *xs: np.concatenate(
                [x[start : start + count] for x, start, count in zip(xs, starts, received)]
            ),
            *every,
        )
        for options in ({}, {"name": "rows"}, {"received_splits": received}):
            rows, counts = rj.alltoall(every[self.rank], splits, **options)
            self.assert_same(rows, expected)
            self.assertEqual(counts, received)
        program = jax.jit(lambda x: rj.alltoall(x, splits, received_splits=np.array(received))[0])
        self.assert_same(program(every[self.rank]), expected)

    def test_messages_go_round(self):
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        if self.size == 1:
            return

        def tree(rank):
            return {"n": jnp.int32(rank), "x": numbers(rank)}

        def exchange(own):
            like = jax.tree_util.tree_map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), own)
            if self.rank == 0:  # or all would wait for a message
                rj.send(own, after, tag=1)
                return rj.recv(like, before, tag=1)
            found = rj.recv(like, before, tag=1)
            rj.send(own, after, tag=1)
            return found

        for found in both(exchange, tree(self.rank)):
            self.assert_same(found, tree(before))

    def test_a_process_set_operates_alone(self):
        members = list(range(self.size))[-2:]
        pair = self.pair
        if self.rank in members:
            for found in both(
                lambda x: rj.allreduce(x, rj.Sum, process_set=pair), numbers(self.rank)
            ):
                self.assert_same(found, sum(numbers(each) for each in members))
            for found in both(lambda x: rj.allgather(x, process_set=pair), numbers(self.rank)):
                self.assert_same(found, np.concatenate([numbers(each) for each in members]))
        else:
            with self.assertRaisesRegex(ValueError, f"rank {self.rank} is not in ProcessSet"):
                rj.allreduce(numbers(self.rank), process_set=pair)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        every = list(range(cls.size))
        cls.pair = rj.add_process_set(every[-2:]) if cls.size > 2 else rj.global_process_set

    def test_a_barrier_gives_its_tree_back(self):
        for found in both(lambda x: rj.barrier({"x": x}), numbers(self.rank)):
            self.assert_same(found, {"x": numbers(self.rank)})
        self.assertIsNone(rj.barrier())

    def test_a_rank_without_data_joins(self):
        step = jax.jit(lambda x: rj.allreduce(x, rj.Average, name="uneven"))
        for _ in range(self.rank):
            step(numbers(self.rank)).block_until_ready()
        self.assertIn(rj.join(), range(self.size))
        self.assert_same(step(numbers(self.rank)), sum(map(numbers, range(self.size))) / self.size)

    def test_objects_travel(self):
        self.assertEqual(rj.allgather_object(self.rank), list(range(self.size)))
        self.assertEqual(rj.broadcast_object({"epoch": self.rank}), {"epoch": 0})
