# SPDX-License-Identifier: Apache-2.0

"""Communication hooks for DDP that send gradients in 16 or 8 bits.

    state = CompressionState(wire=Wire.FP8_E4M3, error_feedback=True)
    model.register_comm_hook(state, compressed_allreduce)

Ronda converts the elements during the reduction, without a copy of the bucket in a different dtype.
Ronda computes sums in fp32, and rounds each sum once. torch's own fp16_compress_hook casts, sums in
fp16 and casts back.
"""

# This module does not import annotations from __future__, because DDP compares a hook's annotations
# with classes.
import itertools
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future

from ronda._library import native
from ronda.torch import _tensors
from ronda.torch.c10d import Work, group_of
from ronda.types import ReduceOp, Wire

_numbers = itertools.count()


class CompressionState:
    """The format in which the buckets of a DDP module are sent, and whether gradients have
    overflowed.

    Every rank must create its states in the same order, because a state's number is part of its
    bucket names.
    """

    def __init__(
        self,
        process_group: Any = None,
        wire: Wire = Wire.BF16,
        error_feedback: bool = False,
        detect_overflow: bool = False,
    ) -> None:
        """
        Args:
            process_group: the DDP module's group, which must have the backend "ronda". None means
                the default group.
            wire: the format of the elements between ranks.
            error_feedback: if true, rounding errors are added to this rank's next gradients.
            detect_overflow: must be true if the program calls found_inf().

        Raises:
            ValueError: the group belongs to a different backend.
        """
        c10d: Any = dist.distributed_c10d
        group = c10d._get_default_group() if process_group is None else process_group
        self.process_set = group_of(group).process_set
        self.wire = wire
        self.error_feedback = error_feedback
        self.detect_overflow = detect_overflow
        self._prefix = f"ddp/{next(_numbers)}"
        self._handles: list[tuple[Work, int]] = []

    def found_inf(self) -> bool:
        """Returns whether an averaged gradient of the last backward pass has an infinity or a NaN.

        All ranks get the same answer, so that either all ranks skip the step or no rank skips it.
        """
        found = False
        for work, handle in self._handles:
            work.wait()
            found = native.found_inf(handle) or found
        return found

    def _submit(self, bucket: Any) -> Work:
        buffer = bucket.buffer()
        name = f"{self._prefix}/{bucket.index()}"
        arguments = _tensors.allreduce_arguments(
            name,
            buffer,
            buffer,
            int(ReduceOp.AVERAGE),
            wire=int(self.wire),
            process_set=self.process_set,
            error_feedback=self.error_feedback,
            detect_overflow=self.detect_overflow,
        )
        handle = native.allreduce_async(*arguments)
        work = Work(name, [handle], [buffer])
        if self.detect_overflow:
            if bucket.index() == 0:
                self._handles.clear()
            self._handles.append((work, handle))
        return work


def _only(future: Any) -> torch.Tensor:
    tensor: torch.Tensor = future.value()[0]
    return tensor


def compressed_allreduce(state: CompressionState, bucket: GradBucket) -> Future[torch.Tensor]:
    """The hook, which averages a bucket over the ranks and sends it in `state`'s format."""
    future: Future[torch.Tensor] = state._submit(bucket).get_future().then(_only)
    return future
