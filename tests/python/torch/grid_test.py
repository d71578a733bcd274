# SPDX-License-Identifier: Apache-2.0

"""Tests Horovod's operations on every dtype and number of dimensions, also in process sets.

Also tests the errors when ranks' calls differ, and the scaling of integers.
"""

import itertools
import unittest

import ronda.torch as hvd
import torch
from torch_cases import (  # noqa: F401
    DTYPES,
    needs_other_ranks,
    of_all,
    of_rank,
    setUpModule,
    tearDownModule,
)

SHAPES = [(7,), (7, 5), (7, 5, 3)]
GRID = list(itertools.product(DTYPES, SHAPES))
FLOATS = [dtype for dtype in DTYPES if dtype.is_floating_point]
SMALL_INTEGERS = (torch.uint8, torch.int8)


def sum_of(all):
    return all.sum(0, dtype=all.dtype)


class GridCase(unittest.TestCase):
    def check(self, result, want):
        self.assertEqual(result.dtype, want.dtype)
        torch.testing.assert_close(result, want, rtol=0, atol=0)


class WholeJobTest(GridCase):
    def test_allreduce(self):
        for dtype, shape in GRID:
            own, want = of_rank(hvd.rank(), shape, dtype), sum_of(of_all(shape, dtype))
            self.check(hvd.allreduce(own, op=hvd.Sum), want)
            self.check(hvd.synchronize(hvd.allreduce_async(own, op=hvd.Sum)), want)
            copy = own.clone()
            self.assertIs(hvd.synchronize(hvd.allreduce_async_(copy, op=hvd.Sum)), copy)
            self.check(copy, want)

    def test_allreduce_of_a_number(self):
        for dtype in DTYPES:
            own = torch.tensor(hvd.rank() + 1, dtype=dtype)
            total = hvd.size() * (hvd.size() + 1) // 2
            self.check(hvd.allreduce(own, op=hvd.Sum), torch.tensor(total, dtype=dtype))

    def test_groups_of_every_dtype_and_shape(self):
        own = [of_rank(hvd.rank(), shape, dtype) for dtype, shape in GRID]
        wants = [sum_of(of_all(shape, dtype)) for dtype, shape in GRID]
        results = hvd.synchronize(hvd.grouped_allreduce_async(own, op=hvd.Sum))
        gathered = hvd.grouped_allgather(own)
        in_place = hvd.synchronize(hvd.grouped_allreduce_async_(own, op=hvd.Sum))
        for each, result, same, rows, want, (dtype, shape) in zip(
            own, results, in_place, gathered, wants, GRID
        ):
            self.check(result, want)
            self.assertIs(same, each)
            self.check(each, want)
            self.check(rows, of_all(shape, dtype).flatten(0, 1))

    def test_many_small_tensors_in_flight(self):
        cases = list(enumerate(GRID))
        handles = [
            hvd.allreduce_async(of_rank(hvd.rank(), shape, dtype), name=f"t{i}", op=hvd.Sum)
            for i, (dtype, shape) in cases
        ]
        for handle, (dtype, shape) in zip(handles, GRID):
            self.check(hvd.synchronize(handle), sum_of(of_all(shape, dtype)))

    def test_allgather(self):
        for (dtype, shape), different in itertools.product(GRID, (False, True)):
            rows = [7 + 3 * rank * different for rank in range(hvd.size())]
            parts = [of_rank(r, (n, *shape[1:]), dtype) for r, n in enumerate(rows)]
            self.check(hvd.allgather(parts[hvd.rank()]), torch.cat(parts))
            handle = hvd.allgather_async(parts[hvd.rank()], name="rows")
            self.check(hvd.synchronize(handle), torch.cat(parts))

    def test_broadcast(self):
        for dtype, shape in GRID:
            for root in range(hvd.size()):
                own, want = of_rank(hvd.rank(), shape, dtype), of_rank(root, shape, dtype)
                self.check(hvd.synchronize(hvd.broadcast_async(own, root)), want)
                self.assertIs(hvd.synchronize(hvd.broadcast_async_(own, root)), own)
                self.check(own, want)

    def test_alltoall(self):
        size, rank = hvd.size(), hvd.rank()
        for dtype, shape in GRID:
            # Rank r sends r + 1 rows to each rank; all rows for one rank are equal.
            own = torch.full((size * (rank + 1), *shape[1:]), rank + 1, dtype=dtype)
            want = torch.cat(
                [torch.full((r + 1, *shape[1:]), r + 1, dtype=dtype) for r in range(size)]
            )
            received, splits = hvd.alltoall(own, torch.tensor([rank + 1] * size))
            self.check(received, want)
            self.assertEqual(splits.tolist(), list(range(1, size + 1)))

    def test_alltoall_with_ranks_that_send_or_receive_nothing(self):
        size, rank = hvd.size(), hvd.rank()
        for dtype in DTYPES:
            own = torch.full((size, 2), rank, dtype=dtype)
            # Rank 0 sends nothing.
            received, splits = hvd.alltoall(own, [int(rank > 0)] * size)
            self.assertEqual(splits.tolist(), [0] + [1] * (size - 1))
            self.check(received[:, 0], torch.arange(1, size).to(dtype))
            # Rank 0 receives all rows.
            received, splits = hvd.alltoall(own, [size] + [0] * (size - 1))
            self.assertEqual(splits.tolist(), [size if rank == 0 else 0] * size)
            self.assertEqual(received.shape, (size * size if rank == 0 else 0, 2))
            # No rank has rows.
            received, splits = hvd.alltoall(own[:0], [0] * size)
            self.assertEqual((received.shape, received.dtype), ((0, 2), dtype))

    def test_reducescatter(self):
        size, rank = hvd.size(), hvd.rank()
        for (dtype, shape), rows in itertools.product(GRID, (size, 4 * size + 1)):
            own, all = of_rank(rank, (rows, *shape[1:]), dtype), of_all((rows, *shape[1:]), dtype)
            want = torch.tensor_split(sum_of(all), size)[rank]
            self.check(hvd.reducescatter(own, op=hvd.Sum), want)
            handle = hvd.reducescatter_async(own, name="part", op=hvd.Sum)
            self.check(hvd.synchronize(handle), want)

    def test_reducescatter_of_groups(self):
        size, rank = hvd.size(), hvd.rank()
        own = [of_rank(rank, shape, dtype) for dtype, shape in GRID]
        results = hvd.synchronize(hvd.grouped_reducescatter_async(own, op=hvd.Sum))
        for result, (dtype, shape) in zip(results, GRID):
            self.check(result, torch.tensor_split(sum_of(of_all(shape, dtype)), size)[rank])


