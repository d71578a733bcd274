# SPDX-License-Identifier: Apache-2.0

"""Registers Ronda's backend with frameworks built on torch.distributed.

Most frameworks accept any backend name. Some have their own list of backends; for each of them, a
module in this folder adds Ronda to the list. A program only has to import the module of its
framework:

    import ronda.torch.frameworks.transformers

docs/frameworks.md has the import for each framework.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator

import ronda.torch.c10d  # noqa: F401  registers the backend, even if torch reads no entry points

# By framework module, the name of the module here that registers Ronda with the framework.
_TOLD = {"ignite.distributed": "ignite"}


def tell_imported() -> None:
    """Registers Ronda with imported frameworks that would otherwise train each rank alone.

    Without the registration, ignite would silently train each rank alone if the program itself
    creates the group.
    """
    for module, name in _TOLD.items():
        if module in sys.modules:
            importlib.import_module(f"{__name__}.{name}")


@contextlib.contextmanager
def known(framework: str) -> Iterator[None]:
    """A context manager that raises a clear error if a module here does not find a name in a
    framework.

    Raises:
        ImportError: this version of the framework keeps its list of backends under a different
            name.
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
