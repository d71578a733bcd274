# SPDX-License-Identifier: Apache-2.0

"""Describes Paddle's tensors for the C ABI by dtype, shape and address. The tensors must be dense,
row-major and in host memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ronda._library import native
from ronda.handles import Handle
from ronda.types import DType


def description(tensor: Any, what: str) -> tuple[int, tuple[int, ...], int]:
    """Returns the DType, the shape and the address of a tensor.

    Args:
        tensor: a Paddle tensor.
        what: the description of the tensor in error texts.

    Raises:
        ValueError: Ronda does not support such a tensor.
    """
    if not tensor.is_dense():
        raise ValueError(f"{what} is sparse: build its layer with sparse=False")
    if not tensor.place.is_cpu_place():
        raise ValueError(
            f"{what} is on {tensor.place}: ronda.paddle is for tensors in host memory, so call"
            ' paddle.set_device("cpu") first'
        )
    if not tensor.is_contiguous():
        raise ValueError(f"{what} is not contiguous: use tensor.contiguous()")
    name = str(tensor.dtype).removeprefix("paddle.").upper()
    if name not in DType.__members__:
        raise ValueError(f"{what} is of {tensor.dtype}, which Ronda does not know")
    return int(DType[name]), tuple(tensor.shape), tensor.data_ptr()


def broadcast(named: Iterable[tuple[str, Any]], root: int) -> None:
    """Copies the root's tensors to all ranks, in place.

    Args:
        named: names and tensors. Names, shapes and dtypes must be the same on every rank.
        root: the rank whose tensors are copied.

    Raises:
        RondaError: the ranks disagree, or one has failed.
        ValueError: Ronda does not support one of the tensors.
    """
    handles = []
    for name, tensor in named:
        dtype, shape, address = description(tensor, name)
        id = native.broadcast_async(f"fleet.{name}", dtype, shape, address, tensor, root)
        handles.append(Handle(id, lambda _: None))
    for handle in handles:
        handle.wait()