class ProcessSetTest(GridCase):
    """Tests the even and the odd ranks as two process sets that run operations at the same time."""

    def setUp(self):
        needs_other_ranks(self)
        kinds = [list(range(first, hvd.size(), 2)) for first in (0, 1)]
        self.sets = [hvd.add_process_set(ranks) for ranks in kinds]
        self.mine = self.sets[hvd.rank() % 2]
        self.ranks = self.mine.ranks

    def tearDown(self):
        for each in getattr(self, "sets", []):
            hvd.remove_process_set(each)

    def test_every_operation(self):
        options = {"process_set": self.mine}
        first, own_rank = self.ranks[0], self.mine.rank()
        for dtype, shape in GRID:
            own = of_rank(hvd.rank(), shape, dtype)
            all = torch.stack([of_rank(rank, shape, dtype) for rank in self.ranks])
            parts = torch.tensor_split(sum_of(all), len(self.ranks))
            self.check(hvd.allreduce(own, op=hvd.Sum, **options), sum_of(all))
            self.check(hvd.grouped_allreduce([own], op=hvd.Sum, **options)[0], sum_of(all))
            self.check(hvd.allgather(own, **options), all.flatten(0, 1))
            self.check(hvd.grouped_allgather([own], **options)[0], all.flatten(0, 1))
            self.check(hvd.broadcast(own, first, **options), all[0])
            self.check(hvd.reducescatter(own, op=hvd.Sum, **options), parts[own_rank])
            group = hvd.grouped_reducescatter([own, own], op=hvd.Sum, **options)
            self.check(group[1], parts[own_rank])
            received, _ = hvd.alltoall(own, [1] * len(self.ranks), **options)
            self.check(received, all[:, own_rank])
            self.check(hvd.allreduce_(own, op=hvd.Sum, **options), sum_of(all))
        objects = hvd.allgather_object({"rank": hvd.rank()}, **options)
        self.assertEqual(objects, [{"rank": rank} for rank in self.ranks])

    def test_gradients(self):
        options, members = {"process_set": self.mine}, len(self.ranks)
        weight = float(hvd.rank() + 1)
        total = float(sum(rank + 1 for rank in self.ranks))
        for function, want in (
            (lambda t: hvd.allreduce(t, op=hvd.Sum, **options), total),
            (lambda t: hvd.allreduce(t, op=hvd.Average, **options), total / members),
            (lambda t: hvd.grouped_allreduce([t], op=hvd.Sum, **options)[0], total),
            (lambda t: hvd.allgather(t, **options), total / members),
            (lambda t: hvd.grouped_allgather([t], **options)[0], total / members),
        ):
            leaf = torch.ones(4, 2, requires_grad=True)
            (function(leaf) * weight).sum().backward()
            self.check(leaf.grad, torch.full((4, 2), want))
        leaf = torch.ones(3, requires_grad=True)
        (hvd.broadcast(leaf, self.ranks[-1], **options) * weight).sum().backward()
        is_root = hvd.rank() == self.ranks[-1]
        self.check(leaf.grad, torch.full((3,), total / members if is_root else 0.0))
        weights = torch.tensor([float(rank + 1) for rank in self.ranks])
        for function, want in (
            (lambda t: hvd.alltoall(t, **options), weights),
            (lambda t: hvd.reducescatter(t, op=hvd.Sum, **options), weights * members),
            (lambda t: hvd.reducescatter(t, **options), weights),
        ):
            leaf = torch.ones(members, requires_grad=True)
            (function(leaf) * weight).sum().backward()
            self.check(leaf.grad, want)

    def test_a_set_is_for_its_members(self):
        others = self.sets[1 - hvd.rank() % 2]
        self.assertFalse(others.included())
        self.assertRaisesRegex(ValueError, "is not in", others.rank)
        for function in (hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter):
            with self.assertRaises((hvd.HorovodInternalError, ValueError)):
                function(torch.ones(4), process_set=others)
        hvd.barrier()

    def test_sets_as_they_are_made(self):
        self.assertEqual(self.mine.size(), len(self.ranks))
        self.assertEqual(hvd.global_process_set.size(), hvd.size())
        with self.assertRaises(ValueError):
            hvd.add_process_set(self.ranks)  # a set of these ranks exists
        with self.assertRaises(ValueError):
            hvd.add_process_set([0, hvd.size()])
        self.assertFalse(hvd.remove_process_set(hvd.global_process_set))


