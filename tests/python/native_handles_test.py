# SPDX-License-Identifier: Apache-2.0

"""Tests handles of the low-level binding with references, threads, signals, leaks and fork()."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import unittest
import weakref

import ronda_test
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
from ronda.types import ReduceOp


class HandlesTest(JobTest):
    def submit_alone(self, name, buffer):
        """Submits a tensor on rank 0 only. The other ranks submit the tensor in meet()."""
        return allreduce_async(name, buffer) if native.rank() == 0 else None

    def meet(self, name):
        if native.rank() != 0:
            finish(allreduce_async(name, floats(1)))

    def test_timeouts(self):
        if native.size() == 1:
            self.skipTest("a single rank's tensors are done at once")
        handle = self.submit_alone("x", floats(1))
        if handle:
            self.assertFalse(native.poll(handle))
            self.assertFalse(native.poll_all([handle]))
            self.assertFalse(native.synchronize(handle, 0.0))
            self.assertFalse(native.synchronize(handle, 0.15))
        native.monitored_barrier()
        self.meet("x")
        if handle:
            self.assertTrue(native.synchronize(handle, 30.0))
            native.release(handle)

    def test_handle_keeps_its_buffer(self):
        buffer = floats(1)
        gone = weakref.ref(buffer)
        handle = allreduce_async("x", buffer)
        del buffer
        native.synchronize(handle)
        self.assertIs(native.keep(handle), gone())
        native.release(handle)
        gc.collect()
        self.assertIsNone(gone())

    def test_released_in_flight(self):
        if native.size() == 1:
            self.skipTest("a single rank's tensors are done at once")
        if native.rank() == 0:
            buffer = floats(1)
            gone = weakref.ref(buffer)
            dropped = threading.Event()
            weakref.finalize(buffer, dropped.set)
            handle = self.submit_alone("x", buffer)
            native.release(handle)  # waits for no rank
            del buffer
            self.assertIsNone(native.keep(handle))
            self.assertIsNotNone(gone(), "the operation may still write to it")
            native.release_on_stream(self.submit_alone("y", floats(1)), 0)  # does not wait either
        native.monitored_barrier()
        self.meet("x")
        self.meet("y")
        if native.rank() == 0:
            self.assertTrue(dropped.wait(30), "it has ended")
            with self.assertRaises(errors.InvalidArgumentError):
                native.poll(handle)

    def test_group_keeps_its_buffers(self):
        buffer = floats(1)
        gone = weakref.ref(buffer)
        group = native.prepare_group(
            [("x", FLOAT, (1,), buffer.address, buffer.address, buffer, 0)], "group"
        )
        del buffer
        self.assertIsNotNone(gone())
        native.group_ready(group, 0)
        native.group_wait(group)
        native.group_release(group)
        gc.collect()
        self.assertIsNone(gone())

    def test_a_group_keeps_the_owners_of_moved_buffers_until_the_step_ends(self):
        first = floats(1)
        group = native.prepare_group(
            [("x", FLOAT, (1,), first.address, first.address, first, 0)], "group"
        )

        def announce():
            moved = floats(1)
            native.group_ready_on_stream(group, 0, moved.address, 0, moved)
            return weakref.ref(moved)

        gone = announce()
        self.assertIsNotNone(gone())
        native.group_wait(group)
        self.assertIsNone(gone())
        gone = announce()
        (handle,) = native.group_detach(group)
        self.assertIsNotNone(gone())
        native.synchronize(handle)
        native.release(handle)
        self.assertIsNone(gone())
        native.group_release(group)

    def test_many_handles_at_once(self):
        buffers = [floats(1) for _ in range(2000)]
        handles = [allreduce_async(f"t{i}", buffer) for i, buffer in enumerate(buffers)]
        native.synchronize_all(handles)
        # This order of releases leaves gaps everywhere in the handle table.
        for i in sorted(range(len(handles)), key=lambda i: (i * 7919) % len(handles)):
            self.assertIs(native.keep(handles[i]), buffers[i])
            native.release(handles[i])
            self.assertIsNone(native.keep(handles[i]))

    def test_callbacks(self):
        calls, ended = [], threading.Event()

        def done(status, message):
            calls.append((status, message, threading.current_thread() is threading.main_thread()))
            ended.set()

        handle = allreduce_async("x", floats(1))
        native.on_completion(handle, done)
        self.assertTrue(ended.wait(30))
        self.assertEqual(calls, [(0, None, False)])
        native.release(handle)

    def test_callbacks_of_errors(self):
        if native.size() == 1:
            self.skipTest("needs ranks that can disagree")
        calls, ended = [], threading.Event()

        def done(*arguments):
            calls.append(native.error(*arguments))
            ended.set()

        handle = allreduce_async(
            "x", floats(1), ReduceOp.SUM if native.rank() == 0 else ReduceOp.MAX
        )
        native.on_completion(handle, done)
        self.assertTrue(ended.wait(30))
        self.assertIsInstance(calls[0], errors.MismatchError)
        self.assertIn("'x'", str(calls[0]))
        native.release(handle)

    def test_callbacks_may_submit_wait_and_release(self):
        results, ended = [], threading.Event()

        def done(status, message):
            native.release(first)
            buffer = floats(1)
            finish(allreduce_async("second", buffer))
            with self.assertRaisesRegex(errors.RondaError, "callback"):
                native.shutdown()
            results.append(list(buffer.array))
            ended.set()

        first = allreduce_async("first", floats(1))
        native.on_completion(first, done)
        self.assertTrue(ended.wait(30))
        self.assertEqual(results, [[sum_of_ranks()]])

    def test_a_callback_that_raises(self):
        seen, ended = [], threading.Event()

        def hook(unraisable):
            seen.append(str(unraisable.exc_value))
            ended.set()

        before, sys.unraisablehook = sys.unraisablehook, hook
        try:
            handle = allreduce_async("x", floats(1))
            native.on_completion(handle, lambda status, message: int("none"))
            self.assertTrue(ended.wait(30))
        finally:
            sys.unraisablehook = before
        self.assertIn("invalid literal", seen[0])
        native.release(handle)

    def test_a_callback_that_is_registered_late(self):
        handle = allreduce_async("x", floats(1))
        native.synchronize(handle)
        native.shutdown()
        calls, ended = [], threading.Event()
        native.on_completion(handle, lambda status, message: (calls.append(status), ended.set()))
        self.assertTrue(ended.wait(30))
        self.assertEqual(calls, [0])
        native.release(handle)

    def test_handles_outlive_the_job(self):
        buffer = floats(1)
        handle = allreduce_async("x", buffer)
        native.shutdown()
        self.assertTrue(native.synchronize(handle))
        self.assertIs(native.keep(handle), buffer)
        native.release(handle)
        with self.assertRaises(errors.NotInitializedError):
            allreduce_async("x", buffer)


class ThreadsTest(JobTest):
    def test_threads_submit_and_wait(self):
        failures = []

        def work(number):
            try:
                for i in range(100):
                    buffer = floats(3)
                    finish(allreduce_async(f"t{number}/{i}", buffer))
                    assert buffer == [sum_of_ranks()] * 3, buffer
            except Exception as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_others_run_while_one_waits(self):
        """Tests that a thread releases Python's GIL while it waits for another rank."""
        if native.size() == 1:
            self.skipTest("a single rank's tensors are done at once")
        waits = [
            lambda: finish(allreduce_async("x", floats(1))),
            lambda: native.allreduce("y", FLOAT, (), (b := floats(1)).address, b.address, b, 0),
            lambda: native.synchronize_all([allreduce_async("z", floats(1))]),
            lambda: native.monitored_barrier(),
        ]
        for wait in waits:
            thread = threading.Thread(target=wait)
            if native.rank() == 0:
                thread.start()
                for turn in range(1000):
                    self.assertTrue(turn or thread.is_alive())
                # The other ranks continue only after these messages, so `thread` has been waiting
                # until now.
                for other in range(1, native.size()):
                    finish(native.send_async(INT, (0,), 0, None, other, 1))
            else:
                finish(native.recv_async(INT, (0,), 0, None, 0, 1))
                thread.start()
            thread.join()


