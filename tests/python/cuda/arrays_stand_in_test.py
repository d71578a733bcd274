# SPDX-License-Identifier: Apache-2.0

"""Tests ronda's operations on CUDA memory of any library, without a GPU. The arrays are torch
tensors. Each test view exposes them through only one interface: DLPack or the CUDA array interface.
"""

from __future__ import annotations

import contextlib
import unittest
from collections.abc import Callable, Iterator
from typing import Any

from late_values import (  # isort: skip  # before torch
    COUNT,
    fill_late,
    on_device,
    use_device,
    uses_the_first_device,
    values,
)
import numpy as np
import ronda
import torch
from torch import Tensor


def setUpModule() -> None:
    use_device()
    ronda.init()


def tearDownModule() -> None:
    torch.cuda.synchronize()
    ronda.shutdown()


class View:
    """A view that describes its memory as an array library does."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, rows: slice) -> View:
        return type(self)(self.tensor[rows])


class DlpackView(View):
    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, stream: int | None = None) -> Any:
        return self.tensor.__dlpack__(stream=stream)


class InterfaceView(View):
    """A view with version 3 of the CUDA array interface, and with the stream that was current at
    its creation.
    """

    mask: Any = None

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor)
        self.stream: int | None = torch.cuda.current_stream().cuda_stream or 1

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": tuple(self.tensor.shape),
            "typestr": "<f4",
            "data": (self.tensor.data_ptr(), False),
            "strides": tuple(4 * step for step in self.tensor.stride()),
            "stream": self.stream,
            "mask": self.mask,
        }


VIEWS: list[type[View]] = [DlpackView, InterfaceView]


class ArraysTest(unittest.TestCase):
    def setUp(self) -> None:
        self.own, self.size = float(ronda.rank() + 1), ronda.size()
        self.total = self.size * (self.size + 1) / 2
        self.side = torch.cuda.Stream()
        on_device(self.own)

    @contextlib.contextmanager
    def late(self, view: type[View]) -> Iterator[tuple[Tensor, Tensor]]:
        """Runs a sub-test on the side stream. Yields two tensors: one that is -1 until this rank's
        value arrives, and one for results.
        """
        tensor, out = on_device(-1.0).clone(), on_device(-1.0).clone()
        torch.cuda.synchronize()
        with self.subTest(view.__name__), torch.cuda.stream(self.side):
            fill_late(tensor, self.own)
            yield tensor, out
            self.assertFalse(uses_the_first_device())

    def test_allreduce_comes_behind_the_arrays_stream(self) -> None:
        for view in VIEWS:
            with self.late(view) as (tensor, out):
                ronda.allreduce(view(tensor), ronda.ReduceOp.SUM, out=view(out))
                self.assertEqual(values(out), [self.total])
                self.assertEqual(values(tensor), [self.own])

    def test_allreduce_in_place(self) -> None:
        for view in VIEWS:
            with self.late(view) as (tensor, _):
                array = view(tensor)
                self.assertIs(ronda.allreduce(array, ronda.ReduceOp.MAX, out=array), array)
                self.assertEqual(values(tensor), [float(self.size)])

    def test_any_stream_finds_the_result_of_wait(self) -> None:
        for view in VIEWS:
            with self.late(view) as (tensor, _):
                handle = ronda.allreduce_async(view(tensor), ronda.ReduceOp.SUM, out=view(tensor))
                handle.wait()
                with torch.cuda.stream(torch.cuda.Stream()):
                    copy = tensor.clone()
                self.assertEqual(values(copy), [self.total])

    def test_groups(self) -> None:
        for view in VIEWS:
            with self.late(view) as (tensor, out):
                arrays = [view(tensor[:100]), view(tensor[100:])]
                outs = [view(out[:100]), view(out[100:COUNT])]
                ronda.grouped_allreduce(arrays, ronda.ReduceOp.SUM, outs=outs)
                self.assertEqual(values(out), [self.total])

    def test_reduce_and_gather_have_a_result_on_the_root(self) -> None:
        is_root = ronda.rank() == 1
        for view in VIEWS:
            with self.late(view) as (tensor, out):
                ronda.reduce(
                    view(tensor), 1, ronda.ReduceOp.SUM, out=view(out) if is_root else None
                )
                self.assertEqual(values(out), [self.total if is_root else -1.0])
                rows = out[: 1000 * self.size]
                ronda.gather(view(tensor[:1000]), 1, out=view(rows) if is_root else None)
                want = [rank + 1.0 for rank in range(self.size)] if is_root else [-1.0]
                self.assertEqual(values(rows), want)

    def test_rows(self) -> None:
        ranks = [rank + 1.0 for rank in range(self.size)]
        for view in VIEWS:
            with self.late(view) as (tensor, out):
                rows, all_rows = tensor[:1000], tensor[: 1000 * self.size]
                part, whole = out[:1000], out[: 1000 * self.size]
                ronda.allgather(view(rows), out=view(whole))
                self.assertEqual(values(whole), ranks)
                ronda.alltoall(view(all_rows), out=view(whole))
                self.assertEqual(values(whole), ranks)
                ronda.reducescatter(view(all_rows), ronda.ReduceOp.SUM, out=view(part))
                self.assertEqual(values(part), [self.total])
                ronda.scatter(view(all_rows), 1, out=view(part))
                self.assertEqual(values(part), [2.0])

    def test_broadcast_is_in_place(self) -> None:
        for view in VIEWS:
            with self.late(view) as (tensor, out):
                ronda.broadcast(view(tensor), 1, out=view(tensor))
                self.assertEqual(values(tensor), [2.0])
                with self.assertRaisesRegex(ronda.RondaError, "pass out=array"):
                    ronda.broadcast(view(tensor), 0, out=view(out))

    def test_messages(self) -> None:
        to, source = (ronda.rank() + 1) % self.size, (ronda.rank() - 1) % self.size
        for view in VIEWS:
            with self.late(view) as (tensor, out):
                sent = ronda.send_async(view(tensor), to)
                ronda.recv(view(out), source)
                sent.wait()
                self.assertEqual(values(out), [source + 1.0])


class RefusalsTest(unittest.TestCase):
    """Every rank rejects the call because of its own arguments."""

    def assert_refused(
        self, text: str, function: Callable[..., Any], *args: Any, **kw: Any
    ) -> None:
        with self.assertRaisesRegex(ronda.InvalidArgumentError, text):
            function(*args, **kw)

    def test_a_result_needs_memory_on_the_device(self) -> None:
        tensor = on_device(1.0)
        for view in VIEWS:
            for function in (ronda.allreduce, ronda.allgather, ronda.reducescatter):
                with self.subTest(view.__name__):
                    self.assert_refused("on a CUDA device: pass out=", function, view(tensor))
        host = np.empty(COUNT, np.float32)
        text = "must both be in host memory, or both on a CUDA device"
        self.assert_refused(text, ronda.allreduce, DlpackView(tensor), out=host)
        self.assert_refused(text, ronda.allreduce, host, out=DlpackView(tensor))
        self.assert_refused(text, ronda.allgather, host, out=DlpackView(tensor))

    def test_streams_that_differ(self) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            array = InterfaceView(on_device(1.0))
        out = InterfaceView(on_device(1.0).clone())
        self.assert_refused("belong to different streams", ronda.allreduce, array, out=out)
        out.stream = None  # no order is needed
        ronda.allreduce(array, out=out)
        self.assertEqual(values(out.tensor), [1.0])

    def test_gaps_and_masks(self) -> None:
        column = on_device(1.0)[:1000].view(10, 100)[:, 0]
        for view in VIEWS:
            with self.subTest(view.__name__):
                self.assert_refused("not contiguous", ronda.allreduce, view(column))
        masked = InterfaceView(on_device(1.0))
        masked.mask = masked
        self.assert_refused("has a mask", ronda.allreduce, masked)


if __name__ == "__main__":
    unittest.main()
