"""Has ignite train over Ronda: `import ronda.torch.frameworks.ignite`.

    with idist.Parallel(backend="ronda") as parallel:
        parallel.run(training)

ignite compares names of backends with torch's own. It refuses others; and where the program has
made the group, idist.auto_model wraps nothing, so that each rank trains alone.
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
    """ignite.distributed as its helpers auto_model and auto_optim see it: Ronda counts as gloo.

    Both stand for DistributedDataParallel without a backend's peculiarities. What else they ask is
    answered by ignite.distributed itself.
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
    # The helpers look the module up at each call: also a helper that a program has imported by name
    # asks the new one.
    auto.idist = _Distributed(auto.idist.__name__)
