# SPDX-License-Identifier: Apache-2.0

"""Tests the functions of the low-level binding and their errors, on any number of ranks."""

import array
import os
import threading
import unittest
from unittest import mock

from native_cases import (
    FLOAT,
    INT,
    Buffer,
    JobTest,
    allreduce_async,
    finish,
    floats,
    sum_of_ranks,
    tensor,
)
from ronda import errors
from ronda._library import native
from ronda.types import ReduceOp, Wire


class FunctionsTest(JobTest):
    def test_the_job(self):
        self.assertRegex(native.version(), r"\d+\.\d+\.\d+")
        self.assertTrue(native.is_initialized())
        self.assertEqual(native.size(), int(os.environ.get("RONDA_SIZE", "1")))
        self.assertEqual(native.rank(), int(os.environ.get("RONDA_RANK", "0")))
        self.assertEqual((native.local_rank(), native.local_size()), (native.rank(), native.size()))
        self.assertEqual((native.cross_rank(), native.cross_size()), (0, 1))
        self.assertEqual(native.current(), 0)
        native.make_current(0)
        self.assertIs(native.should_stop(), False)
        with self.assertRaises(errors.AlreadyInitializedError):
            native.init()
        native.shutdown()
        self.assertIs(native.is_initialized(), False)
        self.assertEqual((native.rank(), native.size()), (-1, -1))
        with self.assertRaisesRegex(errors.NotInitializedError, "ronda_init"):
            native.shutdown()

    def test_the_place_that_the_environment_gives(self):
        if "RONDA_RANK" not in os.environ:
            self.assertEqual(native.place(), {"launcher": 0})
            return
        place = native.place()
        self.assertEqual((place["launcher"], place["rank"]), (1, native.rank()))
        self.assertNotIn("store_port", place, "rondarun sets MASTER_PORT")
        fields = ("size", "local_rank", "local_size", "cross_rank", "cross_size")
        for field in fields:
            self.assertEqual(place[field], getattr(native, field)(), field)

    def test_the_place_under_another_launcher(self):
        numbers = {"RANK": "1", "SIZE": "2", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}
        env = {f"OMPI_COMM_WORLD_{name}": value for name, value in numbers.items()}
        with mock.patch.dict(os.environ, {**env, "PMIX_NAMESPACE": "1"}, clear=True):
            place = native.place()
            self.assertEqual((place["launcher"], place["local_size"]), (4, 2))
            self.assertEqual(place["store_address"], "127.0.0.1")
            self.assertIn(place["store_port"], range(10000, 20000))
            self.assertNotIn("cross_rank", place)
            del os.environ["OMPI_COMM_WORLD_RANK"]
            with self.assertRaisesRegex(errors.InvalidArgumentError, "OMPI_COMM_WORLD_RANK"):
                native.place()

    def test_statistics(self):
        before = native.statistics()
        self.assertIn("buckets_scheduled", before)
        for _ in range(20):
            finish(allreduce_async("x", floats(4)))
        after = native.statistics()
        self.assertEqual(before.keys(), after.keys())
        grown = [after[name] - before[name] for name in ("buckets_agreed", "buckets_scheduled")]
        self.assertGreater(sum(grown), 0)

    def test_timeline(self):
        path = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), f"trace-{os.getpid()}.json")
        native.start_timeline(path)
        with self.assertRaises(errors.InvalidArgumentError):
            native.start_timeline(path)
        native.stop_timeline()
        native.stop_timeline()
        stem, extension = os.path.splitext(path)
        written = f"{stem}.rank{native.rank()}{extension}"
        self.assertTrue(os.path.exists(written))
        os.remove(written)

    def test_process_sets(self):
        everyone = list(range(native.size()))
        self.assertEqual(native.process_set_ids(), [0])
        self.assertEqual(
            (native.process_set_size(0), native.process_set_rank(0)), (len(everyone), native.rank())
        )
        added = native.add_process_set(everyone)
        self.assertEqual(native.process_set_ranks(added), everyone)
        made = native.create_process_set(everyone, "tag")
        self.assertEqual(set(native.process_set_ids()), {0, added, made})
        buffer = floats(2)
        finish(allreduce_async("x", buffer, ReduceOp.SUM, Wire.NONE, 1.0, 1.0, made))
        self.assertEqual(buffer, [sum_of_ranks()] * 2)
        native.remove_process_set(made)
        native.remove_process_set(added)
        self.assertEqual(native.process_set_ids(), [0])
        self.assertEqual(native.process_set_size(7), -1)
        with self.assertRaisesRegex(errors.InvalidArgumentError, "7"):
            native.process_set_ranks(7)

    def test_barriers(self):
        finish(native.barrier_async())
        finish(native.barrier_async(0))
        native.monitored_barrier()
        native.monitored_barrier(0, 30.0)

    def test_join(self):
        handle = native.join_async(0, 1)
        native.synchronize(handle)
        self.assertIn(native.last_rank(handle), range(native.size()))
        native.release(handle)


