# SPDX-License-Identifier: Apache-2.0

"""Futures whose value C++ code accepts as a list of tensors.

A future that Python completes holds a Python object. DDP's built-in FP16 hook is C++ code, and
requires a C++ list of tensors. A TorchScript function can return such a list.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, List  # noqa: UP035  TorchScript reads these annotations

import torch
from torch.futures import Future


# TorchScript cannot read the value of the future `ended`, so `error` has the error's text, as
# bytes.
def _tensors_or_error(
    tensors: List[torch.Tensor],  # noqa: UP006
    error: torch.Tensor,
    ended: Future[torch.Tensor],
) -> List[torch.Tensor]:  # noqa: UP006
    torch.jit.wait(ended)
    if error.numel() > 0:
        text = ""
        for i in range(error.numel()):
            text += chr(int(error[i]))
        raise RuntimeError(text)
    return tensors


@functools.cache
def _start() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # deprecated without a replacement
        return _compiled()


def _compiled() -> Any:
    scripted = torch.jit.script(_tensors_or_error)

    def start(
        tensors: List[torch.Tensor],  # noqa: UP006
        error: torch.Tensor,
        ended: Future[torch.Tensor],
    ) -> Future[List[torch.Tensor]]:  # noqa: UP006
        return torch.jit.fork(scripted, tensors, error, ended)

    return torch.jit.script(start)


class TypedPromise:
    """A future, and the object that completes it. torch's Future has both roles."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._error = torch.empty(0, dtype=torch.uint8)
        self._ended: Future[Any] = Future()
        self.future: Future[Any] = _start()(tensors, self._error, self._ended)

    def set_result(self, result: Any) -> None:
        """Completes the future with the tensors, unless `result` is an error."""
        if isinstance(result, Exception):
            text = f"{type(result).__name__}: {result}".encode("ascii", "replace")
            self._error.resize_(len(text)).copy_(torch.tensor(list(text), dtype=torch.uint8))
        self._ended.set_result(torch.empty(0))
