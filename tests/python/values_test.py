# SPDX-License-Identifier: Apache-2.0

"""Tests that operations on arrays give either the right value or an error on every rank."""

import unittest

import numpy as np
import ronda
from ronda import ReduceOp


def setUpModule():
    ronda.init()


def tearDownModule():
    ronda.shutdown()


def needs_other_ranks(test):
    if ronda.size() == 1:
        test.skipTest("needs other ranks")


class ValueTest(unittest.TestCase):
    def test_averages_of_integers_whose_sum_does_not_fit(self):
        for dtype in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
            for value in (np.iinfo(dtype).max, np.iinfo(dtype).min):
                own = np.full((ronda.size(), 3), value, dtype)
                for result in (
                    ronda.allreduce(own),
                    ronda.allreduce(own, name="named"),
                    ronda.grouped_allreduce([own])[0],
                    ronda.reducescatter(own),
                    ronda.allreduce(own, ReduceOp.SUM, postscale=1 / ronda.size())
                    if ronda.size() != 3 and own.itemsize < 8  # a third is not a binary fraction
                    else own,
                ):
                    self.assertTrue((result == value).all(), (dtype, value, result))

    def test_averages_of_integers_are_rounded_towards_zero(self):
        needs_other_ranks(self)
        own = np.array([1, -1]) * (ronda.rank() == 0)
        self.assertEqual(ronda.allreduce(own).tolist(), [0, 0])

    def test_masked_arrays_are_refused(self):
        masked = np.ma.array([1.0, 2.0], mask=[0, 1])
        for call in (
            ronda.allreduce,
            ronda.allgather,
            ronda.broadcast,
            lambda array: ronda.allreduce(np.zeros(2), out=array),
        ):
            with self.assertRaisesRegex(ValueError, r"masked array.*filled\(value\)"):
                call(masked)

    def test_splits_are_integers(self):
        rows = np.zeros(ronda.size())
        for splits in ([1.0] * ronda.size(), np.ones(ronda.size()), 1, "1"):
            with self.assertRaisesRegex(ValueError, "alltoall: splits is .* sequence of integers"):
                ronda.alltoall(rows, splits=splits)
        one_each = np.ones(ronda.size(), np.int8)
        self.assertEqual(ronda.alltoall(rows, splits=one_each)[1], [1] * ronda.size())


class OrderTest(unittest.TestCase):
    def test_operations_on_one_array_take_effect_in_order(self):
        size, array = ronda.size(), np.ones(1000)
        handles = [
            ronda.allreduce_async(array, ReduceOp.SUM, out=array, name=f"in order {i}")
            for i in range(3)
        ]
        rows = ronda.allgather_async(array[:10], name="in order, a part")
        handles.append(ronda.broadcast_async(array, 0, out=array, name="in order, last"))
        for handle in reversed(handles):
            handle.wait()
        self.assertTrue((array == float(size) ** 3).all())
        self.assertEqual(rows.wait().tolist(), [float(size) ** 3] * 10 * size)

    def test_operations_that_only_read_an_array_run_side_by_side(self):
        needs_other_ranks(self)
        array, names = np.ones(10), ("read first", "read last")
        if ronda.rank() == 0:
            names = reversed(names)
        # Rank 0 submits the operations in reverse order. If each rank waited for its first
        # operation before it submitted the second, the ranks would wait forever.
        handles = {name: ronda.allreduce_async(array, name=name) for name in names}
        for handle in handles.values():
            self.assertTrue((handle.wait() == 1).all())

    def test_a_group_has_each_result_once(self):
        array = np.zeros(8)
        with self.assertRaisesRegex(ValueError, "arrays 0 and 1 share memory"):
            ronda.grouped_allreduce([array[:5], array[4:]], outs=[array[:5], array[4:]], name="g")
        first, second = np.zeros(5), np.zeros(4)
        ronda.grouped_allreduce([array[:5], array[4:]], outs=[first, second], name="g")

    def test_messages_in_one_memory_are_refused(self):
        needs_other_ranks(self)
        if ronda.rank() == 0:
            array = np.zeros(3)
            handle = ronda.recv_async(array, 1)
            with self.assertRaisesRegex(ValueError, "recv: out is used by an operation in flight"):
                ronda.recv_async(array, 1, tag=1)
        ronda.barrier()
        if ronda.rank() == 1:
            ronda.send(np.ones(3), 0)
            with self.assertRaisesRegex(ronda.MismatchError, "rank 0 .* has refused .* is used by"):
                ronda.send(np.ones(3), 0, tag=1)
        elif ronda.rank() == 0:
            self.assertEqual(handle.wait().tolist(), [1, 1, 1])


class RefusalTest(unittest.TestCase):
    """Tests calls whose arguments are wrong on one rank."""

    def check_refused(self, call, good, bad, text):
        """Calls call(bad) on rank 0, and call(good) on the other ranks."""
        needs_other_ranks(self)
        error = (ValueError, TypeError) if ronda.rank() == 0 else ronda.MismatchError
        with self.assertRaisesRegex(error, text) as raised:
            call(bad if ronda.rank() == 0 else good)
        if ronda.rank() > 0:
            self.assertRegex(str(raised.exception), "rank 0 .* has refused to take part")

    def test_the_others_are_told(self):
        good, bad, size = np.ones((4, 2)), np.ones((2, 4)).T, ronda.size()
        for name in (None, "refused"):
            for call in (
                lambda array, n=name: ronda.allreduce(array, name=n),
                lambda array, n=name: ronda.allreduce_async(array, name=n).wait(),
                lambda array, n=name: ronda.reduce(array, size - 1, name=n),
                lambda array, n=name: ronda.reducescatter(array, name=n),
                lambda array, n=name: ronda.broadcast(array, 0, name=n),
                lambda array, n=name: ronda.allgather(array, name=n),
                lambda array, n=name: ronda.gather(array, size - 1, name=n),
                lambda array, n=name: ronda.scatter(array, 0, name=n),
                lambda array, n=name: ronda.alltoall(array, splits=[4] + [0] * (size - 1), name=n),
            ):
                self.check_refused(call, good, bad, "not contiguous in row-major order")
        self.check_refused(
            lambda array: ronda.grouped_allreduce([good, array], name="refused"),
            good,
            bad,
            "not contiguous",
        )
        self.assertEqual(ronda.allreduce(1.0, ReduceOp.SUM, name="refused"), size)

    def test_also_of_what_the_library_refuses(self):
        memory = np.zeros(8)
        self.check_refused(
            lambda out: ronda.allreduce(memory[:6], out=out, name="overlap"),
            np.zeros(6),
            memory[2:],
            "input and output overlap",
        )
        self.check_refused(
            lambda splits: ronda.scatter(np.zeros(4), 0, splits=splits, name="splits"),
            None,
            [1] * ronda.size(),
            "splits leaves out|splits",
        )
        self.check_refused(ronda.broadcast_object, 1, (each for each in ()), "generator")

    def test_also_of_messages(self):
        needs_other_ranks(self)
        bad = np.zeros((4, 4))[:, 1]
        if ronda.rank() == 0:
            self.assertRaisesRegex(ValueError, "not contiguous", ronda.send, bad, 1)
        elif ronda.rank() == 1:
            with self.assertRaisesRegex(ronda.MismatchError, "rank 0 .* send: the array is not"):
                ronda.recv(np.zeros(4), 0)


if __name__ == "__main__":
    unittest.main()
