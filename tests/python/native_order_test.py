# SPDX-License-Identifier: Apache-2.0

"""Tests unnamed operations, and the removal of process sets, on any number of ranks."""

import os
import time
import unittest

import ronda_test
from native_cases import FLOAT, INT, JobTest, allreduce_async, finish, floats, sum_of_ranks
from ronda import errors
from ronda._library import native

_LONG_S = 60.0


class SeveralRanksTest(JobTest):
    def setUp(self):
        if os.environ.get("RONDA_SIZE", "1") == "1":
            self.skipTest("needs several ranks")
        super().setUp()


class BarrierTest(JobTest):
    def assert_names_the_missing(self, wait):
        """Calls `wait` on rank 0 before the other ranks submit."""
        if native.rank() == 0:
            for other in range(1, native.size()):
                with self.assertRaisesRegex(errors.DeadlineError, rf"missing: .*rank {other}\b"):
                    wait()
            for other in range(1, native.size()):
                finish(native.send_async(INT, (0,), 0, None, other, 0))
        else:
            finish(native.recv_async(INT, (0,), 0, None, 0, 0))
        native.monitored_barrier(0, _LONG_S)

    def test_with_a_deadline_of_its_own(self):
        finish(native.barrier_async(0, _LONG_S))
        self.assert_names_the_missing(lambda: finish(native.barrier_async(0, 0.2)))

    def test_that_does_not_wait(self):
        begin = time.monotonic()
        self.assert_names_the_missing(lambda: native.monitored_barrier(0, 0.001))
        self.assertLess(time.monotonic() - begin, _LONG_S)


class RefusalTest(SeveralRanksTest):
    """Tests calls that the last rank refuses because of an invalid argument."""

    def setUp(self):
        super().setUp()
        self.refuser = native.size() - 1
        self.text = f"rank {self.refuser} .* has refused to take part: no such root"

    def is_refuser(self):
        return native.rank() == self.refuser

    def add_up(self, name=None, process_set=0):
        buffer = floats(2)
        finish(allreduce_async(name, buffer, 0, 0, 1.0, 1.0, process_set))
        self.assertEqual(buffer, [sum_of_ranks()] * 2)

    def test_takes_the_place_of_the_next_call(self):
        for process_set in (0, native.create_process_set(list(range(native.size())))):
            self.add_up(None, process_set)
            if self.is_refuser():
                native.refuse(process_set, None, "no such root")
            else:
                with self.assertRaisesRegex(errors.MismatchError, f"unnamed call 2.*{self.text}"):
                    self.add_up(None, process_set)
            self.add_up(None, process_set)

    def test_ends_a_repeated_step(self):
        """The refusal happens while the job's schedule is locked."""
        for round in range(3):
            for _ in range(40):
                self.add_up()
            if self.is_refuser():
                native.refuse(0, None, f"no such root, {round}")
            else:
                with self.assertRaisesRegex(errors.MismatchError, f"{self.text}, {round}"):
                    self.add_up()

    def test_of_several_ranks(self):
        if native.rank() > 0:
            native.refuse(0, None, "no such root")
        else:
            with self.assertRaisesRegex(errors.MismatchError, "rank 1 .* has refused"):
                self.add_up()
        self.add_up()

    def test_of_all_ranks(self):
        native.refuse(0, None, "a mistake of all")
        self.add_up()

    def test_before_the_end(self):
        native.refuse(0, None, "a mistake of all")

    def test_of_messages(self):
        number = floats(1, 5)
        for refused in (True, False):
            if native.rank() == 0:
                handle = native.send_async(FLOAT, (1,), number.address, number, self.refuser, 3)
                if refused:
                    with self.assertRaisesRegex(errors.MismatchError, self.text):
                        finish(handle)
                else:
                    finish(handle)
            elif self.is_refuser() and refused:
                native.refuse_message(0, 0, self.refuser, 3, "no such root")
            elif self.is_refuser():
                received = floats(1, 0)
                finish(native.recv_async(FLOAT, (1,), received.address, received, 0, 3))
                self.assertEqual(received, [5])

    def test_of_a_message_before_it_is_sent(self):
        if native.rank() == 0:
            native.refuse_message(0, 0, self.refuser, 0, "nothing to send")
            finish(native.send_async(INT, (0,), 0, None, self.refuser, 0))
        elif self.is_refuser():
            with self.assertRaisesRegex(errors.MismatchError, "rank 0 .*nothing to send"):
                finish(native.recv_async(INT, (0,), 0, None, 0, 0))
            finish(native.recv_async(INT, (0,), 0, None, 0, 0))

    def test_long_or_odd_reason_is_shortened(self):
        words = ["x" * 5000, "two\nlines", "\N{GREEK SMALL LETTER MU}" * 2000, ""]
        said = ["x{1024}$", "two lines$", "\N{GREEK SMALL LETTER MU}{512}$", "gives no reason$"]
        for word, pattern in zip(words, said):
            if self.is_refuser():
                native.refuse(0, None, word)
            else:
                with self.assertRaisesRegex(errors.MismatchError, pattern):
                    self.add_up()
        self.add_up()

    def test_that_makes_no_sense(self):
        with self.assertRaisesRegex(errors.InvalidArgumentError, "process set 9"):
            native.refuse(9, None, "no")
        with self.assertRaisesRegex(errors.InvalidArgumentError, "tag is -1"):
            native.refuse_message(0, 0, 1, -1, "no")
        with self.assertRaisesRegex(errors.InvalidArgumentError, "receiver 77"):
            native.refuse_message(0, 0, 77, 0, "no")
        self.add_up()


