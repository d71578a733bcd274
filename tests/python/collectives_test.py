# SPDX-License-Identifier: Apache-2.0

"""Compares every operation on arrays, on any number of ranks, with NumPy's result."""

import array
import copy
import functools
import pickle
import unittest

import numpy as np
import ronda
from ronda import ReduceOp

_FLOATS = ("float16", "float32", "float64")
_INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")

# The reduce operations: for each, the NumPy function that combines two arrays, and the types that
# support it.
_REDUCTIONS = {
    ReduceOp.SUM: (np.add, _FLOATS + _INTEGERS),
    ReduceOp.MIN: (np.minimum, _FLOATS + _INTEGERS),
    ReduceOp.MAX: (np.maximum, _FLOATS + _INTEGERS),
    ReduceOp.PRODUCT: (np.multiply, _FLOATS + _INTEGERS),
    ReduceOp.BAND: (np.bitwise_and, (*_INTEGERS, "bool")),
    ReduceOp.BOR: (np.bitwise_or, (*_INTEGERS, "bool")),
    ReduceOp.BXOR: (np.bitwise_xor, (*_INTEGERS, "bool")),
}


def of_rank(rank, dtype, shape=(5, 3)):
    """Returns the array of a rank. The numbers are small enough for sums and products to be exact
    in any type.
    """
    return (np.random.RandomState(rank).randint(0, 3, shape)).astype(dtype)


def of_all(dtype, shape=(5, 3)):
    return [of_rank(rank, dtype, shape) for rank in range(ronda.size())]


def total(dtype, shape=(5, 3)):
    """Returns the sum of the arrays of all ranks."""
    return sum(of_all(dtype, shape), np.zeros(shape, dtype)).astype(dtype)


def rows_for(rank, rows):
    """Returns a rank's share of `rows` rows."""
    each, more = divmod(rows, ronda.size())
    begin = rank * each + min(rank, more)
    return slice(begin, begin + each + (rank < more))


class CollectivesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ronda.init()

    @classmethod
    def tearDownClass(cls):
        ronda.shutdown()

    def assert_equal(self, result, expected):
        self.assertEqual(np.asarray(result).dtype, expected.dtype)
        np.testing.assert_array_equal(result, expected)


