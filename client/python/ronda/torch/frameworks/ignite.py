# SPDX-License-Identifier: Apache-2.0

"""Lets ignite train over Ronda: `import ronda.torch.frameworks.ignite`.

    with idist.Parallel(backend="ronda") as parallel:
        parallel.run(training)

ignite compares names of backends with those of torch, and refuses others. If the program has
created the group, idist.auto_model wraps nothing, so each rank trains alone.
"""

from __future__ import annotations

import types
from typing import Any

import ignite.distributed as idist
from ignite.distributed import auto
from ignite.distributed.comp_models import native

from ronda.torch.frameworks import known

_NAME = "ronda"


class _Distributed(types.ModuleType):
    """ignite.distributed as its helpers auto_model and auto_optim see it, where Ronda's name is
    gloo.

    The helpers have to use DistributedDataParallel without special cases for both backends. Their
    other questions go to ignite.distributed itself.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(idist, name)

    @staticmethod
    def backend() -> str | None:
        name = idist.backend()
        return native.GLOO if name == _NAME else name


with known("ignite"):
    native._NativeDistModel.available_backends = (
        *native._NativeDistModel.available_backends,
        _NAME,
    )
    # ignite's helpers read `auto.idist` at each call. So this also works for a program that has
    # imported a helper by name before.
    auto.idist = _Distributed(auto.idist.__name__)
