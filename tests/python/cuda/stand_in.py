# SPDX-License-Identifier: Apache-2.0

"""Loads the stand-ins in tests/testing for CUDA's libraries, so that PyTorch's own CUDA code runs
on a machine without a GPU. Tests must import this module before torch.

The stand-in's streams are threads that pause at random. So if a stream fails to wait for another
one, the values are wrong. PyTorch's kernels do nothing here, so only copies move values to the
device and back.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pathlib
import unittest

_FAKES = pathlib.Path("tests/testing").resolve()
_RUNTIME = "libcudart.so.13"
_DRIVER = "libcuda.so.1"


def _is_asked_for() -> bool:
    """Returns whether this build of torch loads CUDA's runtime as a separate library."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    library = pathlib.Path(spec.origin).parent / "lib" / "libc10_cuda.so"
    return library.exists() and _RUNTIME.encode() in library.read_bytes()


def _load(name: str) -> ctypes.CDLL:
    """Loads the stand-in in place of the library `name`, which torch's libraries need."""
    return ctypes.CDLL(str(_FAKES / "fake_cudart" / name), mode=ctypes.RTLD_GLOBAL)


_IS_LOADED = _is_asked_for()
if _IS_LOADED:
    os.environ["FAKE_CUDA_LIBRARY"] = str(_FAKES / "fake_cuda" / "libfake_cuda.so")
    os.environ["RONDA_CUDA_PLUGIN"] = str(_FAKES / "fake_cudart" / "libronda_cuda_on_fakes.so")
    os.environ["RONDA_NCCL_LIBRARY"] = str(_FAKES / "fake_nccl" / "libfake_nccl.so")
    os.environ.setdefault("FAKE_CUDA_DEVICES", "3")
    os.environ.setdefault("FAKE_CUDA_DELAY_SEED", "1")
    _runtime, _driver = _load(_RUNTIME), _load(_DRIVER)
    _runtime.fake_cudart_dropped_kernels.restype = ctypes.c_uint64
    _fake = ctypes.CDLL(os.environ["FAKE_CUDA_LIBRARY"])


def require() -> None:
    """Skips a module of tests if torch would not use the stand-in."""
    if not _IS_LOADED:
        raise unittest.SkipTest(f"this torch does not load {_RUNTIME}")


def dropped_kernels() -> int:
    """Returns how many kernels this process has launched, although none of them does anything."""
    return int(_runtime.fake_cudart_dropped_kernels())


def has_context(device: int) -> bool:
    """Returns whether this process has a context on the device. On a real GPU, a context takes
    memory.
    """
    return bool(_fake.fake_cuda_has_context(device))