class ReductionsTest(CollectivesTest):
    def test_allreduce_of_all_types(self):
        for op, (combine, dtypes) in _REDUCTIONS.items():
            for dtype in dtypes:
                with self.subTest(op=op.name, dtype=dtype):
                    expected = functools.reduce(combine, of_all(dtype))
                    self.assert_equal(ronda.allreduce(of_rank(ronda.rank(), dtype), op), expected)

    def test_average_is_the_default(self):
        expected = total("float64") / ronda.size()
        np.testing.assert_allclose(ronda.allreduce(of_rank(ronda.rank(), "float64")), expected)

    def test_scales(self):
        result = ronda.allreduce(np.ones(3), ReduceOp.SUM, prescale=0.5, postscale=4.0)
        self.assert_equal(result, np.full(3, 2.0 * ronda.size()))

    def test_in_place(self):
        own = of_rank(ronda.rank(), "float32")
        self.assertIs(ronda.allreduce(own, ReduceOp.SUM, out=own), own)
        self.assert_equal(own, total("float32"))

    def test_result_elsewhere_leaves_the_input(self):
        own = of_rank(ronda.rank(), "int32")
        result = np.zeros_like(own)
        self.assertIs(ronda.allreduce(own, ReduceOp.SUM, out=result), result)
        self.assert_equal(own, of_rank(ronda.rank(), "int32"))
        self.assert_equal(result, total("int32"))

    def test_names_bring_operations_together_in_any_order(self):
        names = ["a", "b", "c"]
        order = names if ronda.rank() % 2 == 0 else names[::-1]
        handles = {
            name: ronda.allreduce_async([len(names), ord(name)], name=name) for name in order
        }
        for name in names:
            self.assert_equal(handles[name].wait(), np.array([len(names), ord(name)]))

    def test_compression(self):
        own = np.linspace(0, 1, 1000, dtype=np.float32)
        result = ronda.allreduce(own, compression=ronda.Wire.BF16, name="wire", error_feedback=True)
        np.testing.assert_allclose(result, own, rtol=2**-7)
        if ronda.size() > 1:
            self.assertFalse(np.array_equal(result, own), "it did not travel in 16 bits")

    def test_overflow_is_found_on_all_ranks(self):
        own = np.full(4, np.inf if ronda.rank() == 0 else 1.0, dtype=np.float32)
        self.assertTrue(ronda.allreduce_async(own, name="inf", detect_overflow=True).found_inf())
        self.assertFalse(
            ronda.allreduce_async(np.ones(4), name="f", detect_overflow=True).found_inf()
        )

    def test_groups(self):
        shapes = [(2,), (3, 4), ()]
        own = [of_rank(ronda.rank(), "float32", shape) for shape in shapes]
        for _ in range(3):
            for shape, result in zip(shapes, ronda.grouped_allreduce(own, ReduceOp.SUM)):
                self.assert_equal(result, total("float32", shape))
        self.assertIs(ronda.grouped_allreduce(own, outs=own, name="in place")[0], own[0])
        with self.assertRaisesRegex(ronda.InvalidArgumentError, "1 outs for 3 arrays"):
            ronda.grouped_allreduce(own, outs=[own[0]])

    def test_reduce(self):
        root = ronda.size() - 1
        result = ronda.reduce(of_rank(ronda.rank(), "int64"), root, ReduceOp.SUM)
        if ronda.rank() == root:
            self.assert_equal(result, total("int64"))
        else:
            self.assertIsNone(result)

    def test_reducescatter(self):
        expected = total("float32")[rows_for(ronda.rank(), 5)]
        own = of_rank(ronda.rank(), "float32")
        self.assert_equal(ronda.reducescatter(own, ReduceOp.SUM), expected)
        out = np.zeros((5, 3), np.float32)
        result = ronda.reducescatter(own, ReduceOp.SUM, out=out)
        self.assert_equal(result, expected)
        self.assertTrue(np.shares_memory(result, out))


