# SPDX-License-Identifier: Apache-2.0

"""Tests collectives of ronda.tensorflow on two ranks, eagerly and in tf.function."""

import os
import pathlib
import unittest

import numpy as np
import ronda
import ronda.tensorflow as hvd
import tensorflow as tf
from tf_cases import ERRORS, RANK, SIZE, Case

NUMBERS = [tf.uint8, tf.int8, tf.uint16, tf.int16, tf.uint32, tf.int32, tf.uint64, tf.int64]
NUMBERS += [tf.float16, tf.bfloat16, tf.float32, tf.float64]
TOTAL = SIZE * (SIZE + 1) / 2  # the sum of all ranks' RANK + 1


def own(dtype=tf.float32, shape=(3,)):
    """Returns a tensor with RANK + 1 in each element."""
    return tf.cast(tf.fill(shape, RANK + 1), dtype)


def resident_mib():
    """Returns this process's memory in use."""
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20


class AllreduceTest(Case):
    def test_results_are_not_written_into_a_tensor(self):
        tensor = tf.zeros(3)
        with self.assertRaisesRegex(ronda.InvalidArgumentError, "out cannot be written to"):
            ronda.allreduce(np.ones(3, "float32"), out=tensor)
        self.assertValues(tensor, [0, 0, 0])

    def test_sums_of_every_dtype(self):
        for mode in self.modes():
            sums = mode(lambda *tensors: [hvd.allreduce(each, op=hvd.Sum) for each in tensors])
            for dtype, total in zip(NUMBERS, sums(*map(own, NUMBERS))):
                self.assertEqual(total.dtype, dtype)
                self.assertValues(total, [TOTAL] * 3)
            any_of = mode(lambda tensor: hvd.allreduce(tensor, op=hvd.Max))
            self.assertValues(any_of(tf.constant([RANK == 1, False])), [1, 0])

    def test_every_operation(self):
        expected = {
            hvd.Average: TOTAL / SIZE,
            hvd.Sum: TOTAL,
            hvd.Min: 1,
            hvd.Max: SIZE,
            hvd.Product: np.prod(range(1, SIZE + 1)),
        }
        for mode in self.modes():
            for op, value in expected.items():
                reduce = mode(lambda tensor, op=op: hvd.allreduce(tensor, op=op))
                self.assertValues(reduce(own()), [value] * 3)
        self.assertValues(hvd.allreduce(own()), [TOTAL / SIZE] * 3)
        self.assertValues(hvd.allreduce(own(), average=False), [TOTAL] * 3)

    def test_shapes_from_none_to_many_dimensions(self):
        for mode in self.modes():
            for shape in [(), (0,), (1,), (17, 3), (2, 3, 4, 5)]:
                total = mode(lambda tensor: hvd.allreduce(tensor, op=hvd.Sum))(own(shape=shape))
                self.assertEqual(total.shape, shape)
                self.assertValues(total, np.full(shape, TOTAL))

    def test_the_static_shape_stays_in_a_function(self):
        @tf.function
        def reduce(tensor):
            total = hvd.allreduce(tensor)
            self.assertEqual(total.shape, (3,))
            self.assertEqual(hvd.allgather(tensor[:, None]).shape.as_list(), [None, 1])
            return total

        reduce(own())

    def test_factors(self):
        for mode in self.modes():
            scale = mode(
                lambda tensor: hvd.allreduce(
                    tensor, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0
                )
            )
            self.assertValues(scale(own()), [2 * TOTAL] * 3)
            third = mode(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=1 / 3))
            self.assertValues(third(own(tf.float64)), [TOTAL / 3] * 3, rtol=1e-15)

    def test_compression_rounds_on_the_way(self):
        value = 1 + 2.0**-20  # needs more digits than 16 bits have
        for mode in self.modes():
            exact, short = (
                mode(lambda tensor, each=each: hvd.allreduce(tensor, op=hvd.Sum, compression=each))(
                    tf.fill([8], value)
                )
                for each in (hvd.Compression.none, hvd.Compression.fp16)
            )
            self.assertValues(exact, [SIZE * value] * 8, rtol=1e-7)
            self.assertValues(short, [SIZE] * 8)
            self.assertEqual(short.dtype, tf.float32)

    def test_the_programs_own_compressor_is_called(self):
        class Halved(hvd.Compression.none.__base__):
            @staticmethod
            def compress(tensor):
                return tensor / 2, "context"

            @staticmethod
            def decompress(tensor, ctx):
                assert ctx == "context"
                return tensor + 100

        total = hvd.allreduce(own(), op=hvd.Sum, compression=Halved)
        self.assertValues(total, [TOTAL / 2 + 100] * 3)

    def test_a_group_travels_together(self):
        for mode in self.modes():
            group = mode(lambda *tensors: hvd.grouped_allreduce(tensors, op=hvd.Sum))
            shapes = [(2,), (3, 2), ()]
            for shape, total in zip(shapes, group(*(own(shape=shape) for shape in shapes))):
                self.assertValues(total, np.full(shape, TOTAL))
        self.assertEqual(hvd.grouped_allreduce([]), [])

    def test_a_group_meets_one_of_another_mode(self):
        own_mode = tf.function if RANK == 0 else lambda function: function
        group = own_mode(lambda *tensors: hvd.grouped_allreduce(tensors, op=hvd.Sum, name="both"))
        for total in group(own(), own()):
            self.assertValues(total, [TOTAL] * 3)

    def test_arguments_keep_their_values(self):
        variable = tf.Variable(own())

        @tf.function
        def reduce(tensor):
            used_again, twice = tensor + 1, tensor * 2
            totals = hvd.grouped_allreduce([used_again, variable, tensor, twice, twice], op=hvd.Sum)
            return totals, used_again * 1

        argument = own()
        totals, used_again = reduce(argument)
        for total, expected in zip(totals, (TOTAL + SIZE, TOTAL, TOTAL, 2 * TOTAL, 2 * TOTAL)):
            self.assertValues(total, [expected] * 3)
        self.assertValues(used_again, [RANK + 2] * 3)
        self.assertValues(argument, [RANK + 1] * 3)
        self.assertValues(variable, [RANK + 1] * 3)

    def test_memory_is_given_back(self):
        rows = 1 << 20  # 4 MiB
        reduce = tf.function(lambda tensor: hvd.allreduce(tensor + 1, op=hvd.Sum, name="memory"))
        kept = tf.function(lambda tensor: hvd.grouped_allreduce([tensor, tensor], op=hvd.Sum))
        for i in range(100):
            reduce(tf.ones([rows]))
            kept(tf.ones([rows]))
            with self.assertRaises(ERRORS):
                reduce(tf.ones([1, rows] if RANK == 0 else [rows, 1]))
            if i == 20:
                before = resident_mib()
        self.assertLess(resident_mib() - before, 100)  # a leak of one tensor a call is 320 MiB

    def test_slices_are_gathered(self):
        for mode in self.modes():
            values, indices = own(shape=(RANK + 1, 2)), tf.range(RANK + 1) + RANK

            @mode
            def total(values, indices, op):
                slices = tf.IndexedSlices(values, indices, tf.constant([SIZE * 2, 2]))
                return hvd.allreduce(slices, op=op)

            for op, divisor in ((hvd.Sum, 1), (hvd.Average, SIZE)):
                sparse = total(values, indices, op)
                self.assertIsInstance(sparse, tf.IndexedSlices)
                dense = np.zeros((SIZE * 2, 2))
                for rank in range(SIZE):
                    dense[rank : 2 * rank + 1] += (rank + 1) / divisor
                self.assertValues(tf.convert_to_tensor(sparse), dense)

    def test_slices_have_no_maximum(self):
        slices = tf.IndexedSlices(tf.ones([1, 2]), [0], tf.constant([3, 2]))
        with self.assertRaisesRegex(ValueError, "have no MAX: use tf.convert_to_tensor"):
            hvd.allreduce(slices, op=hvd.Max)


