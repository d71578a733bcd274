# SPDX-License-Identifier: Apache-2.0

"""Tests the checked mode, in which ranks compare their gradients and parameters."""

import os
import unittest
from unittest import mock

import ronda.torch as hvd
import torch
from torch_cases import (  # noqa: F401
    TrainingCase,
    loss_of,
    make_model,
    needs_other_ranks,
    setUpModule,
    tearDownModule,
)


def flip_a_bit(tensor: torch.Tensor) -> None:
    tensor.detach().view(-1)[-1:].view(torch.int32).bitwise_xor_(1 << 12)


class CheckNumbersTest(unittest.TestCase):
    def test_equal_tensors_of_any_kind_pass(self):
        tensors = [
            ("none", None),
            ("empty", torch.empty(0)),
            ("nan", torch.full((3,), float("nan"))),
            ("half", torch.ones(300_000, dtype=torch.float16)),
            ("complex", torch.ones(2, dtype=torch.complex128).conj()),
            ("flags", torch.tensor([True, False])),
            ("sparse", torch.eye(3).to_sparse()),
        ]
        hvd.check_numbers(tensors, 3)
        columns = torch.arange(6.0).view(2, 3)
        hvd.check_numbers([("x", columns if hvd.rank() == 0 else columns.t().contiguous().t())])

    def test_one_bit_on_one_rank_is_named(self):
        needs_other_ranks(self)
        for dtype in (torch.float32, torch.int64, torch.bfloat16):
            values = torch.ones(300_001, dtype=dtype)
            if hvd.rank() == 1:
                values.view(torch.uint8)[-1] ^= 128
            text = r"in step 7, weight is not the same.*: \w+ on ranks? 0.*; \w+ on rank 1$"
            with self.subTest(dtype), self.assertRaisesRegex(ValueError, text):
                hvd.check_numbers([("before", torch.ones(2)), ("weight", values)], 7)

    def test_other_forms_of_the_same_bytes_are_named(self):
        needs_other_ranks(self)
        first, other = torch.zeros(2, 3), (torch.zeros(3, 2), torch.zeros(2, 3).int(), None)
        for tensor in other:
            text = "in step 0, x is not the same"
            with self.subTest(tensor), self.assertRaisesRegex(ValueError, text):
                hvd.check_numbers([("x", tensor if hvd.rank() == 1 else first)])

    def test_other_steps_and_other_tensors(self):
        needs_other_ranks(self)
        own = [("x", torch.ones(2))]
        with self.assertRaisesRegex(ValueError, "other steps: .*1 on ranks? 1"):
            hvd.check_numbers(own, min(hvd.rank(), 1))
        with self.assertRaisesRegex(ValueError, "rank 1 checks other tensors than rank 0"):
            hvd.check_numbers(own * (2 if hvd.rank() == 1 else 1))

    def test_ranks_outside_of_a_process_set_take_no_part(self):
        needs_other_ranks(self)
        alone = hvd.add_process_set([0])
        hvd.check_numbers([("x", torch.tensor([hvd.rank()]))], process_set=alone)
        hvd.remove_process_set(alone)


@mock.patch.dict(os.environ, {"RONDA_CHECK": "3"})
class CheckedModeTest(TrainingCase):
    def train(self, optimizer, model, steps):
        for step in range(steps):
            optimizer.zero_grad()
            loss_of(model, hvd.rank(), step).backward()
            optimizer.step()

    def test_a_parameter_that_differs_is_named_in_the_next_checked_step(self):
        needs_other_ranks(self)
        model = make_model()
        optimizer = self.wrap(model)
        self.train(optimizer, model, 4)
        if hvd.rank() == 1:
            flip_a_bit(model[2].bias)
        self.train(optimizer, model, 1)
        with self.assertRaisesRegex(ValueError, "step 6, parameter '2.bias' is not the same"):
            self.train(optimizer, model, 1)

    def test_training_that_is_right_goes_on(self):
        for options in ({}, {"op": hvd.Adasum}, {"groups": 2}, {"backward_passes_per_step": 1}):
            model = make_model()
            model[0].bias.requires_grad_(False)
            with self.subTest(**options):
                self.train(self.wrap(model, **options), model, 7)
                self.assert_same_on_all_ranks(model)

    def test_a_number_that_is_none_is_refused(self):
        for text in ("often", "-1", "1.5"):
            with (
                mock.patch.dict(os.environ, {"RONDA_CHECK": text}),
                self.assertRaisesRegex(ValueError, f"RONDA_CHECK is '{text}'"),
            ):
                self.wrap(make_model())


