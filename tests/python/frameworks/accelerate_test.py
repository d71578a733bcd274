# SPDX-License-Identifier: Apache-2.0

"""Compares Accelerate's Accelerator over Ronda with gloo."""

from __future__ import annotations

import unittest

from training_jobs import differences, train

_PROGRAM = """
    import sys
    import torch
    import training_jobs as jobs
    from accelerate import Accelerator, InitProcessGroupKwargs
    import ronda.torch.frameworks.accelerate

    backend, device = sys.argv[1:]
    accelerator = Accelerator(
        cpu=device == "cpu", kwargs_handlers=[InitProcessGroupKwargs(backend=backend)]
    )
    plain = jobs.Model()
    optimizer = torch.optim.SGD(plain.parameters(), lr=jobs.RATE)
    loader = torch.utils.data.DataLoader(jobs.samples(), batch_size=jobs.BATCH)
    model, optimizer, loader = accelerator.prepare(plain, optimizer, loader)
    for inputs, targets in loader:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(model(inputs), targets))
        optimizer.step()
    jobs.report(plain, accelerator.process_index, torch.distributed.get_backend())
"""


class AccelerateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.expected = train(_PROGRAM, "torchrun", ["gloo", "cpu"])

    def check(self, launcher: str, device: str) -> None:
        results = train(_PROGRAM, launcher, ["ronda", device])
        self.assertEqual(["ronda"] * 2, [result["backend"] for result in results])
        self.assertEqual([], differences(results, self.expected))

    def test_trains_as_over_gloo_below_rondarun(self) -> None:
        self.check("rondarun", "cpu")

    def test_trains_as_over_gloo_below_torchrun(self) -> None:
        self.check("torchrun", "cpu")

    def test_trains_as_over_gloo_where_it_looks_for_a_device_and_finds_none(self) -> None:
        self.check("torchrun", "any")
