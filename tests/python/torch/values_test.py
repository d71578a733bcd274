# SPDX-License-Identifier: Apache-2.0

"""Tests that operations give the right value or an error on every rank, even in difficult cases."""

import unittest

import ronda
import ronda.torch as hvd
import torch
from torch_cases import needs_other_ranks, setUpModule, tearDownModule  # noqa: F401

# Twice each of these values overflows its dtype.
LARGE_INTEGERS = (
    (torch.uint8, 200), (torch.int8, 100), (torch.int8, -101), (torch.int16, -(2**15)),
    (torch.int32, 2**30 + 5), (torch.int64, 2**62 + 5), (torch.int64, -(2**63)),
)  # fmt: skip


def negated(value):
    """-value as a view that PyTorch negates when it is read; its memory contains `value`."""
    tensor = torch.tensor([complex(1, value)]).conj().imag
    assert tensor.is_neg() and tensor.is_contiguous()
    return tensor


def sparse(rows, values, size=6):
    return torch.sparse_coo_tensor([rows], torch.tensor(values), (size,))


class ValueTest(unittest.TestCase):
    def test_averages_of_integers_whose_sum_does_not_fit(self):
        for dtype, value in LARGE_INTEGERS:
            own = torch.full((hvd.size(), 3), value, dtype=dtype)
            with self.subTest(dtype=dtype, value=value):
                self.assertTrue(hvd.allreduce(own).eq(value).all())
                self.assertTrue(hvd.allreduce(own, op=hvd.Sum, postscale_factor=1e-300).eq(0).all())
                self.assertTrue(hvd.allreduce_(own.clone()).eq(value).all())
                for each in hvd.grouped_allreduce([own, own[0].clone()]):
                    self.assertTrue(each.eq(value).all())
                self.assertTrue(hvd.reducescatter(own).eq(value).all())

    def test_negated_views_are_sent_with_their_sign(self):
        rank, size = hvd.rank(), hvd.size()
        mean = -sum(range(size)) / size
        self.assertEqual(hvd.allreduce(negated(rank)).item(), mean)
        self.assertEqual(hvd.allreduce(negated(rank), op=hvd.Min).item(), 1 - size)
        self.assertEqual(hvd.grouped_allreduce([negated(rank)])[0].item(), mean)
        self.assertEqual(hvd.allgather(negated(rank + 1)).tolist(), [-1.0 - r for r in range(size)])
        self.assertEqual(hvd.grouped_allgather([negated(1)])[0].tolist(), [-1.0] * size)
        self.assertEqual(hvd.broadcast(negated(rank + 1), size - 1).item(), -size)
        self.assertEqual(hvd.alltoall(negated(5), [1] + [0] * (size - 1))[0].tolist(),
                         [-5.0] * size if rank == 0 else [])  # fmt: skip
        part = hvd.reducescatter(negated(2), op=hvd.Sum)
        self.assertEqual(part.tolist(), [-2.0 * size] if rank == 0 else [])
        for in_place in (hvd.allreduce_, lambda t: hvd.broadcast_(t, 0)):
            self.assertRaisesRegex(ValueError, "resolve_neg", in_place, negated(1))

    def test_results_in_place_count_as_changes(self):
        for function in (
            hvd.allreduce_,
            lambda t: hvd.synchronize(hvd.allreduce_async_(t)),
            lambda t: hvd.grouped_allreduce_([t]),
            lambda t: hvd.synchronize(hvd.grouped_allreduce_async_([t])),
            lambda t: hvd.broadcast_(t, 0),
            lambda t: hvd.synchronize(hvd.broadcast_async_(t, 0)),
            lambda t: hvd.broadcast_parameters([t], 0),
        ):
            tensor = torch.ones(3)
            function(tensor)
            self.assertGreater(tensor._version, 0)
        with torch.inference_mode():
            self.assertEqual(hvd.allreduce_(torch.ones(1)).item(), 1)

    def test_autograd_sees_that_a_saved_tensor_was_reduced_in_place(self):
        factor, weight = torch.ones(3), torch.ones(3, requires_grad=True)
        loss = (weight * factor).sum()
        hvd.allreduce_(factor)
        self.assertRaisesRegex(RuntimeError, "modified by an inplace operation", loss.backward)

    def test_operations_on_one_tensor_take_effect_in_order(self):
        size = hvd.size()
        tensor = torch.ones(1000)
        # All operations use the same tensor, so each operation must see the results of the earlier
        # ones.
        handles = [
            hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"one behind the other {i}")
            for i in range(3)
        ]
        gathered = hvd.allgather_async(tensor[10:20], name="a part of it")
        handles.append(hvd.broadcast_async_(tensor, 0, name="and once more"))
        for handle in reversed(handles):
            hvd.synchronize(handle)
        self.assertTrue(tensor.eq(float(size) ** 3).all())
        self.assertEqual(hvd.synchronize(gathered).tolist(), [float(size) ** 3] * 10 * size)

    def test_arrays_and_tensors_of_one_memory_take_effect_in_order(self):
        tensor, size = torch.ones(100), hvd.size()
        first = hvd.allreduce_async_(tensor, op=hvd.Sum, name="as a tensor")
        second = ronda.allreduce_async(
            tensor.numpy(), ronda.ReduceOp.SUM, out=tensor.numpy(), name="as an array"
        )
        hvd.synchronize(first)
        second.wait()
        self.assertTrue(tensor.eq(float(size) ** 2).all())

    def test_a_group_has_each_tensor_once(self):
        tensor = torch.ones(4)
        for function in (hvd.grouped_allreduce_, hvd.grouped_allreduce_async_):
            with self.assertRaisesRegex(ValueError, "tensors 0 and 2 .* share memory"):
                function([tensor, torch.ones(4), tensor[2:]], name="twice")
        size = hvd.size()
        self.assertEqual(hvd.grouped_allreduce([tensor, tensor], op=hvd.Sum)[1][0].item(), size)