class StressTest(JobTest):
    """Threads submit tensors, and then wait for the handles, use callbacks, or release the handles
    at once.
    """

    THREADS = 4
    OPERATIONS = 200

    def test_no_object_is_dropped_before_its_operation_has_ended(self):
        contents, failures = [], []
        all_dropped = threading.Event()
        total = self.THREADS * self.OPERATIONS

        class Watched(Buffer):
            def __del__(self):
                contents.append(set(self.array))
                if len(contents) == total:
                    all_dropped.set()

        def submit(name):
            return allreduce_async(name, Watched([native.rank()] * 50))

        def release_in_callback(handle):
            native.on_completion(handle, lambda status, message: native.release(handle))

        endings = [
            native.release,
            finish,
            release_in_callback,
            lambda h: (native.poll(h), finish(h)),
        ]

        def work(number):
            try:
                for i in range(self.OPERATIONS):
                    endings[(number + i * 7 + i // 5) % len(endings)](submit(f"t{number}/{i}"))
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(self.THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertTrue(all_dropped.wait(30), f"{len(contents)} of {total}")
        self.assertEqual([each for each in contents if each != {sum_of_ranks()}], [])


class InterruptTest(JobTest):
    """Interrupts rank 0 with Ctrl-C while it waits for the other ranks, which call later."""

    def interrupt(self, wait):
        """Interrupts `wait` on rank 0. After the interrupt, the other ranks run `wait`."""
        if native.rank() == 0:
            killer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
            begin = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                killer.start()
                wait()
            self.assertLess(time.monotonic() - begin, 2.0)
            for other in range(1, native.size()):
                finish(native.send_async(INT, (0,), 0, None, other, 2))
        else:
            finish(native.recv_async(INT, (0,), 0, None, 0, 2))
            wait()

    def test_waits(self):
        if native.size() == 1:
            self.skipTest("a single rank waits for nobody")
        kept = [floats(1) for _ in range(5)]
        gone = [weakref.ref(buffer) for buffer in kept]

        def arguments(name, buffer):
            return name, FLOAT, (1,), buffer.address, buffer.address, buffer, ReduceOp.SUM

        def prepare(name, buffer):
            group = native.prepare_group([arguments(name, buffer)], "group")
            if native.rank() == 0:
                native.group_ready(group, 0)
            return group

        group, other = prepare("d", kept[3]), prepare("e", kept[4])

        def group_wait():
            if native.rank() != 0:
                native.group_ready(group, 0)
            native.group_wait(group)

        def group_release():
            if native.rank() != 0:
                native.group_ready(other, 0)
            native.group_release(other)  # waits for members in flight

        self.interrupt(lambda: finish(allreduce_async("a", kept[0])))
        self.interrupt(lambda: native.synchronize_all([allreduce_async("b", kept[1])]))
        self.interrupt(lambda: native.allreduce(*arguments("c", kept[2])))
        self.interrupt(group_wait)
        self.interrupt(group_release)
        self.interrupt(lambda: native.monitored_barrier())
        native.monitored_barrier()
        if native.rank() == 0:
            native.group_wait(group)
            self.assertEqual(kept[2], [sum_of_ranks()])  # though its call was interrupted
        native.group_release(group)
        kept.clear()
        gc.collect()
        for index in (0, 2, 3):  # the others were lost with the interrupt
            self.assertTrue(ronda_test.eventually(lambda index=index: gone[index]() is None), index)

    def test_a_handler_that_returns(self):
        """The wait continues."""
        if native.size() == 1:
            self.skipTest("a single rank waits for nobody")
        handled = threading.Event()
        before = signal.signal(signal.SIGUSR1, lambda number, frame: handled.set())
        try:
            if native.rank() == 0:

                def tell():
                    os.kill(os.getpid(), signal.SIGUSR1)
                    if handled.wait(30):
                        for other in range(1, native.size()):
                            finish(native.send_async(INT, (0,), 0, None, other, 3))

                helper = threading.Thread(target=tell)
                helper.start()
            else:
                finish(native.recv_async(INT, (0,), 0, None, 0, 3))
            buffer = floats(1)
            finish(allreduce_async("x", buffer))
            self.assertEqual(buffer, [sum_of_ranks()])
            if native.rank() == 0:
                helper.join()
                self.assertTrue(handled.is_set())
        finally:
            signal.signal(signal.SIGUSR1, before)


class LeakTest(JobTest):
    def all_kinds(self, buffer, shape):
        """Makes calls of every kind, with and without errors."""
        address = buffer.address
        finish(native.allreduce_async("a", FLOAT, shape, address, address, buffer, ReduceOp.MAX))
        native.allreduce("b", FLOAT, shape, address, address, buffer, ReduceOp.MAX)
        tensor(native.allgather_async("c", FLOAT, shape, address, 0, 0, buffer))
        tensor(native.alltoall_async("d", FLOAT, shape, address, 0, 0, buffer, [1] * native.size()))
        finish(native.broadcast_object_async("e", b"data" if native.rank() == 0 else None, 0))
        grouped = [("f", FLOAT, shape, address, address, buffer, ReduceOp.MAX)]
        handles = native.grouped_allreduce_async(grouped, "group")
        native.synchronize_all(handles)
        native.release(handles[0])
        group = native.prepare_group(grouped, "group")
        native.group_ready(group, 0)
        native.group_wait(group)
        native.group_release(group)
        ended = threading.Event()
        handle = native.allreduce_async("g", FLOAT, shape, address, address, buffer, ReduceOp.MAX)
        native.on_completion(handle, lambda status, message: ended.set())
        ended.wait()
        native.release(handle)
        for call in (
            lambda: native.allreduce_async("h", 99, shape, address, address, buffer, 0),
            lambda: native.allreduce_async("h", FLOAT, ("?",), address, address, buffer, 0),
            lambda: native.prepare_group([*grouped, ()], "group"),
            lambda: native.release(0),
            lambda: native.group_wait(0),
            lambda: native.on_completion(0, print),
        ):
            with self.assertRaises((errors.RondaError, TypeError)):
                call()

    def test_references_and_memory(self):
        buffer, shape = floats(native.size()), (native.size(),)

        def references():
            gc.collect()
            return [
                sys.getrefcount(thing) for thing in (buffer, shape, print, None, *errors.BY_STATUS)
            ]

        for _ in range(200):
            self.all_kinds(buffer, shape)
        native.monitored_barrier()
        before, memory = references(), ronda_test.resident_bytes()
        for _ in range(1000):
            self.all_kinds(buffer, shape)
        native.monitored_barrier()
        for was, now in zip(before, references()):
            self.assertLess(abs(now - was), 500)
        self.assertLess(ronda_test.resident_bytes() - memory, 4 << 20)

    def test_jobs(self):
        """Tests that repeated calls to init and shutdown leak no memory."""
        for turn in range(120):
            native.shutdown()
            native.init()
            finish(allreduce_async("x", floats(1)))
            if turn == 20:
                memory = ronda_test.resident_bytes()
        self.assertLess(ronda_test.resident_bytes() - memory, 8 << 20)


@ronda_test.forks
class ForkTest(JobTest):
    def test_a_child_is_no_rank(self):
        buffer = floats(1)
        gone = weakref.ref(buffer)
        alone = native.size() > 1 and native.rank() == 0
        handle = allreduce_async("x", buffer) if alone else None  # in flight
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self.check_child(handle)
                del buffer
                code = 0 if handle is None or gone() is None else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        native.monitored_barrier()
        finish(handle or allreduce_async("x", buffer))
        self.assertEqual(buffer, [sum_of_ranks()])

    def check_child(self, handle):
        self.assertEqual((native.is_initialized(), native.rank(), native.size()), (False, -1, -1))
        with self.assertRaisesRegex(errors.InvalidArgumentError, "fork"):
            native.init()
        calls = [native.shutdown, native.barrier_async, lambda: allreduce_async("y", Buffer([0]))]
        if handle:
            calls += [lambda: native.poll(handle), lambda: native.synchronize(handle)]
        for call in calls:
            with self.assertRaises(errors.NotInitializedError):
                call()
        native.release(handle or 1)  # as the parent's objects do when they are dropped

    def test_workers_of_a_pool(self):
        """Forks workers as a data loader does."""
        with multiprocessing.get_context("fork").Pool(2) as pool:
            for step in range(5):
                buffer = floats(1)
                self.assertEqual(pool.map(abs, [-step, step]), [step, step])
                finish(allreduce_async("x", buffer))
                self.assertEqual(buffer, [sum_of_ranks()])


if __name__ == "__main__":
    unittest.main()
