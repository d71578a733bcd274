# SPDX-License-Identifier: Apache-2.0

"""Compares transformers' Trainer over Ronda (--ddp_backend) with gloo."""

from __future__ import annotations

import unittest

from training_jobs import differences, train

_PROGRAM = """
    import os
    import torch
    import training_jobs as jobs
    from transformers import HfArgumentParser, Trainer, TrainingArguments
    import ronda.torch.frameworks.transformers

    class WithLoss(jobs.Model):
        def forward(self, inputs, labels):
            outputs = super().forward(inputs)
            return {"loss": torch.nn.functional.mse_loss(outputs, labels), "logits": outputs}

    parser = HfArgumentParser(TrainingArguments)
    [arguments] = parser.parse_args_into_dataclasses()
    model = WithLoss()
    samples = [{"inputs": inputs, "labels": labels} for inputs, labels in jobs.samples()]
    Trainer(model=model, args=arguments, train_dataset=samples).train()
    jobs.report(model, arguments.process_index, torch.distributed.get_backend())
"""

_ARGUMENTS = [
    *("--use_cpu", "--output_dir", ".", "--save_strategy", "no", "--report_to", "none"),
    *("--optim", "sgd", "--learning_rate", "0.05", "--max_grad_norm", "0", "--max_steps", "20"),
    *("--lr_scheduler_type", "constant", "--per_device_train_batch_size", "4"),
    *("--disable_tqdm", "True", "--remove_unused_columns", "False"),
]


class TransformersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.expected = train(_PROGRAM, "torchrun", [*_ARGUMENTS, "--ddp_backend", "gloo"])

    def check(self, launcher: str) -> None:
        results = train(_PROGRAM, launcher, [*_ARGUMENTS, "--ddp_backend", "ronda"])
        self.assertEqual(["ronda"] * 2, [result["backend"] for result in results])
        self.assertEqual([], differences(results, self.expected))

    def test_trains_as_over_gloo_below_rondarun(self) -> None:
        self.check("rondarun")

    def test_trains_as_over_gloo_below_torchrun(self) -> None:
        self.check("torchrun")