class ExchangesTest(CollectivesTest):
    def test_broadcast(self):
        root = ronda.size() - 1
        for dtype in (*_FLOATS, *_INTEGERS, "bool"):
            own = of_rank(ronda.rank(), dtype)
            self.assert_equal(ronda.broadcast(own, root), of_rank(root, dtype))
            self.assert_equal(own, of_rank(ronda.rank(), dtype))
            self.assertIs(ronda.broadcast(own, root, out=own), own)
            self.assert_equal(own, of_rank(root, dtype))

    def test_allgather(self):
        own = of_rank(ronda.rank(), "float32", (ronda.rank() + 1, 2))
        everything = [of_rank(rank, "float32", (rank + 1, 2)) for rank in range(ronda.size())]
        self.assert_equal(ronda.allgather(own), np.concatenate(everything))
        out = np.zeros((sum(map(len, everything)), 2), np.float32)
        self.assertIs(ronda.allgather(own, out=out), out)
        self.assert_equal(out, np.concatenate(everything))

    def test_result_outlives_its_handle_and_the_job_goes_on(self):
        results = [ronda.allgather(np.full((2, 2), i + ronda.rank())) for i in range(50)]
        for i, result in enumerate(results):
            rows = np.repeat(np.arange(ronda.size()) + i, 2)
            self.assert_equal(result, np.stack([rows, rows], axis=1))

    def test_some_ranks_have_no_rows(self):
        own = np.arange(3.0)[: 3 if ronda.rank() == 0 else 0]
        self.assert_equal(ronda.allgather(own), np.arange(3.0))
        self.assertEqual(ronda.allgather(np.empty((0, 4))).shape, (0, 4))

    def test_gather(self):
        result = ronda.gather(np.array([[ronda.rank(), 1]]), root=0)
        if ronda.rank() == 0:
            self.assert_equal(result, np.array([[rank, 1] for rank in range(ronda.size())]))
        else:
            self.assertIsNone(result)

    def test_scatter(self):
        everything = np.arange(10).reshape(5, 2)
        self.assert_equal(
            ronda.scatter(everything if ronda.rank() == 0 else everything[:0]),
            everything[rows_for(ronda.rank(), 5)],
        )
        splits = [0] * (ronda.size() - 1) + [5]
        result = ronda.scatter(everything, splits=splits if ronda.rank() == 0 else None)
        self.assertEqual(len(result), splits[ronda.rank()])

    def test_alltoall(self):
        own = np.arange(ronda.size()) + 10 * ronda.rank()
        self.assert_equal(ronda.alltoall(own), ronda.rank() + 10 * np.arange(ronda.size()))

    def test_alltoall_of_uneven_parts(self):
        # Rank r sends d rows to rank d.
        splits = list(range(ronda.size()))
        own = np.repeat(np.arange(ronda.size()), splits) + 10 * ronda.rank()
        result, received = ronda.alltoall(own, splits=splits)
        self.assertEqual(received, [ronda.rank()] * ronda.size())
        expected = np.repeat(10 * np.arange(ronda.size()) + ronda.rank(), ronda.rank())
        self.assert_equal(result, expected)

    def test_send_and_receive(self):
        right, left = (ronda.rank() + 1) % ronda.size(), (ronda.rank() - 1) % ronda.size()
        if ronda.size() == 1:
            self.skipTest("needs another rank")
        sent = ronda.send_async(np.full(3, ronda.rank()), right, tag=7)
        self.assert_equal(ronda.recv(np.zeros(3, int), left, tag=7), np.full(3, left))
        sent.wait()

    def test_objects(self):
        value = {"rank": ronda.rank(), "data": b"x" * (1000 * ronda.rank())}
        self.assertEqual(ronda.broadcast_object(value if ronda.rank() == 0 else None)["rank"], 0)
        everything = ronda.allgather_object(value)
        self.assertEqual([each["rank"] for each in everything], list(range(ronda.size())))
        self.assertEqual(len(everything[-1]["data"]), 1000 * (ronda.size() - 1))

    def test_join(self):
        for _ in range(ronda.rank()):
            ronda.allreduce(np.ones(2), ReduceOp.SUM)
        self.assertIn(ronda.join(), range(ronda.size()))
        ronda.barrier()

    def test_process_sets(self):
        if ronda.size() < 3:
            self.skipTest("needs three ranks")
        pair = ronda.add_process_set([0, 2])
        if pair.included():
            result = ronda.allreduce([ronda.rank()], ReduceOp.SUM, process_set=pair)
            self.assert_equal(result, np.array([2]))
        ronda.remove_process_set(pair)
        with self.assertRaisesRegex(ronda.InvalidArgumentError, "not known to this job"):
            ronda.barrier(pair)


class HandlesTest(CollectivesTest):
    def test_result_may_be_asked_for_again(self):
        handle = ronda.allreduce_async([1.0], ReduceOp.SUM)
        result = handle.wait()
        self.assertIs(ronda.synchronize(handle), result)
        self.assertTrue(ronda.poll(handle))

    def test_operation_without_a_reference_goes_on(self):
        ronda.allreduce_async(np.ones(1000), ReduceOp.SUM, name="forgotten")
        self.assert_equal(ronda.allreduce([2], ReduceOp.SUM), np.array([2 * ronda.size()]))

    def test_a_handle_has_no_copies(self):
        handle = ronda.allreduce_async([2], ReduceOp.SUM, name="handle")
        for make_copy in (copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "handle of an operation cannot be copied"):
                make_copy(handle)
        self.assert_equal(handle.wait(), np.array([2 * ronda.size()]))


