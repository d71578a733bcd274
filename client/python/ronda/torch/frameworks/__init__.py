"""What frameworks above torch.distributed have to be told of Ronda's backend.

Most take the name of any backend. A module here tells one that knows its backends by a list of its
own; its import is the program's one line:

    import ronda.torch.frameworks.transformers

docs/frameworks.md has the line of each framework.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator

import ronda.torch.c10d  # noqa: F401  makes the backend known, also where torch asks no entry point

# By the module of the framework that has the list.
_TOLD = {"ignite.distributed": "ignite"}


def tell_imported() -> None:
    """Tells the frameworks that the program has imported and that would train each rank alone.

    ignite does, without a word, where the program makes the group itself.
    """
    for module, name in _TOLD.items():
        if module in sys.modules:
            importlib.import_module(f"{__name__}.{name}")


@contextlib.contextmanager
def known(framework: str) -> Iterator[None]:
    """Says in a sentence that a module here does not find what it looks up in a framework.

    Raises:
        ImportError: this version of the framework has its backends in another place.
    """
    try:
        yield
    except (AttributeError, KeyError) as error:
        version = getattr(sys.modules[framework], "__version__", "of an unknown version")
        raise ImportError(
            f"{framework} {version} has its list of backends in another place than the versions "
            "that docs/frameworks.md names: use one of these, or name gloo and set "
            "RONDA_REPLACE_BACKEND=gloo"
        ) from error
