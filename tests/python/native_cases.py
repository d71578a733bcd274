# SPDX-License-Identifier: Apache-2.0

"""Helpers for tests of the low-level binding, such as arrays with addresses, and a job per test."""

import array
import unittest

from ronda._library import native
from ronda.types import DType, ReduceOp

FLOAT = DType.FLOAT32
INT = DType.INT32


class Buffer:
    """An array of numbers with an address. A test can see when the array is released."""

    def __init__(self, numbers, code="f"):
        self.array = array.array(code, numbers)

    @property
    def address(self):
        return self.array.buffer_info()[0]

    @property
    def bytes(self):
        return len(self.array) * self.array.itemsize

    def __eq__(self, other):
        return list(self.array) == list(other)

    def __repr__(self):
        return repr(list(self.array))


def floats(count, value=None):
    return Buffer([native.rank() if value is None else value] * count)


def sum_of_ranks():
    return sum(range(native.size()))


def allreduce_async(name, buffer, op=ReduceOp.SUM, *others):
    shape = (len(buffer.array),)
    return native.allreduce_async(
        name, FLOAT, shape, buffer.address, buffer.address, buffer, op, *others
    )


def finish(handle):
    """Waits for the handle's operation, and releases the handle."""
    try:
        return native.synchronize(handle)
    finally:
        native.release(handle)


def tensor(handle, code="f"):
    """Returns the result that Ronda owns, and the number of rows from each member."""
    native.synchronize(handle)
    address, rows, by_member = native.output(handle)
    data = native.output_bytes(handle, array.array(code).itemsize)
    native.release(handle)
    assert rows * array.array(code).itemsize == len(data) and (address != 0 or rows == 0)
    return list(array.array(code, data)), by_member


class JobTest(unittest.TestCase):
    def setUp(self):
        native.init()

    def tearDown(self):
        if native.is_initialized():
            native.shutdown()
