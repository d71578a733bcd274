# SPDX-License-Identifier: Apache-2.0

"""Compares ignite's Engine and idist over Ronda with gloo."""

from __future__ import annotations

import unittest

from training_jobs import differences, train

_TRAINING = """
    import sys
    import torch
    import training_jobs as jobs
    import ignite.distributed as idist
    from ignite.distributed import auto_model
    from ignite.engine import Engine

    def training(rank):
        plain = jobs.Model()
        model = auto_model(plain)
        optimizer = idist.auto_optim(torch.optim.SGD(plain.parameters(), lr=jobs.RATE))

        def step(engine, batch):
            inputs, targets = batch
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()

        batch_size = jobs.BATCH * idist.get_world_size()  # which ignite divides
        loader = idist.auto_dataloader(jobs.samples(), batch_size=batch_size)
        Engine(step).run(loader, max_epochs=1)
        jobs.report(plain, rank, idist.backend())
"""

_PARALLEL = (
    _TRAINING
    + """
    import ronda.torch.frameworks.ignite

    with idist.Parallel(backend=sys.argv[1]) as parallel:
        parallel.run(lambda rank: training(rank))
"""
)

_OWN_GROUP = (
    _TRAINING
    + """
    torch.distributed.init_process_group(sys.argv[1])
    training(torch.distributed.get_rank())
"""
)


class IgniteTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.expected = train(_PARALLEL, "torchrun", ["gloo"])

    def check(self, source: str, launcher: str, backend: str = "ronda", **options: object) -> None:
        results = train(source, launcher, [backend], **options)
        self.assertEqual(["ronda"] * 2, [result["backend"] for result in results])
        self.assertEqual([], differences(results, self.expected))

    def test_trains_as_over_gloo_below_rondarun(self) -> None:
        self.check(_PARALLEL, "rondarun")

    def test_trains_as_over_gloo_below_torchrun(self) -> None:
        self.check(_PARALLEL, "torchrun")

    def test_wraps_the_model_where_the_program_has_made_the_group(self) -> None:
        self.check(_OWN_GROUP, "torchrun")

    def test_wraps_the_model_where_ronda_takes_the_place_of_gloo(self) -> None:
        self.check(_OWN_GROUP, "torchrun", "gloo", env={"RONDA_REPLACE_BACKEND": "gloo"})