class ReceiveTest(SeveralRanksTest):
    """Tests receives of rank 0 from the other ranks."""

    TAG = 5

    def setUp(self):
        super().setUp()
        self.others = range(1, native.size())

    def send(self, number, tag=TAG):
        buffer = floats(1, number)
        finish(native.send_async(FLOAT, (1,), buffer.address, buffer, 0, tag))

    def begin(self, source, tag=TAG):
        buffer = floats(1, -1)
        return native.recv_async(FLOAT, (1,), buffer.address, buffer, source, tag)

    def end(self, handle):
        native.synchronize(handle)
        source, (number,) = native.source(handle), native.keep(handle).array
        native.release(handle)
        return source, number

    def test_from_each_rank_in_turn(self):
        if native.rank() > 0:
            for i in range(100):
                self.send(1000 * native.rank() + i)
            return
        came = [self.end(self.begin(-1)) for _ in range(100 * len(self.others))]
        for rank in self.others:
            numbers = [number for source, number in came if source == rank]
            self.assertEqual(numbers, [1000 * rank + i for i in range(100)])

    def test_among_receives_from_a_certain_rank(self):
        if native.rank() == 1:
            for i in range(6):
                self.send(i)
        elif native.rank() == 0:
            first = self.begin(1)
            handles = [first, self.begin(-1), self.begin(1), self.begin(-1)]
            self.assertEqual([self.end(handle) for handle in handles], [(1, i) for i in range(4)])
            self.assertEqual(self.end(self.begin(1)), (1, 4))
            self.assertEqual(self.end(self.begin(-1)), (1, 5))

    def test_while_a_schedule_is_locked(self):
        for round in range(3):
            for _ in range(40):
                finish(allreduce_async("x", floats(1)))
            if native.rank() == 1:
                self.send(round)
            elif native.rank() == 0:
                self.assertEqual(self.end(self.begin(-1)), (1, round))

    def test_of_another_size(self):
        if native.rank() > 1:
            return
        if native.rank() == 1:
            with self.assertRaisesRegex(errors.MismatchError, "rank 0 .*shape"):
                self.send(1)
            self.send(2)
        else:
            buffer = floats(2)
            with self.assertRaisesRegex(errors.MismatchError, "rank 1 .*shape"):
                finish(native.recv_async(FLOAT, (2,), buffer.address, buffer, -1, self.TAG))
            self.assertEqual(self.end(self.begin(1)), (1, 2))

    def test_receive_whose_deadline_passes(self):
        if native.rank() == 0:
            with self.assertRaisesRegex(errors.DeadlineError, "from any rank .*missing: rank 1 "):
                buffer = floats(1)
                finish(native.recv_async(FLOAT, (1,), buffer.address, buffer, -1, 0, 0, 0.2))
        native.monitored_barrier(0, _LONG_S)
        if native.rank() == 1:
            self.send(3)
        elif native.rank() == 0:
            self.assertEqual(self.end(self.begin(-1)), (1, 3))

    def test_that_is_refused(self):
        if native.rank() == 1:
            with self.assertRaisesRegex(errors.MismatchError, "rank 0 .*no room"):
                self.send(1)
            self.send(2)
        elif native.rank() == 0:
            native.refuse_message(0, -1, 0, self.TAG, "no room")
            self.assertEqual(self.end(self.begin(1)), (1, 2))

    def test_of_an_operation_without_a_source(self):
        handle = allreduce_async("x", floats(1))
        native.synchronize(handle)
        with self.assertRaises(errors.InvalidArgumentError):
            native.source(handle)
        native.release(handle)


class RemovalTest(SeveralRanksTest):
    def make(self, tag):
        return native.create_process_set(list(range(native.size())), tag)

    def use(self, process_set):
        buffer = floats(1)
        finish(allreduce_async(None, buffer, 0, 0, 1.0, 1.0, process_set))
        self.assertEqual(buffer, [sum_of_ranks()])

    def test_in_an_order_of_each_rank(self):
        sets = [self.make(str(i)) for i in range(3)]
        for each in sets:
            self.use(each)
        for each in sets if native.rank() == 0 else reversed(sets):
            native.release(native.remove_process_set_async(each))
        native.monitored_barrier(0, _LONG_S)
        self.assertEqual(native.process_set_ids(), [0])
        with self.assertRaisesRegex(errors.InvalidArgumentError, "was removed"):
            native.remove_process_set_async(sets[0])

    def test_by_one_rank_alone(self):
        own, other = self.make("own"), self.make("other")
        handle = native.remove_process_set_async(own if native.rank() == 0 else other)
        for each in (own, other):
            self.use(each)  # until all have released it
        native.shutdown()
        if native.size() > 1:
            with self.assertRaises(errors.RondaError):
                native.synchronize(handle)
        native.release(handle)

    def test_leaves_nothing(self):
        for round in range(400):
            if round == 100:
                before = ronda_test.resident_bytes()
            made = self.make("c10d")
            self.use(made)
            native.release(native.remove_process_set_async(made))
            added = native.add_process_set(list(range(native.size())))
            finish(allreduce_async("x", floats(1), 0, 0, 1.0, 1.0, added))
            native.remove_process_set(added)
        self.assertLess(ronda_test.resident_bytes() - before, 300 * 4096)


if __name__ == "__main__":
    unittest.main()