class SparseTest(unittest.TestCase):
    def reduced(self, tensor, name, op=hvd.Sum):
        return hvd.synchronize(hvd.sparse_allreduce_async(tensor, name, op)).to_dense()

    def test_integers_are_exact(self):
        size = hvd.size()
        for dtype, value in ((torch.int32, 2**24 + 1), (torch.int64, 2**53 + 1)):
            own = sparse([3], [value]).to(dtype)
            self.assertEqual(self.reduced(own, f"exact {dtype}")[3].item(), value * size)
        with self.assertRaisesRegex(ValueError, "floating-point"):
            hvd.sparse_allreduce_async(sparse([3], [1]), "mean of integers", hvd.Average)

    def test_a_rank_without_values_adds_zeros(self):
        own = sparse([hvd.rank()], [2.0]) if hvd.rank() > 0 else torch.sparse_coo_tensor((6,))
        for op, divisor in ((hvd.Sum, 1), (hvd.Average, hvd.size())):
            want = [0.0] + [2.0 / divisor] * (hvd.size() - 1)
            got = self.reduced(own, f"empty {op.name}", op)
            torch.testing.assert_close(got[: hvd.size()], torch.tensor(want))

    def test_sparse_operation_other_than_a_sum_is_refused(self):
        for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
            with self.assertRaisesRegex(ValueError, f"{op.name}: use to_dense"):
                hvd.sparse_allreduce_async(sparse([0], [1.0]), op.name, op)
        with self.assertRaisesRegex(ValueError, "takes tensors of torch.sparse_coo"):
            hvd.sparse_allreduce_async(torch.ones(2), "dense", hvd.Sum)

    def test_averages_count_the_ranks_that_take_part_as_dense_ones_do(self):
        if hvd.rank() > 0:
            dense = hvd.allreduce(torch.tensor([2.0]), name="dense")
            got = self.reduced(sparse([1], [2.0]), "sparse", hvd.Average)
            self.assertEqual((dense.item(), got[1].item()), (2.0, 2.0))
        hvd.join()

    def test_dense_where_others_are_sparse_names_both_calls(self):
        needs_other_ranks(self)
        with self.assertRaisesRegex(
            hvd.HorovodInternalError, "operation sparse_allreduce"
        ) as raised:
            if hvd.rank() == 0:
                hvd.synchronize(hvd.sparse_allreduce_async(sparse([0], [1.0]), "both", hvd.Sum))
            else:
                hvd.allreduce(torch.ones(6), name="both", op=hvd.Sum)
        self.assertIn("operation allreduce", str(raised.exception))