@mock.patch.dict(os.environ, {"RONDA_CHECK": "100"})
class ChangedWhileRunningTest(unittest.TestCase):
    """Tests the errors when the program changes a tensor before synchronize() ends its
    operation.
    """

    def setUp(self):
        hvd.shutdown()  # the next job reads the variable
        hvd.init()

    tearDown = setUp

    def assert_refused(self, handle, name):
        with self.assertRaisesRegex(ValueError, f"^{name}: a tensor .* was changed while"):
            hvd.synchronize(handle)

    def test_of_each_kind_is_named(self):
        operations = {
            hvd.allreduce_async: {},
            hvd.allreduce_async_: {},
            hvd.allgather_async: {},
            hvd.alltoall_async: {},
            hvd.reducescatter_async: {},
            hvd.broadcast_async_: {"root_rank": 0},
        }
        for start, options in operations.items():
            tensor = torch.ones(2 * hvd.size())
            handle = start(tensor, name="x", **options)
            tensor[0] = 2.0
            with self.subTest(start.__name__):
                self.assert_refused(handle, "x")

    def test_one_of_a_group(self):
        for start in (hvd.grouped_allreduce_async, hvd.grouped_allreduce_async_):
            tensors = [torch.ones(2) for _ in range(3)]
            handle = start(tensors, name="these")
            tensors[1].add_(1)
            with self.subTest(start.__name__):
                self.assert_refused(handle, "these")

    def test_without_a_name(self):
        tensor = torch.ones(2)
        handle = hvd.allreduce_async(tensor)
        tensor.zero_()
        self.assert_refused(handle, "an operation without a name")

    def test_a_view_of_it(self):
        tensor = torch.ones(4)
        handle = hvd.allreduce_async(tensor[:2], name="x")
        tensor.zero_()
        self.assert_refused(handle, "x")

    def test_results_of_ronda_are_no_changes(self):
        tensor = torch.full((2,), float(hvd.rank()))
        first = hvd.allreduce_async_(tensor, op=hvd.Sum)
        second = hvd.allreduce_async_(tensor, op=hvd.Max)
        third = hvd.allgather_async(tensor)
        for handle in (first, second, third):
            result = hvd.synchronize(handle)
        size = hvd.size()
        torch.testing.assert_close(result, torch.full((2 * size,), size * (size - 1) / 2))

    def test_changes_before_and_after_are_right(self):
        tensor = torch.ones(2)
        for _ in range(3):
            tensor.mul_(2)
            hvd.synchronize(hvd.allreduce_async_(tensor))
        torch.testing.assert_close(tensor, torch.full((2,), 8.0))

    def test_inference_tensors_have_no_versions(self):
        with torch.inference_mode():
            tensor = torch.ones(2)
            torch.testing.assert_close(hvd.synchronize(hvd.allreduce_async(tensor)), tensor)

    def test_unchecked_mode_reports_no_difference(self):
        with mock.patch.dict(os.environ, {"RONDA_CHECK": "0"}):
            self.setUp()
            tensor = torch.ones(2)
            handle = hvd.allreduce_async_(tensor)
            tensor.mul_(1)
            hvd.synchronize(handle)


if __name__ == "__main__":
    unittest.main()
