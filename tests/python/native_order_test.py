"""Operations without a name: deadlines of barriers, on any number of ranks.

RONDA_PYTHON_BINDING says which of the two implementations is tested.
"""

import time
import unittest

from native_cases import JobTest, finish
from ronda import errors
from ronda._library import native

_LONG_S = 60.0


class BarrierTest(JobTest):
    def assert_names_the_missing(self, wait):
        """On rank 0, before the others come."""
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


if __name__ == "__main__":
    unittest.main()
