# SPDX-License-Identifier: Apache-2.0

"""Tests process sets on any number of ranks."""

import os
import unittest
from unittest import mock

from ronda import errors, job, process_sets
from ronda._library import native
from ronda.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    init_job,
    remove_process_set,
)


class ProcessSetsTest(unittest.TestCase):
    def tearDown(self):
        job.shutdown()

    def test_all_ranks(self):
        self.assertIsNone(global_process_set.size())
        self.assertIsNone(global_process_set.included())
        init_job("ronda")
        self.assertEqual(global_process_set.process_set_id, 0)
        self.assertEqual(global_process_set.ranks, list(range(native.size())))
        self.assertEqual(
            (global_process_set.rank(), global_process_set.size()), (native.rank(), native.size())
        )
        self.assertTrue(global_process_set.included())
        self.assertFalse(remove_process_set(global_process_set))

    def test_sets_from_the_start(self):
        if _size() < 2:
            self.skipTest("needs a set that is not all ranks")
        last = _size() - 1
        first, others = ProcessSet([0]), ProcessSet(range(last, 0, -1))
        self.assertIsNone(first.process_set_id)
        init_job("ronda", [first, others])
        self.assertEqual((first.process_set_id, others.process_set_id), (1, 2))
        self.assertEqual(native.process_set_ranks(2), list(range(1, last + 1)))
        self.assertEqual(first.included(), native.rank() == 0)
        self.assertEqual(others.included(), native.rank() > 0)
        own, foreign = (first, others) if native.rank() == 0 else (others, first)
        self.assertEqual(own.rank(), max(native.rank() - 1, 0))
        with self.assertRaisesRegex(
            errors.InvalidArgumentError, f"rank {native.rank()} is not in ProcessSet"
        ):
            foreign.rank()
        job.shutdown()
        self.assertIsNone(first.process_set_id)
        self.assertIsNone(first.size())

    def test_sets_that_are_added_and_removed(self):
        init_job("ronda")
        if native.size() < 2:
            with self.assertRaisesRegex(ValueError, "has the same ranks as"):
                add_process_set([0])
            return
        added = add_process_set([native.size() - 1])
        self.assertGreater(added.process_set_id, 0)
        self.assertEqual((added.size(), added.ranks), (1, [native.size() - 1]))
        with self.assertRaisesRegex(ValueError, "has the same ranks as"):
            add_process_set(ProcessSet([native.size() - 1]))
        id = process_sets.id_of(added)
        self.assertTrue(remove_process_set(added))
        self.assertNotIn(id, native.process_set_ids())
        self.assertFalse(remove_process_set(added))
        self.assertTrue(remove_process_set(add_process_set(added)), "a set may come again")

    def test_a_set_that_could_not_be_removed_stays_known(self):
        if _size() < 2:
            self.skipTest("needs a set that is not all ranks")
        init_job("ronda")
        added = add_process_set([0])
        late = mock.Mock(side_effect=errors.DeadlineError("a rank is late"))
        with mock.patch.object(native, "remove_process_set", late):
            with self.assertRaises(errors.DeadlineError):
                remove_process_set(added)
        self.assertIsNotNone(added.process_set_id)
        with self.assertRaisesRegex(ValueError, "has the same ranks as"):
            add_process_set([0])
        self.assertTrue(remove_process_set(added))

    def test_second_user_adds_its_sets(self):
        if _size() < 2:
            self.skipTest("needs a set that is not all ranks")
        first, second = ProcessSet([0]), ProcessSet([1])
        init_job("ronda", [first])
        init_job("other", [first, second])
        self.assertEqual(native.process_set_ranks(process_sets.id_of(second)), [1])
        job.shutdown("other")
        self.assertEqual(first.process_set_id, 1, "the job goes on for its first user")

    def test_wrong_ranks(self):
        for wrong, message in (
            (3, "a sequence of ranks"),
            (["0"], "a sequence of ranks"),
            ([1, 1], "twice"),
        ):
            with self.assertRaisesRegex(errors.InvalidArgumentError, message):
                ProcessSet(wrong)
        init_job("ronda")
        with self.assertRaises(errors.InvalidArgumentError):
            add_process_set([native.size()])
        with self.assertRaisesRegex(errors.InvalidArgumentError, "is not known to this job"):
            process_sets.id_of(ProcessSet([0]))


def _size():
    """Returns the number of ranks, even before the job begins."""
    return int(os.environ.get("RONDA_SIZE", "1"))


if __name__ == "__main__":
    unittest.main()
