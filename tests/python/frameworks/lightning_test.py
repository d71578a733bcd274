# SPDX-License-Identifier: Apache-2.0

"""Compares Lightning's Trainer and Fabric over Ronda with gloo."""

from __future__ import annotations

import unittest

from training_jobs import differences, train

_TRAINER = """
    import sys
    import lightning
    import torch
    import training_jobs as jobs
    from lightning.pytorch.strategies import DDPStrategy

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = jobs.Model()

        def training_step(self, batch, index):
            inputs, targets = batch
            return torch.nn.functional.mse_loss(self.model(inputs), targets)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=jobs.RATE)

    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=jobs.RANKS, max_epochs=1,
        strategy=DDPStrategy(process_group_backend=sys.argv[1]),
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
    )
    trainer.fit(module, torch.utils.data.DataLoader(jobs.samples(), batch_size=jobs.BATCH))
    jobs.report(module.model, trainer.global_rank, torch.distributed.get_backend())
"""

_FABRIC = """
    import sys
    import lightning
    import torch
    import training_jobs as jobs
    from lightning.fabric.strategies import DDPStrategy

    strategy = DDPStrategy(process_group_backend=sys.argv[1])
    fabric = lightning.Fabric(accelerator="cpu", devices=jobs.RANKS, strategy=strategy)
    fabric.launch()
    plain = jobs.Model()
    model, optimizer = fabric.setup(plain, torch.optim.SGD(plain.parameters(), lr=jobs.RATE))
    loader = torch.utils.data.DataLoader(jobs.samples(), batch_size=jobs.BATCH)
    for inputs, targets in fabric.setup_dataloaders(loader):
        optimizer.zero_grad()
        fabric.backward(torch.nn.functional.mse_loss(model(inputs), targets))
        optimizer.step()
    jobs.report(plain, fabric.global_rank, torch.distributed.get_backend())
"""


class LightningTest(unittest.TestCase):
    def check(self, source: str) -> None:
        expected = train(source, "torchrun", ["gloo"])
        for launcher in ("rondarun", "torchrun"):
            with self.subTest(launcher):
                results = train(source, launcher, ["ronda"])
                self.assertEqual(["ronda"] * 2, [result["backend"] for result in results])
                self.assertEqual([], differences(results, expected))

    def test_trainer_trains_as_over_gloo(self) -> None:
        self.check(_TRAINER)

    def test_fabric_trains_as_over_gloo(self) -> None:
        self.check(_FABRIC)
