# SPDX-License-Identifier: Apache-2.0

"""Runs collectives outside of jit on arrays in host memory, without a compiled program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ronda import exchanges, reductions
from ronda._library import native
from ronda._xla import Kind
from ronda.errors import InvalidArgumentError, MismatchError
from ronda.handles import Handle
from ronda.jax._call import DTYPES, Call


def run(*arrays: Any, call: Call) -> list[jax.Array]:
    """Runs the call, and waits until it has completed.

    Raises:
        RondaError: the operation's error.
    """
    if call.kind == Kind.BARRIER:
        jax.block_until_ready(arrays)  # programs on a GPU may still compute them
        native.monitored_barrier(call.process_set)
        return [jnp.asarray(each) for each in arrays]
    sources = [_in_host_memory(each, call) for each in arrays]
    if call.kind == Kind.RECV:
        sources = [np.empty(shape, _carrier(dtype)) for shape, dtype in call.received]
    if call.grouped:
        handles = reductions.grouped_allreduce_async(sources, name=call.name, **_reduction(call))
    else:
        handles = [_START[call.kind](call, i, source) for i, source in enumerate(sources)]
    results = [handle.wait() for handle in handles]
    if call.kind == Kind.SEND:
        return [jnp.asarray(each) for each in arrays]
    if call.splits:
        results = [_checked_rows(call, *result) for result in results]
    return [
        jnp.asarray(result.view(dtype)) for result, (_, dtype) in zip(results, call.results(arrays))
    ]


def is_on_gpu(arrays: Sequence[Any]) -> bool:
    """Returns whether the arrays of a call are in GPU memory. For a call without arrays, which is a
    recv(), checks JAX's first device, where the results will be.
    """
    devices = [each.devices() for each in arrays if isinstance(each, jax.Array)]
    platforms = {device.platform for device in set().union(*devices)}
    return "gpu" in platforms or (not arrays and jax.default_backend() == "gpu")


def _carrier(dtype: Any) -> np.dtype[Any]:
    """Returns the NumPy type in which Ronda sends elements of this dtype."""
    name = np.dtype(dtype).name
    return np.dtype(np.uint8 if DTYPES[name].name.lower() != name else dtype)


def _in_host_memory(array: Any, call: Call) -> np.ndarray[Any, Any]:
    devices = array.devices() if isinstance(array, jax.Array) else set()
    if len(devices) > 1 or any(device.platform != "cpu" for device in devices):
        places = ", ".join(sorted(map(str, devices)))
        raise InvalidArgumentError(
            f"{call.kind.name.lower()}: an array is on {places}: ronda.jax is for arrays on one CPU"
            ' or one GPU of NVIDIA: call jax.config.update("jax_platforms", "cpu"), or start with'
            " JAX_PLATFORMS=cpu"
        )
    host = np.ascontiguousarray(array).reshape(np.shape(array))
    return host.view(_carrier(host.dtype))


def _name(call: Call, index: int) -> str | None:
    return None if call.name is None else call.name + call.labels[index]


def _reduction(call: Call) -> dict[str, Any]:
    return {
        "op": call.op,
        "compression": call.wire,
        "prescale": call.prescale,
        "postscale": call.postscale,
        "process_set": call.process_set,
    }


def _allreduce(call: Call, index: int, source: Any) -> Handle:
    return reductions.allreduce_async(
        source,
        name=_name(call, index),
        error_feedback=call.error_feedback,
        **_reduction(call),
    )


def _reducescatter(call: Call, index: int, source: Any) -> Handle:
    return reductions.reducescatter_async(source, name=_name(call, index), **_reduction(call))


def _allgather(call: Call, index: int, source: Any) -> Handle:
    return exchanges.allgather_async(source, name=_name(call, index), process_set=call.process_set)


def _alltoall(call: Call, index: int, source: Any) -> Handle:
    return exchanges.alltoall_async(
        source,
        splits=call.splits or None,
        name=_name(call, index),
        process_set=call.process_set,
    )


def _checked_rows(call: Call, rows: Any, counts: list[int]) -> Any:
    """Returns the rows that an alltoall with splits has received."""
    if tuple(counts) != call.received_splits:
        raise MismatchError(
            f"alltoall at {call.where}: the ranks have sent {counts} rows, but received_splits is"
            f" {list(call.received_splits)}: pass what each rank sends to this one"
        )
    return rows


def _broadcast(call: Call, index: int, source: Any) -> Handle:
    return exchanges.broadcast_async(
        source, call.peer, name=_name(call, index), process_set=call.process_set
    )


def _message(submit: Callable[..., Handle]) -> Callable[[Call, int, Any], Handle]:
    def start(call: Call, index: int, source: Any) -> Handle:
        return submit(source, call.peer, tag=call.tag, process_set=call.process_set)

    return start


_START: dict[Kind, Callable[[Call, int, Any], Handle]] = {
    Kind.ALLREDUCE: _allreduce,
    Kind.REDUCESCATTER: _reducescatter,
    Kind.ALLGATHER: _allgather,
    Kind.ALLTOALL: _alltoall,
    Kind.BROADCAST: _broadcast,
    Kind.SEND: _message(exchanges.send_async),
    Kind.RECV: _message(exchanges.recv_async),
}
