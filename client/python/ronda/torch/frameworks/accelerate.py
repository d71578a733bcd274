# SPDX-License-Identifier: Apache-2.0

"""Lets Accelerate train on CPUs over Ronda: `import ronda.torch.frameworks.accelerate`.

    accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(backend="ronda")])

With GPUs Accelerate passes the backend's name to torch, so the program needs no import. On CPUs
Accelerate accepts only gloo and MPI. Without cpu=True, and without GPUs, Accelerate trains each
rank alone.
"""

from __future__ import annotations

from typing import Any

from accelerate.state import DistributedType, PartialState

from ronda.torch.frameworks import known

_NAME = "ronda"

with known("accelerate"):
    _prepare_backend: Any = PartialState._prepare_backend


def _prepare(
    state: PartialState, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None
) -> tuple[str | None, DistributedType]:
    """Replaces PartialState._prepare_backend: chooses the backend and the devices.

    Raises:
        ValueError: the program requests Ronda, but has only one process.
    """
    name, devices = _prepare_backend(state, cpu, sagemaker_dp, backend)
    if backend != _NAME or devices not in (DistributedType.NO, DistributedType.MULTI_CPU):
        return name, devices
    # If Accelerate has found no accelerator, it looks for the other ranks only if its argument
    # `cpu` is true.
    devices = _prepare_backend(state, True, sagemaker_dp, None)[1]
    if devices is not DistributedType.MULTI_CPU:
        raise ValueError(
            f'Accelerate is asked for the backend "{_NAME}", and this process is no rank of a job: '
            "start the program with rondarun or torchrun, or leave the backend out"
        )
    return _NAME, devices


PartialState._prepare_backend = _prepare