class FactorsTest(GridCase):
    """Values are scaled before and after the sum, and integers round towards zero, as in
    Horovod.
    """

    def values(self, dtype):
        low = 0 if dtype == torch.uint8 else -10
        torch.manual_seed(9)
        return torch.randint(low, 11, (17, 3)).to(dtype)

    def scaled(self, tensor, factor):
        if tensor.dtype.is_floating_point:
            exact = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        else:
            exact = torch.float64
        return (tensor.to(exact) * torch.tensor(factor, dtype=exact)).to(tensor.dtype)

    def test_prescale(self):
        for dtype, factor in itertools.product(DTYPES, (0.37, 1.0, 2.5)):
            with self.subTest(dtype=dtype, factor=factor):
                own = self.values(dtype)
                want = self.scaled(own, factor) * hvd.size()
                for result in (
                    hvd.allreduce(own, op=hvd.Sum, prescale_factor=factor),
                    hvd.grouped_allreduce([own], op=hvd.Sum, prescale_factor=factor)[0],
                ):
                    torch.testing.assert_close(result, want)

    def test_postscale(self):
        for dtype, factor in itertools.product(DTYPES, (0.37, 1.0, 2.5)):
            with self.subTest(dtype=dtype, factor=factor):
                own = self.values(dtype)
                want = self.scaled(own * hvd.size(), factor)
                for result in (
                    hvd.allreduce(own, op=hvd.Sum, postscale_factor=factor),
                    hvd.grouped_allreduce([own], op=hvd.Sum, postscale_factor=factor)[0],
                ):
                    torch.testing.assert_close(result, want)

    def test_reducescatter(self):
        size = hvd.size()
        for dtype, factor in itertools.product(DTYPES, (0.37, 2.5)):
            with self.subTest(dtype=dtype, factor=factor):
                own = self.values(dtype)
                part = lambda all: torch.tensor_split(all, size)[hvd.rank()]  # noqa: E731
                result = hvd.reducescatter(own, op=hvd.Sum, prescale_factor=factor)
                torch.testing.assert_close(result, part(self.scaled(own, factor) * size))
                result = hvd.reducescatter(own, op=hvd.Sum, postscale_factor=factor)
                torch.testing.assert_close(result, part(self.scaled(own * size, factor)))

    def test_gradients(self):
        size = hvd.size()
        for dtype in (torch.float32, torch.float64):
            for function, want in (
                (lambda t: hvd.allreduce(t, op=hvd.Sum, prescale_factor=0.5), 0.5 * size),
                (lambda t: hvd.allreduce(t, op=hvd.Sum, postscale_factor=4.0), 4.0 * size),
                (lambda t: hvd.grouped_allreduce([t], prescale_factor=0.5)[0], 0.5),
                (lambda t: hvd.grouped_allreduce([t], postscale_factor=4.0)[0], 4.0),
            ):
                leaf = torch.ones(5, dtype=dtype, requires_grad=True)
                function(leaf).sum().backward()
                self.check(leaf.grad, torch.full((5,), want, dtype=dtype))