class ObjectTest(unittest.TestCase):
    def test_different_calls_that_meet_are_both_named(self):
        needs_other_ranks(self)
        first = hvd.rank() == 0
        for name in (None, "named"):
            for other, word in (
                (lambda name=name: hvd.broadcast_object(1, 0, name=name), "broadcast_object"),
                (lambda name=name: hvd.allgather(torch.ones(2), name=name), "allgather"),
                (lambda name=name: hvd.allreduce(torch.ones(2), name=name), "allreduce"),
            ):
                with self.assertRaises(hvd.HorovodInternalError) as raised:
                    hvd.allgather_object([1], name=name) if first else other()
                self.assertIn("allgather_object", str(raised.exception))
                self.assertRegex(str(raised.exception), rf"\b{word}\b")
        self.assertEqual(hvd.broadcast_object(hvd.rank(), 0), 0)

    def test_ranks_that_have_joined_are_left_out(self):
        rank, size = hvd.rank(), hvd.size()
        if rank > 0:
            self.assertEqual(hvd.allgather_object(rank, name="o"), list(range(1, size)))
            self.assertEqual(hvd.broadcast_object(rank, 1, name="b"), 1)
        hvd.join()

    def test_an_object_that_cannot_be_pickled_fails_on_all_ranks(self):
        needs_other_ranks(self)
        own = (each for each in ()) if hvd.rank() == 0 else 1
        with self.assertRaises((TypeError, hvd.HorovodInternalError)) as raised:
            hvd.allgather_object(own)
        self.assertRegex(str(raised.exception), "generator")
        self.assertEqual(hvd.allgather_object(1), [1] * hvd.size())