class ExchangeTest(Case):
    def test_allgather_of_different_lengths(self):
        for mode in self.modes():
            gather = mode(lambda tensor: hvd.allgather(tensor))
            rows = np.repeat(np.arange(1, SIZE + 1), np.arange(1, SIZE + 1))
            gathered = gather(own(shape=(RANK + 1, 2)))
            self.assertValues(gathered, np.stack([rows, rows], 1))

    def test_broadcast(self):
        for mode in self.modes():
            send = mode(lambda tensor: [hvd.broadcast(tensor, root) for root in range(SIZE)])
            for root, received in enumerate(send(own())):
                self.assertValues(received, [root + 1] * 3)
        self.assertTrue(hvd.broadcast(tf.constant(RANK == 1), 1))

    def test_alltoall_uneven(self):
        for mode in self.modes():
            exchange = mode(lambda tensor, splits: hvd.alltoall(tensor, splits))
            splits = tf.range(SIZE) + RANK  # this rank sends r + RANK rows to rank r
            count = int(tf.reduce_sum(splits))
            rows, received = exchange(tf.fill([count, 2], float(RANK)), splits)
            counts = [RANK + other for other in range(SIZE)]
            self.assertValues(received, counts)
            self.assertValues(rows[:, 1], np.repeat(np.arange(SIZE), counts))

    def test_alltoall_even(self):
        self.assertValues(hvd.alltoall(tf.range(SIZE)), [RANK] * SIZE)

    def test_reducescatter_deals_rows_out(self):
        for mode in self.modes():
            scatter = mode(lambda tensor: hvd.reducescatter(tensor, op=hvd.Sum))
            tensor = tf.range(SIZE + 1.0)[:, None] * (RANK + 1)
            part = scatter(tensor)  # the first rank has one row more
            first = 0 if RANK == 0 else RANK + 1
            rows = range(first, first + (2 if RANK == 0 else 1))
            self.assertValues(part[:, 0], [row * TOTAL for row in rows])

    def test_groups_of_rows(self):
        parts = hvd.grouped_reducescatter([own(shape=(SIZE, 1))] * 2, op=hvd.Sum)
        whole = hvd.grouped_allgather(parts)
        for each in whole:
            self.assertValues(each, np.full((SIZE, 1), TOTAL))

    def test_objects_and_variables(self):
        self.assertEqual(hvd.broadcast_object({"rank": RANK}, 1), {"rank": 1})
        self.assertEqual(hvd.broadcast_object_fn(1)(RANK), 1)
        self.assertEqual(hvd.allgather_object(RANK), list(range(SIZE)))
        for mode in self.modes():
            variables = [tf.Variable(float(RANK)), tf.Variable(own(tf.int64))]
            mode(lambda variables=variables: hvd.broadcast_variables(variables, 1))()
            self.assertValues(variables[0], 1)
            self.assertValues(variables[1], [2] * 3)

    def test_the_ranks_in_a_graph(self):
        for mode in self.modes():
            numbers = mode(lambda: (hvd.size_op(), hvd.rank_op(), hvd.process_set_included_op()))
            self.assertEqual([int(each) for each in numbers()], [SIZE, RANK, 1])


