# SPDX-License-Identifier: Apache-2.0

"""Compares DeepSpeed's engine on CPUs over Ronda with gloo."""

from __future__ import annotations

import os
import sys
import unittest

from training_jobs import differences, train

_PROGRAM = """
    import sys
    import deepspeed
    import torch
    import training_jobs as jobs

    backend, stage = sys.argv[1:]
    deepspeed.init_distributed(dist_backend=backend)
    plain = jobs.Model()
    engine, _, _, _ = deepspeed.initialize(
        model=plain,
        optimizer=torch.optim.SGD(plain.parameters(), lr=jobs.RATE),
        config={
            "train_micro_batch_size_per_gpu": jobs.BATCH,
            "zero_optimization": {"stage": int(stage)},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
        },
    )
    rank = torch.distributed.get_rank()
    for inputs, targets in jobs.part(rank):
        engine.backward(torch.nn.functional.mse_loss(engine(inputs), targets))
        engine.step()
    jobs.report(plain, rank, torch.distributed.get_backend())
"""

_ENV = {
    "DS_ACCELERATOR": "cpu",
    # DeepSpeed compiles its own CPU collectives at the first start, which takes minutes.
    "TORCH_EXTENSIONS_DIR": os.path.join(sys.prefix, "torch_extensions"),
}


class DeepSpeedTest(unittest.TestCase):
    def check(self, stage: str) -> None:
        expected = train(_PROGRAM, "torchrun", ["gloo", stage], env=_ENV)
        for launcher in ("rondarun", "torchrun"):
            with self.subTest(launcher):
                results = train(_PROGRAM, launcher, ["ronda", stage], env=_ENV)
                self.assertEqual(["ronda"] * 2, [result["backend"] for result in results])
                self.assertEqual([], differences(results, expected))

    def test_trains_as_over_gloo(self) -> None:
        self.check("0")

    def test_trains_as_over_gloo_with_gradients_that_are_sharded(self) -> None:
        self.check("2")