class MemoryTest(CollectivesTest):
    """Tests arrays of other libraries."""

    def test_buffer_protocol(self):
        for own in (
            bytearray(b"\1\2\3"),
            array.array("d", [1, 2, 3]),
            memoryview(bytearray(b"\1\0\2\0\3\0")).cast("H"),
        ):
            self.assertIs(ronda.allreduce(own, ReduceOp.SUM, out=own), own)
            self.assertEqual(list(own), [number * ronda.size() for number in (1, 2, 3)])

    def test_read_only_memory_can_be_sent(self):
        self.assert_equal(ronda.allgather(b"ab"), np.frombuffer(b"ab" * ronda.size(), np.uint8))
        for own in (b"ab", np.broadcast_to(np.float32(1), ())):
            with self.assertRaisesRegex(ronda.InvalidArgumentError, "cannot be written to"):
                ronda.allreduce(own, out=own)

    def test_numbers_and_lists(self):
        self.assertEqual(ronda.allreduce(2.0), 2.0)
        self.assertEqual(ronda.allreduce(np.float32(2)).dtype, np.float32)
        self.assert_equal(
            ronda.allreduce([[1, 2]], ReduceOp.SUM), np.array([[1, 2]]) * ronda.size()
        )

    def test_dlpack(self):
        class OfAnotherLibrary:
            def __init__(self, of):
                self._of = of

            def __dlpack__(self):
                return self._of.__dlpack__()

            def __dlpack_device__(self):
                return self._of.__dlpack_device__()

        for dtype in (*_FLOATS, *_INTEGERS):
            memory = np.arange(12).reshape(3, 4).astype(dtype)
            own = OfAnotherLibrary(memory)
            self.assertIs(ronda.allreduce(own, ReduceOp.SUM, out=own), own)
            self.assert_equal(memory, (np.arange(12).reshape(3, 4) * ronda.size()).astype(dtype))
        with self.assertRaisesRegex(ronda.InvalidArgumentError, "not contiguous"):
            ronda.allreduce(OfAnotherLibrary(np.zeros((3, 4)).T))

    def test_errors_say_what_is_wrong(self):
        for wrong, message in (
            (np.zeros((4, 4))[:, 1], "not contiguous in row-major order"),
            (np.array(["a"]), "has elements of type"),
            (np.array([object()]), "has elements of type object"),
            (np.zeros(2, complex), "complex128: Ronda has .*, bool, "),
            (np.zeros(2, ">f4"), "another byte order"),
            ("text", "is a str, and no array"),
            (None, "is a NoneType, and no array"),
        ):
            with self.assertRaisesRegex(
                ronda.InvalidArgumentError, f"allreduce: the array.*{message}"
            ):
                ronda.allreduce(wrong)
        own = np.zeros((2, 3), np.float32)
        for out, message in (
            (np.zeros((2, 3)), r"type FLOAT64, and the array \(2, 3\) and FLOAT32"),
            (np.zeros((3, 2), np.float32), r"the shape \(3, 2\)"),
            ([0.0], "out is a list: pass an array"),
        ):
            with self.assertRaisesRegex(ronda.InvalidArgumentError, message):
                ronda.allreduce(own, out=out)
        with self.assertRaisesRegex(ValueError, "the array is a scalar"):
            ronda.allgather(1.0)
        with self.assertRaisesRegex(ValueError, r"rows of the shape \(2,\)"):
            ronda.allgather(own, out=np.zeros((8, 2), np.float32))

    def test_out_that_is_too_small(self):
        if ronda.size() == 1:
            self.skipTest("needs another rank's rows")
        with self.assertRaises(ronda.InvalidArgumentError):
            ronda.allgather(np.zeros(3), out=np.zeros(3))


class JobTest(unittest.TestCase):
    def test_before_init(self):
        for function in (ronda.rank, ronda.size, ronda.local_rank, ronda.cross_size):
            with self.assertRaisesRegex(ronda.NotInitializedError, "call ronda.init"):
                function()
        with self.assertRaises(ronda.NotInitializedError):
            ronda.allreduce(1.0)
        self.assertFalse(ronda.is_initialized())

    def test_twice(self):
        ronda.init()
        ronda.init()
        self.assertTrue(ronda.is_initialized())
        self.assertEqual(ronda.local_size(), ronda.size())
        ronda.shutdown()
        self.assertFalse(ronda.is_initialized())

    def test_ranks_that_disagree(self):
        ronda.init()
        if ronda.size() > 1:
            own = np.zeros(2 + (ronda.rank() == 1))
            with self.assertRaisesRegex(ronda.MismatchError, "rank 1"):
                ronda.allreduce(own, name="different")
        self.assertEqual(ronda.allreduce(1.0), 1.0, "the job goes on")
        ronda.shutdown()


if __name__ == "__main__":
    unittest.main()
