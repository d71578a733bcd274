# SPDX-License-Identifier: Apache-2.0

"""Makes collectives appear in torch.profiler as events with shapes, for example "ronda:all_reduce".

An event begins when the collective is submitted, and ends when the collective ends, on any thread.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import profiler

from ronda.torch.c10d import _versions

_autograd: Any = getattr(torch._C, "_autograd", torch.autograd)
_torch_autograd: Any = torch.autograd
is_on: Callable[[], bool] = getattr(
    _autograd, "_profiler_enabled", _torch_autograd._profiler_enabled
)

# A separate thread ends the events, so that torch treats them as events of asynchronous operations.
_ending = concurrent.futures.ThreadPoolExecutor(1, "ronda-profile")


def begin(what: str, tensors: Sequence[torch.Tensor]) -> Callable[[], None]:
    """Begins the event of a collective.

    Args:
        what: the collective's name in torch, for example "all_reduce".
        tensors: the collective's inputs. Versions of torch before 2.15 do not record the shapes of
            the inputs.

    Returns:
        A function that ends the event.
    """
    name = f"ronda:{what}"
    if _versions.HAS_BACKENDS:
        event = torch._C._profiler._RecordFunctionFast(name, list(tensors))
        event.__enter__()
        return lambda: _ending.submit(event.__exit__, None, None, None).result()
    ended: Any = torch.futures.Future()
    record: Any = profiler.record_function(name)
    record.__enter__()
    record._call_end_callbacks_on_future(ended)
    return lambda: _ending.submit(ended.set_result, None).result()