class OperationsTest(JobTest):
    def test_allreduce(self):
        source, target = floats(3), floats(3, -1)
        handle = native.allreduce_async(
            "x", FLOAT, (3,), source.address, target.address, (source, target), 0
        )
        self.assertTrue(native.synchronize(handle))
        self.assertTrue(native.poll(handle))
        self.assertTrue(native.poll_all([handle]))
        self.assertEqual(native.keep(handle), (source, target))
        native.release(handle)
        self.assertEqual(target, [sum_of_ranks()] * 3)

    def test_every_argument_of_an_allreduce(self):
        buffer = floats(4, 2)
        options = (Wire.FP16, 0.5, 3.0, 0, True, True, 60.0, None)
        handle = allreduce_async("x", buffer, ReduceOp.SUM, *options)
        native.synchronize(handle)
        self.assertFalse(native.found_inf(handle))
        native.release(handle)
        self.assertEqual(buffer, [3.0 * native.size()] * 4)
        infinite = floats(4, float("inf"))
        handle = allreduce_async("x", infinite, ReduceOp.SUM, *options)
        native.synchronize(handle)
        self.assertTrue(native.found_inf(handle))
        native.release(handle)

    def test_the_blocking_allreduce(self):
        for name in ("x", None):
            buffer = floats(2)
            result = native.allreduce(
                name, FLOAT, [2], buffer.address, buffer.address, buffer, ReduceOp.SUM
            )
            self.assertIsNone(result)
            self.assertEqual(buffer, [sum_of_ranks()] * 2)
        with self.assertRaises(errors.InvalidArgumentError):
            native.allreduce("x", 99, [2], buffer.address, buffer.address, buffer, ReduceOp.SUM)

    def test_scalars_and_empty_tensors(self):
        buffer = floats(1)
        finish(
            native.allreduce_async(
                "s", FLOAT, (), buffer.address, buffer.address, buffer, ReduceOp.MAX
            )
        )
        self.assertEqual(buffer, [native.size() - 1])
        finish(native.allreduce_async("e", FLOAT, (0, 5), 0, 0, None, ReduceOp.SUM))

    def test_reduce(self):
        buffer, root = floats(2), native.size() - 1
        finish(
            native.reduce_async(
                "x", FLOAT, (2,), buffer.address, buffer.address, buffer, ReduceOp.SUM, root
            )
        )
        if native.rank() == root:
            self.assertEqual(buffer, [sum_of_ranks()] * 2)

    def test_broadcast(self):
        buffer, root = floats(5), native.size() - 1
        finish(native.broadcast_async("x", FLOAT, (5,), buffer.address, buffer, root))
        self.assertEqual(buffer, [root] * 5)

    def test_reducescatter(self):
        rows = 2 * native.size()
        source, target = Buffer(range(rows)), floats(2, -1)
        expected = [native.size() * (2 * native.rank() + i) for i in range(2)]
        arguments = ("x", FLOAT, (rows,), source.address)
        self.assertEqual(
            tensor(native.reducescatter_async(*arguments, 0, 0, source, ReduceOp.SUM))[0], expected
        )
        kept = (source, target)
        handle = native.reducescatter_async(
            *arguments, target.address, target.bytes, kept, ReduceOp.SUM, Wire.NONE
        )
        finish(handle)
        self.assertEqual(target, expected)

    def test_allgather(self):
        source = floats(native.rank() + 1)
        expected = [rank for rank in range(native.size()) for _ in range(rank + 1)]
        counts = [rank + 1 for rank in range(native.size())]
        arguments = ("x", FLOAT, (native.rank() + 1,), source.address)
        self.assertEqual(
            tensor(native.allgather_async(*arguments, 0, 0, source)), (expected, counts)
        )
        target = floats(len(expected))
        finish(native.allgather_async(*arguments, target.address, target.bytes, (source, target)))
        self.assertEqual(target, expected)

    def test_gather_and_scatter(self):
        root = native.size() - 1
        source = floats(1)
        handle = native.gather_async("g", FLOAT, (1,), source.address, 0, 0, source, root)
        gathered, counts = tensor(handle)
        if native.rank() == root:
            self.assertEqual((gathered, counts), (list(range(native.size())), [1] * native.size()))
        rows = sum(range(1, native.size() + 1))
        dealt = Buffer(range(rows))
        splits = list(range(1, native.size() + 1)) if native.rank() == root else None
        handle = native.scatter_async("s", FLOAT, (rows,), dealt.address, 0, 0, dealt, root, splits)
        first = sum(range(native.rank() + 1))
        self.assertEqual(tensor(handle)[0], list(range(first, first + native.rank() + 1)))

    def test_alltoall(self):
        source = floats(native.size())
        everyone = list(range(native.size()))
        arguments = ("x", FLOAT, (native.size(),), source.address, 0, 0, source)
        for splits in (None, [1] * native.size()):
            self.assertEqual(
                tensor(native.alltoall_async(*arguments, splits)), (everyone, [1] * native.size())
            )

    def test_send_and_receive(self):
        here, size = native.rank(), native.size()
        if size == 1:
            self.skipTest("needs another rank")
        sent, received = floats(3), floats(3, -1)
        sending = native.send_async(FLOAT, (3,), sent.address, sent, (here + 1) % size, 7)
        finish(native.recv_async(FLOAT, (3,), received.address, received, (here - 1) % size, 7))
        finish(sending)
        self.assertEqual(received, [(here - 1) % size] * 3)

    def test_objects(self):
        root = native.size() - 1
        for data in (b"", b"an object"):
            handle = native.broadcast_object_async(
                "b", data if native.rank() == root else None, root
            )
            native.synchronize(handle)
            self.assertEqual(native.output_bytes(handle), data)
            native.release(handle)
        handle = native.allgather_object_async("a", b"x" * native.rank())
        self.assertEqual(native.keep(handle), b"x" * native.rank())
        native.synchronize(handle)
        self.assertEqual(native.output_bytes(handle), b"x" * sum_of_ranks())
        self.assertEqual(native.output(handle)[2], list(range(native.size())))
        native.release(handle)

    def test_sparse(self):
        values, indices = floats(2), Buffer([native.rank()], "q")
        kept = (values, indices)
        handles = native.sparse_allreduce_async(
            "x", FLOAT, (1, 2), values.address, indices.address, kept, ReduceOp.AVERAGE
        )
        self.assertEqual([native.keep(handle) for handle in handles], [kept] * 2)
        self.assertEqual(tensor(handles[0], "q")[0], list(range(native.size())))
        native.synchronize(handles[1])
        averages = array.array("f", native.output_bytes(handles[1], 8))
        for got, rank in zip(averages, (rank for rank in range(native.size()) for _ in range(2))):
            self.assertAlmostEqual(got, rank / native.size(), places=6)
        native.release(handles[1])

    def test_groups(self):
        buffers = [floats(i + 1) for i in range(40)]
        arguments = [
            (f"t{i}", FLOAT, (i + 1,), b.address, b.address, b, ReduceOp.SUM)
            for i, b in enumerate(buffers)
        ]
        handles = native.grouped_allreduce_async(arguments, "group")
        native.synchronize_all(handles)
        self.assertTrue(native.poll_all(handles))
        for i, (handle, buffer) in enumerate(zip(handles, buffers)):
            self.assertIs(native.keep(handle), buffer)
            self.assertEqual(buffer, [sum_of_ranks()] * (i + 1))
            native.release(handle)
        self.assertEqual(native.grouped_allreduce_async([], "empty"), [])
        source = floats(native.size())
        gathering = [
            (f"g{i}", FLOAT, (native.size(),), source.address, 0, 0, source) for i in range(2)
        ]
        for handle in native.grouped_allgather_async(gathering, "gather"):
            self.assertEqual(len(tensor(handle)[0]), native.size() ** 2)
        scattering = [(*arguments, ReduceOp.SUM) for arguments in gathering]
        for handle in native.grouped_reducescatter_async(scattering, "scatter"):
            self.assertEqual(tensor(handle)[0], [sum_of_ranks()])

    def test_prepared_groups(self):
        buffers = [floats(4), floats(2)]
        group = native.prepare_group(
            [
                (f"p{i}", FLOAT, (len(b.array),), b.address, b.address, b, 0)
                for i, b in enumerate(buffers)
            ],
            "group",
        )
        for step in range(1, 4):
            for index in (1, 0):
                native.group_ready(group, index)
            native.group_wait(group)
            self.assertEqual(buffers[0], [sum_of_ranks() * native.size() ** (step - 1)] * 4)
            self.assertFalse(native.group_found_inf(group))
        moved = floats(2)
        native.group_ready(group, 0)
        native.group_ready_on_stream(group, 1, moved.address, 0)
        native.group_wait(group)
        self.assertEqual(moved, [sum_of_ranks()] * 2)
        alone = floats(4)
        native.group_ready_on_stream(group, 0, alone.address, 0)
        handle, none = native.group_detach(group)
        self.assertEqual(none, 0)
        native.synchronize(handle)
        native.release(handle)
        self.assertEqual(alone, [sum_of_ranks()] * 4)
        with self.assertRaisesRegex(errors.InvalidArgumentError, "there is no member 2"):
            native.group_ready(group, 2)
        with self.assertRaisesRegex(errors.InvalidArgumentError, "has not been announced"):
            native.group_wait(group)
        native.group_release(group)
        for call in (
            lambda: native.group_wait(group),
            lambda: native.group_ready(group, 0),
            lambda: native.group_release(group),
            lambda: native.group_found_inf(group),
            lambda: native.group_detach(group),
            lambda: native.group_wait_on_stream(group, 0),
        ):
            with self.assertRaisesRegex(errors.InvalidArgumentError, "there is no group"):
                call()

    def test_operations_without_names(self):
        for _ in range(5):
            buffer = floats(1)
            finish(allreduce_async(None, buffer))
            self.assertEqual(buffer, [sum_of_ranks()])

    def test_streams_are_refused_without_gpus(self):
        buffer = floats(1)
        with self.assertRaises(errors.RondaError):
            allreduce_async("x", buffer, 0, 0, 1.0, 1.0, 0, False, False, 0.0, 0)
        with self.assertRaises(errors.RondaError):
            native.cuda_zero(buffer.address, 4, 0)
        # For an operation on host memory, synchronize_on_stream blocks until it has ended.
        handle = allreduce_async("y", buffer)
        native.synchronize_on_stream(handle, 0)
        ended = threading.Event()
        native.synchronize_on_stream_async(handle, 0, lambda status, message: ended.set())
        self.assertTrue(ended.wait(30))
        native.release_on_stream(handle, 0)
        with self.assertRaises(errors.InvalidArgumentError):
            native.release_on_stream(handle, 0)
        with self.assertRaises(errors.InvalidArgumentError):
            native.keep(handle) or native.poll(handle)


