# SPDX-License-Identifier: Apache-2.0

"""Sends Python objects, in pickled form, between ranks."""

from __future__ import annotations

import importlib
import pickle
from typing import Any

from ronda import process_sets
from ronda._library import native
from ronda._refusals import Told
from ronda.handles import OwnedHandle
from ronda.process_sets import ProcessSet, global_process_set


def broadcast_object(
    value: Any = None,
    root: int = 0,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank a copy of root's object; root gets `value` itself.

    Args:
        value: root's object, of any size. Other ranks' values are ignored.

    Raises:
        RondaError: as operations on arrays.
    """
    is_root = native.rank() == root
    set_id = process_sets.id_of(process_set)
    with Told(set_id, name):
        data = dumps(value) if is_root else None
        handle = OwnedHandle(native.broadcast_object_async(name, data, root, set_id))
    native.synchronize(handle.id)
    return value if is_root else pickle.loads(native.output_bytes(handle.id))


def allgather_object(
    value: Any, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Gives every rank copies of all ranks' objects, in rank order.

    The list omits ranks that have called join().

    Raises:
        RondaError: as operations on arrays.
    """
    set_id = process_sets.id_of(process_set)
    with Told(set_id, name):
        data = dumps(value)
        handle = OwnedHandle(native.allgather_object_async(name, data, set_id))
    native.synchronize(handle.id)
    everything = memoryview(native.output_bytes(handle.id))
    values = []
    for size in native.output(handle.id)[2]:
        if size > 0:
            values.append(pickle.loads(everything[:size]))
        everything = everything[size:]
    return values


def dumps(value: Any) -> bytes:
    """Pickles `value`. If cloudpickle is installed, functions and classes of the main program are
    pickled by value, because other ranks cannot import them.
    """
    try:
        pickler: Any = importlib.import_module("cloudpickle")
    except ImportError:
        pickler = pickle
    data: bytes = pickler.dumps(value)
    return data
