# SPDX-License-Identifier: Apache-2.0

"""PyTorch's entry point: registers the backend at `import torch`, from PyTorch 2.5 on."""

from __future__ import annotations

import importlib
import sys


def register() -> None:
    """Registers the backend of torch.distributed."""
    # If that module is already being imported, and has imported torch, it registers the backend
    # itself.
    if "ronda.torch.c10d" not in sys.modules:
        importlib.import_module("ronda.torch.c10d")
