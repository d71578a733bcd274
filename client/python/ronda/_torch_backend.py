# SPDX-License-Identifier: Apache-2.0

"""The entry point that PyTorch 2.5 and later call at `import torch`, to register the backend."""

from __future__ import annotations

import importlib
import sys


def register() -> None:
    """Registers the backend of torch.distributed."""
    # If ronda.torch.c10d is already being imported, and has imported torch, that module registers
    # the backend itself.
    if "ronda.torch.c10d" not in sys.modules:
        importlib.import_module("ronda.torch.c10d")
