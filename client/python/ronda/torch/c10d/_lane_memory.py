# SPDX-License-Identifier: Apache-2.0

"""Tensors in the memory of a lane, which all ranks have registered with NCCL together."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import torch

from ronda._library import native
from ronda.errors import InvalidArgumentError
from ronda.torch.c10d._lane import Lane

Tensor = torch.Tensor

# torch's allocators of lanes' memory, by process set.
_allocators: dict[int, Any] = {}

# A process set without an allocator; see ronda_lane_allocator() in client/ronda/lanes.h.
_WITHOUT_ALLOCATOR = 1 << 30


def _allocator(process_set: int) -> Any:
    """Returns torch's allocator for the lane that the process set has at the time of a call.

    The allocator's functions are C functions. torch calls them while it holds the lock of its
    caching allocator, so a function of Python could wait for the GIL for ever.

    Raises:
        InvalidArgumentError: the process set has no allocator.
    """
    if process_set not in _allocators:
        allocate, free = native.lane_allocator(process_set)
        allocator = torch._C._cuda_customAllocator(allocate, free)  # type: ignore[attr-defined]
        # torch calls the allocator when it frees a tensor, which may outlive the group and, at the
        # interpreter's exit, this module. Old versions of a MemPool do not keep the allocator.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(allocator))
        _allocators[process_set] = allocator
    return _allocators[process_set]


def _known_error() -> str:
    """Makes a call of Ronda fail in this thread, and returns its text. If last_error() returns
    another text later, a later call has failed.
    """
    with contextlib.suppress(InvalidArgumentError):
        native.lane_allocator(_WITHOUT_ALLOCATOR)
    return native.last_error()


class LaneMemory:
    """The tensors of a group in the memory of its lane.

    torch's caching allocator divides the memory, and reuses a tensor's memory in the order of
    streams. All ranks must allocate and free such tensors in the same order. So if the memory is
    full, it is full on all ranks, and all of them free the cached memory.
    """

    def __init__(self, lane: Lane, process_set: int) -> None:
        self._lane = lane
        self._process_set = process_set
        self._pool: Any = None
        self._refusal: str | None = None  # of torch; None: not known yet

    def supports(self, device: Any) -> bool:
        """Returns whether allocate() works; the same on all ranks. Opens the lane, so all ranks
        must call this function at the same point.

        Args:
            device: a torch.device. For the number of a device the result is False: torch's C++ code
                passes one, and then calls a method that Python cannot replace.
        """
        return isinstance(device, torch.device) and self._obstacle(device) is None

    def _obstacle(self, device: torch.device) -> str | None:
        """Returns why allocate() does not work, or None if it works."""
        if device.type != "cuda":
            return "the memory of a lane is on a GPU"
        if not hasattr(torch.cuda, "MemPool") or not hasattr(torch._C, "_cuda_customAllocator"):
            return f"this version of torch, {torch.__version__}, has no torch.cuda.MemPool"
        if not self._lane.open(device):
            return "the group has no lane (docs/gpu_lanes.md says when a group has one)"
        if not self._lane.memory:
            return self._lane.why_no_memory
        if self._refusal is None:
            self._refusal = self._refusal_of_torch(device)
        return self._refusal or None

    def _refusal_of_torch(self, device: torch.device) -> str:
        """Returns why torch cannot allocate in the memory, or "". Some versions refuse pools with
        an allocator if the program uses expandable_segments.
        """
        try:
            self._in_pool(1, torch.uint8, device)
        except torch.cuda.OutOfMemoryError:
            pass
        except RuntimeError as error:
            return f"torch {torch.__version__} refuses: {error}"
        return ""

    @property
    def allocator(self) -> Any:
        """torch's allocator, for a torch.cuda.MemPool.

        Raises:
            InvalidArgumentError: the process set has no allocator.
        """
        return _allocator(self._process_set)

    def allocate(self, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Returns a flat tensor of `size` elements, which are not initialised.

        Raises:
            torch.cuda.OutOfMemoryError: the memory is full of tensors that exist, and the text
                names the setting; or torch's own limit for this process is reached.
            InvalidArgumentError: the lane has no memory, and the text says why; or torch has not
                used it.
        """
        obstacle = self._obstacle(device)
        if obstacle is not None:
            raise InvalidArgumentError(
                f"this group has no memory for tensors on {device}: {obstacle}"
            )
        try:
            tensor = self._in_pool(size, dtype, device)
        except torch.cuda.OutOfMemoryError:
            tensor = None
        if tensor is None:
            # torch frees the cached memory of a pool when the pool ends. In the handler, the error
            # would keep the pool.
            self.drop()
            earlier = _known_error()
            try:
                tensor = self._in_pool(size, dtype, device)
            except torch.cuda.OutOfMemoryError as error:
                if native.last_error() == earlier:
                    raise  # torch has not asked the allocator
                raise torch.cuda.OutOfMemoryError(native.last_error()) from error
        if size and tensor.data_ptr() not in self._lane.memory:
            raise InvalidArgumentError(
                "torch has placed the tensor outside of the memory of this group's lane: this "
                f"version, {torch.__version__}, does not use the allocator of a torch.cuda.MemPool"
            )
        return tensor

    def _in_pool(self, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        # A pool uses its allocator only on the device that is current when the pool is made.
        with torch.cuda.device(device):
            if self._pool is None:
                self._pool = torch.cuda.MemPool(self.allocator)
            with torch.cuda.use_mem_pool(self._pool, device):
                return torch.empty(size, dtype=dtype, device=device)

    def drop(self) -> None:
        """Gives the memory back to the lane, except that of tensors which still exist."""
        self._pool = None