class ProcessSetTest(Case):
    def test_a_set_operates_alone(self):
        alone = hvd.add_process_set([1])
        self.addCleanup(hvd.remove_process_set, alone)
        if RANK == 1:
            for mode in self.modes():
                reduce = mode(lambda tensor: hvd.allreduce(tensor, process_set=alone))
                self.assertValues(reduce(own()), [2] * 3)
            self.assertValues(hvd.allgather(own(), process_set=alone), [2] * 3)
        hvd.barrier()


class OrderTest(Case):
    def test_a_function_runs_its_calls_in_the_order_of_the_program(self):
        @tf.function
        def many(tensor):
            # The 30 allreduces do not depend on each other, so TensorFlow could choose their order.
            return [hvd.allreduce(tensor + i, op=hvd.Sum) for i in range(30)]

        operations = many.get_concrete_function(own()).graph.get_operations()
        kind = "RondaAllreduce" if hvd.native_ops_built() else "PyFunc"
        calls = [each for each in operations if each.type == kind]
        self.assertEqual(len(calls), 30)
        for before, after in zip(calls, calls[1:]):
            self.assertIn(before, after.control_inputs)
        for _ in range(3):
            for i, total in enumerate(many(own())):
                self.assertValues(total, [TOTAL + SIZE * i] * 3)

    def test_calls_in_branches_and_loops(self):
        @tf.function
        def loop(tensor, count):
            for _ in tf.range(count):
                if tf.reduce_sum(tensor) > 1e6:
                    tensor = hvd.allreduce(tensor, op=hvd.Max)
                else:
                    tensor = hvd.allreduce(tensor, op=hvd.Sum)
            return tensor

        self.assertValues(loop(own(), tf.constant(3)), [TOTAL * SIZE**2] * 3)

    def test_a_rank_that_has_joined_adds_nothing(self):
        if RANK == 0:
            self.assertValues(hvd.allreduce(own(), op=hvd.Sum, name="late"), [1] * 3)
        self.assertEqual(int(hvd.join()), 0)


