# SPDX-License-Identifier: Apache-2.0

"""`python -m ronda.check` reports the installation, and whether two ranks can all-reduce here.

The exit code is 0 if the all-reduce works.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import subprocess
import sys
import time

import ronda
from ronda import errors
from ronda._library import native
from ronda.run import launcher

# Python packages that Ronda works with, and what each of them is for.
_LIBRARIES = {
    "numpy": "results of ronda's own collectives",
    "torch": "ronda.torch, torch.distributed",
    "cloudpickle": "ronda.run() with functions of the main program",
    "ml_dtypes": "bfloat16 in NumPy",
}
_BYTES = 16 << 20
_REPETITIONS = 10


def main() -> int:
    """Prints the report, and returns the exit code."""
    _print_versions()
    sys.stdout.flush()
    subprocess.run([launcher(), "--check-build"], check=False)
    try:
        # Imports this module by name, because the ranks cannot find functions of __main__.
        results = ronda.run(importlib.import_module("ronda.check").measure, np=2)
    except errors.RondaError as error:
        print(f"\n2 ranks on this host: FAILED\n{error}")
        return 1
    seconds = max(seconds for _, seconds in results)
    if not all(is_right for is_right, _ in results):
        print("\n2 ranks on this host: FAILED: a wrong sum")
        return 1
    print(
        f"\n2 ranks on this host: all-reduce works, {_BYTES >> 20} MiB in {seconds * 1e3:.1f} ms"
        f" ({_BYTES / seconds / 1e9:.1f} GB/s)"
    )
    return 0


def _print_versions() -> None:
    print(
        f"ronda {ronda.__version__}, {native.__name__.rpartition('.')[2]}, in {ronda.__path__[0]}"
    )
    print(f"Python {platform.python_version()}, {platform.platform()}")
    for name, use in _LIBRARIES.items():
        try:
            print(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} is not installed ({use})")


def measure() -> tuple[bool, float]:
    """Runs on each rank. Returns whether the sum is correct, and how many seconds the fastest of
    several all-reduces took.
    """
    ronda.init()
    values = bytearray(b"\x01" * _BYTES)
    best = float("inf")
    for _ in range(_REPETITIONS):
        values[:] = b"\x01" * _BYTES
        begin = time.perf_counter()
        ronda.allreduce(values, ronda.ReduceOp.SUM, out=values, name="check")
        best = min(best, time.perf_counter() - begin)
    is_right = values == bytes([ronda.size()]) * _BYTES
    ronda.shutdown()
    return is_right, best


if __name__ == "__main__":
    sys.exit(main())
