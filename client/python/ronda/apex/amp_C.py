# SPDX-License-Identifier: Apache-2.0

"""Replaces Apex's extension module amp_C. The operations that programs call are implemented with
torch's foreach operations.

Each operation takes a flag, which is a tensor with one integer. If a value is not finite, the
operation sets the flag to 1; otherwise it does not change the flag. Operations on 16-bit tensors
compute in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ronda.apex._loss_scale import are_finite

__all__ = ["multi_tensor_axpby", "multi_tensor_l2norm", "multi_tensor_scale"]

_Lists = Sequence[Sequence[torch.Tensor]]


def __getattr__(name: str) -> None:
    remedy = ""
    if name.startswith("multi_tensor_"):
        remedy = f": it has {', '.join(__all__)}; ronda.apex.optimizers has whole optimizers"
    raise AttributeError(f"module 'ronda.apex.amp_C' has no attribute {name!r}{remedy}")


@torch.no_grad()
def multi_tensor_scale(
    chunk_size: int, noop_flag: torch.Tensor, tensor_lists: _Lists, scale: float
) -> None:
    """Writes inputs times `scale` to outputs.

    Args:
        chunk_size: ignored.
        noop_flag: is set to 1 if an input is not finite.
        tensor_lists: inputs and outputs, which may be the same tensors.
        scale: the factor.

    Raises:
        ValueError: the lists do not match.
    """
    inputs, outputs = _check(tensor_lists, "inputs, outputs")
    if not inputs:
        return
    _set_unless_finite(noop_flag, inputs)
    _write(torch._foreach_mul(_wide(inputs), scale), outputs)


@torch.no_grad()
def multi_tensor_axpby(
    chunk_size: int,
    noop_flag: torch.Tensor,
    tensor_lists: _Lists,
    a: float,
    b: float,
    arg_to_check: int = -1,
) -> None:
    """Writes a * x + b * y to outputs.

    Args:
        chunk_size: ignored.
        noop_flag: is set to 1 if a value that `arg_to_check` selects is not finite.
        tensor_lists: the x, the y and the outputs, which may be the same tensors.
        a: factor of x.
        b: factor of y.
        arg_to_check: 0 for x, 1 for y, -1 for both.

    Raises:
        ValueError: the lists do not match, or `arg_to_check` is none of these values.
    """
    xs, ys, outputs = _check(tensor_lists, "x, y, outputs")
    if arg_to_check not in (-1, 0, 1):
        raise ValueError(f"arg_to_check is {arg_to_check}: it must be -1, 0 or 1")
    if not xs:
        return
    _set_unless_finite(noop_flag, {-1: [*xs, *ys], 0: xs, 1: ys}[arg_to_check])
    sums = torch._foreach_mul(_wide(xs), a)
    torch._foreach_add_(sums, _wide(ys), alpha=b)
    _write(sums, outputs)


@torch.no_grad()
def multi_tensor_l2norm(
    chunk_size: int, noop_flag: torch.Tensor, tensor_lists: _Lists, per_tensor: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes Euclidean norms.

    Args:
        chunk_size: ignored.
        noop_flag: is set to 1 if the norm is not finite.
        tensor_lists: a list with one list of tensors.
        per_tensor: whether to compute the norm of each tensor, too.

    Returns:
        The norm of all tensors together, of shape (1,), and the norm of each tensor, of shape (0,)
        without per_tensor.

    Raises:
        ValueError: `tensor_lists` is not such a list.
    """
    (tensors,) = _check(tensor_lists, "tensors")
    if not tensors:
        return noop_flag.new_zeros(1, dtype=torch.float), noop_flag.new_zeros(0, dtype=torch.float)
    norms = torch.stack(list(torch._foreach_norm(_wide(tensors))))
    norm = norms.norm().reshape(1)
    _set_unless_finite(noop_flag, [norm])
    return norm, norms if per_tensor else norms.new_empty(0)


def _check(tensor_lists: _Lists, names: str) -> list[list[torch.Tensor]]:
    lists = [list(each) for each in tensor_lists]
    count = names.count(",") + 1
    if len(lists) != count or len({len(each) for each in lists}) != 1:
        raise ValueError(
            f"tensor_lists has lists of {', '.join(str(len(each)) for each in lists)} tensors: "
            f"it must be {count} of one length ({names})"
        )
    return lists


def _wide(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.float() if tensor.element_size() < 4 else tensor for tensor in tensors]


def _write(results: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
    for result, output in zip(results, outputs):
        output.copy_(result)


def _set_unless_finite(flag: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    # Does not branch on the value, because the host would then wait for the GPU.
    flag.masked_fill_(~are_finite(tensors).to(flag.device), 1)