class ErrorTest(Case):
    def test_other_shapes_name_both_ranks(self):
        words = r"(?s)rank 0 .* says shape \[1\], rank 1 .* says shape \[2\]"
        for mode in self.modes():
            reduce = mode(lambda tensor: hvd.allreduce(tensor, name="shapes"))
            with self.assertRaisesRegex(ERRORS, words):
                reduce(own(shape=(RANK + 1,)))

    def test_other_dtypes_name_both_ranks(self):
        dtype = tf.float32 if RANK == 0 else tf.float64
        for mode in self.modes():
            reduce = mode(lambda tensor: hvd.allreduce(tensor, name="dtypes"))
            with self.assertRaisesRegex(ERRORS, "(?s)rank 0 .*float32.*rank 1 .*float64"):
                reduce(own(dtype))

    def test_other_roots_are_refused(self):
        with self.assertRaises(ronda.MismatchError):
            hvd.broadcast(own(), RANK, name="roots")

    def test_text_is_refused(self):
        for mode in self.modes():
            reduce = mode(lambda tensor: hvd.allreduce(tensor, name="text"))
            with self.assertRaisesRegex((*ERRORS, ValueError), "elements of type|object"):
                reduce(tf.constant(["a"]))

    def test_wrong_arguments_of_one_rank_fail_on_all(self):
        words = "77 is not a valid ReduceOp"
        for name in (None, "op"):
            for function in (hvd.allreduce, hvd.reducescatter):
                with self.assertRaisesRegex((*ERRORS, ValueError), words):
                    function(own(), op=77 if RANK == 0 else hvd.Sum, name=name)
        with self.assertRaisesRegex((*ERRORS, ValueError), words):
            hvd.grouped_allreduce([own()] * 2, op=77 if RANK == 0 else hvd.Sum, name="group")
        for function in (hvd.allgather, lambda x: hvd.broadcast(x, 1), hvd.alltoall):
            with self.assertRaises((*ERRORS, ValueError, TypeError)):
                function(object() if RANK == 0 else own(shape=(SIZE,)))
        traced = tf.function(lambda x: hvd.allreduce(x, op=77 if RANK == 0 else hvd.Sum, name="f"))
        with self.assertRaisesRegex((*ERRORS, ValueError), words):
            traced(own())
        self.assertValues(hvd.allreduce(own(), op=hvd.Sum), [TOTAL] * 3)

    def test_a_compiled_function_is_refused(self):
        compiled = tf.function(lambda tensor: hvd.allreduce(tensor), jit_compile=True)
        with self.assertRaisesRegex(ValueError, "allreduce: .*jit_compile=False"):
            compiled(own())

    def test_the_job_goes_on_after_a_mismatch(self):
        with self.assertRaises(ronda.MismatchError):
            hvd.allreduce(own(shape=(RANK + 1,)), name="before")
        self.assertValues(hvd.allreduce(own(), op=hvd.Sum), [TOTAL] * 3)


if __name__ == "__main__":
    unittest.main()
