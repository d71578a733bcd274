"""PyTorch's entry point: makes the backend known at `import torch`, from PyTorch 2.5 on."""

from __future__ import annotations

import importlib
import sys


def register() -> None:
    """Registers the backend of torch.distributed."""
    # Where that module is being imported, and has imported torch, it registers itself.
    if "ronda.torch.c10d" not in sys.modules:
        importlib.import_module("ronda.torch.c10d")
