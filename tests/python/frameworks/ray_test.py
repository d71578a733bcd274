# SPDX-License-Identifier: Apache-2.0

"""Compares Ray's TorchTrainer over Ronda with gloo. Ray itself starts the ranks."""

from __future__ import annotations

import unittest

import ray_cluster
from training_jobs import differences, train

_PROGRAM = """
    import os
    import sys
    import ray_cluster
    import torch
    import training_jobs as jobs
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer, prepare_model

    backend, dies = sys.argv[1:]
    folder = os.environ["TRAINED"]
    mark = os.path.join(folder, "has-died")

    def training():
        rank = torch.distributed.get_rank()
        plain = jobs.Model()
        optimizer = torch.optim.SGD(plain.parameters(), lr=jobs.RATE)
        model = prepare_model(plain)
        for step, (inputs, targets) in enumerate(jobs.part(rank)):
            if dies == "dies" and rank == 1 and step == 10 and not os.path.exists(mark):
                open(mark, "w").close()
                os._exit(7)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        jobs.report(plain, rank, torch.distributed.get_backend())

    ray_cluster.start(jobs.RANKS)
    result = TorchTrainer(
        training,
        scaling_config=ScalingConfig(num_workers=jobs.RANKS),
        torch_config=TorchConfig(backend=backend),
        run_config=RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=1)),
    ).fit()
    if result.error:
        raise result.error
    assert os.path.exists(mark) == (dies == "dies")
"""


class RayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.expected = train(_PROGRAM, "python", ["gloo", "lives"], env=ray_cluster.ENV)

    def check(self, dies: str) -> None:
        results = train(_PROGRAM, "python", ["ronda", dies], env=ray_cluster.ENV)
        self.assertEqual(["ronda"] * 2, [result["backend"] for result in results])
        self.assertEqual([], differences(results, self.expected))

    def test_trains_as_over_gloo(self) -> None:
        self.check("lives")

    def test_trains_again_after_the_death_of_a_worker(self) -> None:
        self.check("dies")
