# SPDX-License-Identifier: Apache-2.0

"""Loads the extension module for the C ABI, which `_native.pyi` documents."""

from __future__ import annotations

import sys

from ronda import errors

if "t" in sys.abiflags:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    raise ImportError(
        f"ronda: {sys.executable} is a free-threaded Python, which Ronda does not support: its "
        "extension module uses CPython's limited API of 3.10, which such an interpreter does not "
        f"have. Run the program with the Python {version} that has a GIL (python{version})."
    )

from ronda import _native as native

native.set_error_types(errors.BY_STATUS)

__all__ = ["native"]