class DisagreementTest(GridCase):
    """Expects that all ranks raise an error with the tensor's name, and that the job continues."""

    def setUp(self):
        needs_other_ranks(self)

    def both_raise(self, function):
        name = self._testMethodName
        for _ in range(2):
            with self.assertRaisesRegex(hvd.HorovodInternalError, name):
                function(name)
        torch.testing.assert_close(hvd.allreduce(torch.ones(2), op=hvd.Max), torch.ones(2))

    def test_shapes_of_a_sum(self):
        odd = hvd.rank() % 2
        for shape in ((17 + odd, 3), (3, 17)[:: 1 - 2 * odd], (51,) if odd else (3, 17)):
            self.both_raise(lambda name, shape=shape: hvd.allreduce(torch.ones(shape), name=name))
            self.both_raise(
                lambda name, shape=shape: hvd.reducescatter(torch.ones(shape), name=name)
            )

    def test_rows_of_an_allgather(self):
        own = torch.ones(2, 10 * (hvd.rank() % 2 + 1))
        self.both_raise(lambda name: hvd.allgather(own, name=name))
        own = torch.ones((2, 2) if hvd.rank() % 2 else (2, 2, 2))
        self.both_raise(lambda name: hvd.allgather(own, name=name))

    def test_rows_of_an_alltoall(self):
        own = torch.ones(hvd.size(), 1 + hvd.rank() % 2)
        self.both_raise(lambda name: hvd.alltoall(own, name=name))

    def test_shapes_and_roots_of_a_broadcast(self):
        odd = hvd.rank() % 2
        self.both_raise(lambda name: hvd.broadcast(torch.ones(2 + odd), 0, name=name))
        self.both_raise(lambda name: hvd.broadcast(torch.ones(2), odd, name=name))

    def test_dtypes(self):
        own = torch.ones(hvd.size(), dtype=(torch.int32, torch.float32)[hvd.rank() % 2])
        for function in (hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter):
            self.both_raise(lambda name, function=function: function(own, name=name))
        self.both_raise(lambda name: hvd.broadcast(own, 0, name=name))

    def test_operations_and_factors(self):
        odd = hvd.rank() % 2
        op = (hvd.Sum, hvd.Max)[odd]
        self.both_raise(lambda name: hvd.allreduce(torch.ones(2), op=op, name=name))
        self.both_raise(
            lambda name: hvd.allreduce(torch.ones(2), prescale_factor=1.0 + odd, name=name)
        )
        self.both_raise(
            lambda name: (hvd.allgather if odd else hvd.allreduce)(torch.ones(2), name=name)
        )


