# SPDX-License-Identifier: Apache-2.0

"""The facts about a Paddle tensor that the C ABI needs: dtype, shape, address. Tensors are dense,
row-major and in host memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ronda._library import native
from ronda.handles import Handle
from ronda.types import DType


def description(tensor: Any, what: str) -> tuple[int, tuple[int, ...], int]:
    """The DType, the shape and the address.

    Args:
        tensor: of Paddle.
        what: its description in errors.

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
        named: the same names, shapes and dtypes on every rank.
        root: the rank.

    Raises:
        RondaError: the ranks disagree, or one has failed.
        ValueError: Ronda does not support a tensor.
    """
    handles = []
    for name, tensor in named:
        dtype, shape, address = description(tensor, name)
        id = native.broadcast_async(f"fleet.{name}", dtype, shape, address, tensor, root)
        handles.append(Handle(id, lambda _: None))
    for handle in handles:
        handle.wait()
