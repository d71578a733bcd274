# SPDX-License-Identifier: Apache-2.0

"""Reductions in graphs that TensorFlow runs without Python.

The operation RondaAllreduce and its kernel are in the extension module (_native_tensorflow.c). It
looks up TensorFlow's C API at run time, in the library that TensorFlow has loaded.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import tensorflow as tf

from ronda._library import native
from ronda._reduction import Reduction
from ronda.process_sets import global_process_set
from ronda.types import DType

_OPERATION = "RondaAllreduce"
_DTYPES = frozenset(dtype.name.lower() for dtype in DType)


def _register() -> bool:
    # The flags are ["-L/folder", "-l:libtensorflow_framework.so.2"], or empty if TensorFlow has no
    # such library.
    flags = {flag[:2]: flag[2:].lstrip(":") for flag in tf.sysconfig.get_link_flags()}
    if set(flags) != {"-L", "-l"}:
        return False
    return native.register_tensorflow(f"{flags['-L']}/{flags['-l']}")


# Registers the operation at import, and not at its first use, because tf.saved_model.load() needs
# it too.
are_registered = _register()


def can_reduce(tensors: Sequence[tf.Tensor], reduction: Reduction) -> bool:
    """Returns whether the kernel supports a reduction.

    The kernel reduces only over all ranks, because a graph may outlive its job, and the id of a
    process set changes from job to job. Another function rejects element types that Ronda does not
    support.
    """
    return (
        are_registered
        and reduction.process_set is global_process_set
        and all(tensor.dtype.name in _DTYPES for tensor in tensors)
    )


def reduce(
    graph: tf.Graph, name: str, tensors: Sequence[tf.Tensor], reduction: Reduction
) -> tf.Operation:
    """Adds the operation RondaAllreduce to a graph. The operation's outputs are the results, with
    their static shapes.
    """
    types = [tensor.dtype.as_datatype_enum for tensor in tensors]
    numbers = {
        "op": int(reduction.op),
        "wire": int(reduction.wire),
        "prescale": _bits_of(reduction.prescale),
        "postscale": _bits_of(reduction.postscale),
    }
    value = tf.compat.v1.AttrValue
    attributes = {name: value(i=number) for name, number in numbers.items()}
    attributes["T"] = value(list=value.ListValue(type=types))
    attributes["tensor_name"] = value(s=name.encode())
    return graph.create_op(_OPERATION, list(tensors), attrs=attributes, name=_OPERATION)


def _bits_of(number: float) -> int:
    """Returns the bits of a double as an integer, for an integer attribute. TensorFlow's
    floating-point attributes have only 32 bits.
    """
    bits: int = struct.unpack("=q", struct.pack("=d", number))[0]
    return bits
