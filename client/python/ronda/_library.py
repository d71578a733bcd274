# SPDX-License-Identifier: Apache-2.0

"""Chooses the binding of the C ABI: the extension module, or ctypes, which every interpreter has.

RONDA_PYTHON_BINDING sets the choice: "native" or "ctypes".
"""

from __future__ import annotations

import os

from ronda import errors

_choice = os.environ.get("RONDA_PYTHON_BINDING", "")
if _choice not in ("", "native", "ctypes"):
    raise ValueError(f"RONDA_PYTHON_BINDING is '{_choice}': it must be native or ctypes")

try:
    if _choice == "ctypes":
        raise ImportError
    from ronda import _native as native
except ImportError:
    if _choice == "native":
        raise
    from ronda import _fallback as native  # type: ignore[no-redef]

native.set_error_types(errors.BY_STATUS)

__all__ = ["native"]
