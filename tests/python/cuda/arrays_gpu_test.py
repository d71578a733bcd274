# SPDX-License-Identifier: Apache-2.0

"""Tests ronda's operations on CuPy, Numba and JAX arrays in GPU memory. Skips the tests of
libraries that are not installed.
"""

from __future__ import annotations

import importlib
import os
import unittest
from typing import Any

import numpy as np
import ronda
from gpu_cases import DEVICE, use_device

COUNT = 100_003
# Without this variable, JAX allocates most of the GPU's memory in each rank.
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"


def setUpModule() -> None:
    use_device()
    ronda.init()


def tearDownModule() -> None:
    ronda.shutdown()


def library(name: str) -> Any:
    """Imports the module, or skips the test if the module is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise unittest.SkipTest(str(error)) from None


class ArraysTest(unittest.TestCase):
    def setUp(self) -> None:
        self.own, self.size = float(ronda.rank() + 1), ronda.size()
        self.total = self.size * (self.size + 1) / 2

    def check(self, array: Any, *expected: float) -> None:
        self.assertEqual(np.unique(np.asarray(array)).tolist(), list(expected))


class CupyTest(ArraysTest):
    def setUp(self) -> None:
        super().setUp()
        self.cupy = library("cupy")
        self.cupy.cuda.Device(DEVICE.index).use()
        self.slow = self.cupy.RawKernel(
            """extern "C" __global__ void slow(float* data, int count, float value) {
                 long long begin = clock64();
                 while (clock64() - begin < 100000000) {}
                 for (int i = 0; i < count; ++i) data[i] = value;
               }""",
            "slow",
        )

    def late(self) -> Any:
        """Returns an array that is -1 until the current stream writes this rank's value."""
        array = self.cupy.full(COUNT, -1, np.float32)
        self.cupy.cuda.Device().synchronize()
        self.slow((1,), (1,), (array, np.int32(COUNT), np.float32(self.own)))
        return array

    def test_operations_come_behind_the_current_stream(self) -> None:
        for stream in (self.cupy.cuda.Stream(non_blocking=True), self.cupy.cuda.Stream.null):
            with self.subTest(str(stream)), stream:
                out = self.cupy.empty(COUNT, np.float32)
                ronda.allreduce(self.late(), ronda.ReduceOp.SUM, out=out)
                self.check(out.get(), self.total)
                array = self.late()
                ronda.allreduce(array, ronda.ReduceOp.MAX, out=array)
                self.check(array.get(), float(self.size))
                rows = self.cupy.empty(COUNT * self.size, np.float32)
                ronda.allgather(self.late(), out=rows)
                self.check(rows.get(), *(rank + 1.0 for rank in range(self.size)))

    def test_dtypes(self) -> None:
        for dtype in ("int8", "uint8", "int32", "int64", "float16", "float32", "float64"):
            with self.subTest(dtype):
                array = self.cupy.full(COUNT, self.own, dtype)
                ronda.allreduce(array, ronda.ReduceOp.SUM, out=array)
                self.check(array.get(), self.total)

    def test_gaps_are_refused(self) -> None:
        column = self.cupy.zeros((10, 10), np.float32)[:, 0]
        with self.assertRaisesRegex(ronda.InvalidArgumentError, "not contiguous"):
            ronda.allreduce(column, out=column)


class NumbaTest(ArraysTest):
    def setUp(self) -> None:
        super().setUp()
        library("numba")
        self.cuda = library("numba.cuda")
        self.cuda.select_device(DEVICE.index)

    def test_operations_come_behind_the_arrays_stream(self) -> None:
        stream = self.cuda.stream()
        array = self.cuda.to_device(np.full(COUNT, self.own, np.float32), stream=stream)
        out = self.cuda.device_array(COUNT, np.float32, stream=stream)
        ronda.allreduce(array, ronda.ReduceOp.SUM, out=out)
        self.check(out.copy_to_host(), self.total)


class JaxTest(ArraysTest):
    def setUp(self) -> None:
        super().setUp()
        self.jax = library("jax")
        try:
            self.device = self.jax.devices("gpu")[DEVICE.index]
        except (RuntimeError, IndexError) as error:
            raise unittest.SkipTest(str(error)) from None

    def test_operations_come_behind_the_computation(self) -> None:
        import torch

        size = 2048  # exact, because all numbers are powers of two
        ones = self.jax.device_put(np.ones((size, size), np.float32), self.device)
        array = self.jax.device_put(np.full((size, size), self.own, np.float32), self.device)
        for _ in range(100):
            array = self.jax.numpy.matmul(array, ones) / size
        out = torch.empty(size, size, device=DEVICE)
        ronda.allreduce(array, ronda.ReduceOp.SUM, out=out)
        self.assertEqual(out.unique().tolist(), [self.total])

    def test_programs_of_ronda_jax_reduce_between_their_computations(self) -> None:
        rj = library("ronda.jax")
        ones = self.jax.device_put(np.ones((2048, 2048), np.float32), self.device)

        def step(x: Any) -> Any:
            for _ in range(20):
                x = x @ ones / 2048
            return rj.allreduce(x, rj.Sum) * 2

        for run in (step, self.jax.jit(step)):
            self.check(run(ones * self.own), 2 * self.total)


if __name__ == "__main__":
    unittest.main()