class ErrorsTest(JobTest):
    def test_classes(self):
        for status, kind in enumerate(errors.BY_STATUS, 1):
            made = native.error(status, "a text: \N{SNOWMAN}")
            self.assertIs(type(made), kind)
            self.assertEqual(str(made), "a text: \N{SNOWMAN}")
        with self.assertRaises(ValueError):
            native.set_error_types(errors.BY_STATUS[1:])

    def test_wrong_arguments(self):
        buffer = floats(1)
        place = (buffer.address, buffer.address)
        with self.assertRaises(errors.InvalidArgumentError):
            native.allreduce_async("x", 99, (1,), *place, None, 0)
        with self.assertRaisesRegex(TypeError, "allreduce_async.. takes 7 to 15 arguments, not 2"):
            native.allreduce_async("x", 1)
        with self.assertRaisesRegex(TypeError, "not 16"):
            native.allreduce_async(*range(16))
        with self.assertRaises(TypeError):
            native.allreduce_async(5, FLOAT, (1,), *place, None, 0)
        with self.assertRaises(TypeError):
            native.allreduce_async("x", FLOAT, 1, *place, None, 0)
        with self.assertRaises(TypeError):
            native.allreduce_async("x", FLOAT, ("a",), *place, None, 0)
        with self.assertRaisesRegex(ValueError, "zero character"):
            native.allreduce_async("x\0y", FLOAT, (1,), *place, None, 0)
        with self.assertRaises(TypeError):
            native.grouped_allreduce_async([("x", FLOAT)], "group")
        for handle in (-1, 0, 12345):
            for function in (
                native.poll,
                native.synchronize,
                native.output,
                native.found_inf,
                native.release,
            ):
                with self.assertRaisesRegex(
                    errors.InvalidArgumentError, f"there is no handle {handle}"
                ):
                    function(handle)
            self.assertIsNone(native.keep(handle))
        with self.assertRaises(TypeError):
            native.on_completion(1, 5)

    def test_options_of_init(self):
        native.shutdown()
        with self.assertRaisesRegex(errors.InvalidArgumentError, "no option 'cicle_time'"):
            native.init({"cicle_time": 1})
        with self.assertRaises(errors.InvalidArgumentError):
            native.init({"start_timeout_s": -1.0})
        everyone = list(range(native.size()))
        native.init(
            {"cycle_time_ms": 0.0, "master_address": None, "process_sets": [everyone or [0]]}
        )
        self.assertEqual(native.process_set_ids(), [0, 1])

    def test_a_name_in_flight(self):
        if native.size() == 1:
            self.skipTest("a single rank's tensors are done at once")
        handle = allreduce_async("x", floats(1)) if native.rank() == 0 else None
        if native.rank() == 0:
            with self.assertRaisesRegex(errors.DuplicateNameError, "'x'"):
                allreduce_async("x", floats(1))
        native.monitored_barrier()
        finish(handle or allreduce_async("x", floats(1)))

    def test_ranks_that_disagree(self):
        if native.size() == 1:
            self.skipTest("needs ranks that can disagree")
        op = ReduceOp.SUM if native.rank() == 0 else ReduceOp.MAX
        handles = [allreduce_async(name, floats(1), op) for name in ("x", "y")]
        with self.assertRaisesRegex(errors.MismatchError, "'x'"):
            native.synchronize_all(handles)
        for handle, name in zip(handles, ("x", "y")):
            with self.assertRaisesRegex(errors.MismatchError, f"'{name}'"):
                native.synchronize(handle)
            native.release(handle)
        with self.assertRaises(errors.MismatchError):
            buffer = floats(1)
            native.allreduce("x", FLOAT, (1,), buffer.address, buffer.address, buffer, op)

    def test_a_deadline(self):
        if native.size() == 1:
            self.skipTest("needs a rank that is late")
        if native.rank() == 0:
            with self.assertRaisesRegex(errors.DeadlineError, "rank 1") as caught:
                finish(allreduce_async("late", floats(1), 0, 0, 1.0, 1.0, 0, False, False, 0.2))
            self.assertIsInstance(caught.exception, TimeoutError)
            with self.assertRaisesRegex(errors.DeadlineError, "1"):
                native.monitored_barrier(0, 0.2)
        # The other ranks wait here until rank 0's barrier has failed, because the next barrier has
        # the same number.
        if native.rank() == 0:
            for other in range(1, native.size()):
                finish(native.send_async(INT, (0,), 0, None, other, 0))
        else:
            finish(native.recv_async(INT, (0,), 0, None, 0, 0))
        native.monitored_barrier()


if __name__ == "__main__":
    unittest.main()
