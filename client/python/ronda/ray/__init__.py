# SPDX-License-Identifier: Apache-2.0

"""Runs jobs whose ranks are Ray actors.

    executor = RondaExecutor(RondaExecutor.create_settings(timeout_s=60), num_workers=4)
    executor.start()
    losses = executor.run(train, args=[0.1])  # by rank
    executor.shutdown()

The class is also available under Horovod's name, RayExecutor.
"""

from __future__ import annotations

from ronda.ray.executor import RondaExecutor, Settings

RayExecutor = RondaExecutor

__all__ = ["RayExecutor", "RondaExecutor", "Settings"]
