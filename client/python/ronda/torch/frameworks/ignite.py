# SPDX-License-Identifier: Apache-2.0

"""Lets ignite train over Ronda: `import ronda.torch.frameworks.ignite`.

    with idist.Parallel(backend="ronda") as parallel:
        parallel.run(training)

ignite only accepts the names of torch's own backends. If the program itself has created the group,
idist.auto_model does not wrap the model, so each rank trains alone.
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
    """Replaces the module ignite.distributed for its helpers auto_model and auto_optim. Reports the
    backend name gloo instead of ronda.

    With gloo, the helpers use DistributedDataParallel without special cases, as Ronda needs it. All
    other attributes come from ignite.distributed.
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
    # ignite's helpers read `auto.idist` at each call, so the replacement also works if the program
    # has already imported a helper by name.
    auto.idist = _Distributed(auto.idist.__name__)