class RefusalTest(unittest.TestCase):
    """Tests calls whose arguments are wrong on one rank."""

    def check_refused(self, call, good, bad, text):
        """Calls call(bad) on rank 0, and call(good) on the other ranks."""
        error = ValueError if hvd.rank() == 0 else hvd.HorovodInternalError
        with self.assertRaisesRegex(error, text) as raised:
            call(bad if hvd.rank() == 0 else good)
        if hvd.rank() > 0:
            self.assertRegex(str(raised.exception), "rank 0 .* has refused to take part")

    def test_the_others_are_told(self):
        needs_other_ranks(self)
        good, bad, size = torch.ones(4, 2), torch.ones(2, 4).t(), hvd.size()
        for name in (None, "refused"):
            for call in (
                lambda t, n=name: hvd.allreduce(t, name=n),
                lambda t, n=name: hvd.allreduce_(t, name=n),
                lambda t, n=name: hvd.grouped_allreduce([t, t.clone()], name=n),
                lambda t, n=name: hvd.grouped_allgather([good, t], name=n),
                lambda t, n=name: hvd.allgather(t, name=n),
                lambda t, n=name: hvd.broadcast(t, 0, name=n),
                lambda t, n=name: hvd.broadcast_(t, 0, name=n),
                lambda t, n=name: hvd.alltoall(t, [1] + [0] * (size - 1), name=n),
                lambda t, n=name: hvd.reducescatter(t, name=n),
                lambda t, n=name: hvd.grouped_reducescatter([t], name=n),
            ):
                self.check_refused(call, good, bad, "must be contiguous")
        self.check_refused(
            lambda t: hvd.synchronize(hvd.sparse_allreduce_async(t, "refused", hvd.Sum)),
            sparse([0], [1.0]), sparse([0], [1.0]).to(torch.complex64), "dtype is not supported",
        )  # fmt: skip
        self.assertEqual(hvd.allreduce(good, name="refused", op=hvd.Sum)[0, 0].item(), size)

    def test_the_others_are_told_of_wrong_options(self):
        needs_other_ranks(self)
        ones, scalar = torch.ones(2, requires_grad=True), torch.tensor(1.0, requires_grad=True)
        own = torch.ones(2)
        for call, good, bad, text in (
            (lambda op: hvd.allreduce(own, op=op), hvd.Sum, 99, "99 is not a valid ReduceOp"),
            (lambda op: hvd.allreduce_(own, op=op), hvd.Sum, 99, "99 is not"),
            (lambda op: hvd.allreduce_async_(own, op=op).wait(), hvd.Sum, 99, "99 is not"),
            (lambda op: hvd.grouped_allreduce([own], op=op), hvd.Sum, 99, "99 is not"),
            (lambda op: hvd.grouped_reducescatter([own], op=op), hvd.Sum, 99, "99 is not"),
            (
                lambda average: hvd.allreduce(own, average, op=hvd.Sum),
                None,
                True,
                "leave average out",
            ),
            (hvd.grouped_allreduce, [own], [], "a group of no tensors"),
            (hvd.grouped_allgather, [own], own, "a group is a list of tensors"),
            (hvd.grouped_reducescatter, [own], [], "a group of no tensors"),
            (lambda name: hvd.allreduce(own, name=name), "3", 3, "3, a int: it must be a string"),
            (lambda name: hvd.grouped_allreduce([own], name=name), "3", 3, "must be a string"),
        ):
            with self.subTest(text=text):
                self.check_refused(call, good, bad, text)
                total = hvd.allreduce(torch.tensor([1.0 + hvd.rank()]), op=hvd.Sum).item()
                self.assertEqual(total, sum(range(hvd.size() + 1)))
        for call, good, bad, text in (
            (hvd.allgather, ones, scalar, "scalar"),
            (lambda root: hvd.broadcast(own, root), 0, 2**40, "OverflowError"),
        ):
            with self.assertRaises(Exception) as raised:
                call(bad if hvd.rank() == 0 else good)
            if hvd.rank() > 0:
                self.assertIsInstance(raised.exception, hvd.HorovodInternalError)
                self.assertRegex(str(raised.exception), "rank 0 .* has refused")
                self.assertRegex(str(raised.exception), text)

    def test_argument_that_is_no_tensor_is_named(self):
        for value in (1.0, None, "text", [1.0]):
            for function in (
                hvd.allreduce,
                hvd.allreduce_,
                hvd.allgather,
                hvd.reducescatter,
                hvd.alltoall,
                lambda t: hvd.broadcast(t, 0),
                lambda t: hvd.grouped_allreduce([t]),
            ):
                with self.assertRaisesRegex(ValueError, f"is a {type(value).__name__} and no tens"):
                    function(value)
        with self.assertRaisesRegex(ValueError, "a group is a list of tensors"):
            hvd.grouped_allreduce_(torch.ones(2))

    def test_splits_are_integers(self):
        size = hvd.size()
        for splits in ([0.5] * size, torch.ones(size), torch.ones(size, dtype=torch.bool), 1):
            with self.assertRaisesRegex(ValueError, "list of integers"):
                hvd.alltoall(torch.ones(size), splits)
        self.assertRaisesRegex(ValueError, "negative", hvd.alltoall, torch.ones(size), [-1] * size)


if __name__ == "__main__":
    unittest.main()