class MistakesTest(GridCase):
    """Tests mistakes that a rank finds before it sends anything."""

    def test_of_an_alltoall(self):
        size = hvd.size()
        for tensor, splits in (
            (torch.ones(size), [2] * size),  # more than the tensor has
            (torch.ones(size), [1] * (size + 1)),
            (torch.ones(size), torch.ones(size, dtype=torch.float32)),
            (torch.ones(size + 1), [-1] + [1] * (size - 1)),
            (torch.tensor(1.0), None),
        ):
            with self.assertRaises(ValueError):
                hvd.alltoall(tensor, splits)
        needs_other_ranks(self)
        with self.assertRaises(ValueError):
            hvd.alltoall(torch.ones(size + 1))

    def test_of_names_in_flight(self):
        needs_other_ranks(self)
        own = torch.ones(hvd.size())
        calls = {
            "allreduce": lambda name: hvd.allreduce_async(own, name=name),
            "allgather": lambda name: hvd.allgather_async(own, name=name),
            "broadcast": lambda name: hvd.broadcast_async(own, 0, name=name),
            "alltoall": lambda name: hvd.alltoall_async(own, name=name),
            "reducescatter": lambda name: hvd.reducescatter_async(own, name=name),
            "group": lambda name: hvd.grouped_allreduce_async([own], name=name),
        }
        for name, call in calls.items():
            if hvd.rank() == 0:
                handle = call(name)
                with self.assertRaisesRegex(ValueError, name):
                    call(name)
            hvd.barrier()
            if hvd.rank() > 0:
                handle = call(name)
            hvd.synchronize(handle)
            hvd.synchronize(call(name))  # the name is free again

    def test_of_operations_that_have_no_adasum_or_scalars(self):
        for function in (hvd.reducescatter, hvd.reducescatter_async):
            with self.assertRaises((ValueError, NotImplementedError)):
                function(torch.ones(4), op=hvd.Adasum)
            with self.assertRaises(ValueError):
                function(torch.tensor(1.0))
        with self.assertRaises(ValueError):
            hvd.allreduce(torch.ones(4, dtype=torch.int32), op=hvd.Adasum)


class JoinTest(GridCase):
    def test_sums_of_every_dtype_go_on_without_the_first(self):
        needs_other_ranks(self)
        size, rank = hvd.size(), hvd.rank()
        for first in range(size):
            if rank != first:
                for dtype, shape in GRID:
                    own = [of_rank(rank, shape, dtype) for _ in range(2)]
                    others = [of_rank(r, shape, dtype) for r in range(size) if r != first]
                    handles = [
                        hvd.allreduce_async(each, name=f"j{i}", op=hvd.Sum)
                        for i, each in enumerate(own)
                    ]
                    for handle in handles:
                        self.check(hvd.synchronize(handle), sum_of(torch.stack(others)))
            last = hvd.join()
            self.assertNotEqual(last, first)
            self.assertEqual(hvd.broadcast(torch.tensor(last), 0).item(), last)

    def test_operation_that_needs_a_joined_rank_fails(self):
        needs_other_ranks(self)
        size, rank = hvd.size(), hvd.rank()
        if rank > 0:
            own = torch.full((size,), float(rank))
            for function in (hvd.alltoall, hvd.reducescatter, lambda t: hvd.broadcast(t, 0)):
                with self.assertRaisesRegex(hvd.HorovodInternalError, "joined"):
                    function(own)
            others = torch.arange(1.0, size)
            self.check(hvd.allgather(own), others.repeat_interleave(size))
            self.check(hvd.broadcast(own, size - 1), torch.full((size,), size - 1.0))
        hvd.join()
        self.check(hvd.allgather(torch.tensor([rank])), torch.arange(size))


if __name__ == "__main__":
    unittest.main()
