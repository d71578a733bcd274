"""CUDA's libraries as tests/testing has them, for PyTorch's own CUDA code on a machine without a
GPU. Imported before torch.

Streams are threads that pause at random, so an order that is missing shows in the values. PyTorch's
kernels are dropped: values come to the device, and go, by copies.
"""

from __future__ import annotations

import ctypes
import os
import pathlib

_FAKES = pathlib.Path("tests/testing").resolve()
_LIBRARIES = ("libcudart.so.13", "libcuda.so.1")

os.environ["RONDA_CUDA_PLUGIN"] = str(_FAKES / "fake_cuda" / "libfake_cuda.so")
os.environ["RONDA_NCCL_LIBRARY"] = str(_FAKES / "fake_nccl" / "libfake_nccl.so")
os.environ.setdefault("FAKE_CUDA_DEVICES", "3")
os.environ.setdefault("FAKE_CUDA_DELAY_SEED", "1")
# The loader takes them for those that torch's libraries ask for: their names are the same.
_runtime, _ = (
    ctypes.CDLL(str(_FAKES / "fake_cudart" / name), mode=ctypes.RTLD_GLOBAL) for name in _LIBRARIES
)
_fake = ctypes.CDLL(os.environ["RONDA_CUDA_PLUGIN"])
_runtime.fake_cudart_dropped_kernels.restype = ctypes.c_uint64


def dropped_kernels() -> int:
    """How many kernels this process has launched, all of which did nothing."""
    return int(_runtime.fake_cudart_dropped_kernels())


def has_context(device: int) -> bool:
    """Whether this process has used the device, which would occupy memory on a GPU."""
    return bool(_fake.fake_cuda_has_context(device))
