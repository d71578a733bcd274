# SPDX-License-Identifier: Apache-2.0

"""Describes the arrays of any library by the address, the type and the shape that the C ABI needs.

The module accepts NumPy arrays and objects with the buffer protocol (bytearray, array.array,
memoryview, mmap). It also accepts objects with DLPack in host memory or on a CUDA device (PyTorch
tensors, JAX and CuPy arrays), and objects with the CUDA array interface (Numba arrays). It imports
none of these libraries.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import sys
from typing import Any, NamedTuple

from ronda._in_flight import Span
from ronda.errors import InvalidArgumentError
from ronda.types import DType

Shape = tuple[int, ...]


# Special values of Buffer.stream: the legacy default stream, and no stream to wait for.
_DEFAULT_STREAM = 0
_NO_STREAM = -1
# The number of the legacy default stream in DLPack and the CUDA array interface.
_LEGACY = 1


class Buffer(NamedTuple):
    """Row-major memory. `keep` keeps the owner of the memory alive.

    `stream` is None for host memory. On a CUDA device, `stream` is a cudaStream_t as a number: the
    memory is ready after the work already enqueued on that stream. If `stream` is -1, the memory is
    ready at once.
    """

    dtype: int
    shape: Shape
    address: int
    byte_count: int
    is_writable: bool
    keep: object
    stream: int | None = None

    def span(self, is_written: bool) -> Span:
        """Returns this buffer's address range, for an operation that reads or writes it."""
        return Span(self.address, self.address + self.byte_count, is_written)


def _kind_and_size(name: str) -> tuple[str, int]:
    """Returns the type's kind in NumPy's array interface ("" if NumPy has no such type), and its
    element size in bytes.
    """
    family = name.rstrip("0123456789")
    kind = {"bool": "b", "uint": "u", "int": "i", "float": "f"}.get(family, "")
    return kind, int(name[len(family) :] or 8) // 8


# The name of each DType in NumPy or ml_dtypes.
_NAMES: dict[int, str] = {dtype: dtype.name.lower() for dtype in DType}

# The DTypes that NumPy itself has, by kind and element size in bytes.
_DTYPES: dict[tuple[str, int], int] = {
    _kind_and_size(name): dtype for dtype, name in _NAMES.items() if _kind_and_size(name)[0]
}

# The DTypes that only ml_dtypes has, by name.
_OTHERS = {name: dtype for dtype, name in _NAMES.items() if dtype not in _DTYPES.values()}

# The DType and the element size of each NumPy type string, which begins with the byte order.
_NATIVE = "<" if sys.byteorder == "little" else ">"
_TYPESTRS: dict[str, tuple[int, int]] = {
    f"{'|' if size == 1 else _NATIVE}{kind}{size}": (dtype, size)
    for (kind, size), dtype in _DTYPES.items()
}

# The NumPy kind of each format character of the struct module.
_FORMAT_KINDS = {
    "?": "b",
    **dict.fromkeys("BHILQN", "u"),
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("efd", "f"),
}

_SUPPORTED = ", ".join(_NAMES.values())


def buffer_of(value: Any, role: str) -> Buffer:
    """Returns the memory of `value`. Converts numbers and lists to NumPy arrays first.

    Args:
        role: the argument's description in errors: "allreduce: the array".

    Raises:
        InvalidArgumentError: `value` is not an array of numbers in row-major order, in host memory
            or on a CUDA device.
    """
    if _is_array(value):
        if _is_masked(value):
            raise InvalidArgumentError(
                f"{role} is a masked array, and a mask does not travel: pass array.filled(value)"
            )
        return _of_array_interface(value, role)
    if _is_plain(value):
        return _of_array_interface(numpy().asarray(value), role)
    if hasattr(value, "__dlpack__"):
        return _of_dlpack(value, role)
    if hasattr(type(value), "__cuda_array_interface__"):
        return _of_cuda_array_interface(value, role)
    return _of_buffer_protocol(value, role)


def writable_buffer_of(value: Any, role: str) -> Buffer:
    """Like buffer_of(), for memory to which a result is written.

    Raises:
        InvalidArgumentError: as in buffer_of(), or the memory is read-only.
    """
    if not _is_array(value) and _is_plain(value):
        raise InvalidArgumentError(f"{role} is a {type(value).__name__}: pass an array")
    buffer = buffer_of(value, role)
    if not buffer.is_writable:
        raise InvalidArgumentError(f"{role} cannot be written to: pass a copy of it")
    return buffer


def stream_of(function: str, array: Buffer, out: Buffer | None = None) -> int | None:
    """Returns the stream on which the buffers become ready, or None for host memory.

    Raises:
        InvalidArgumentError: only one of the buffers is on a device, or their streams differ.
    """
    first, second = array.stream, array.stream if out is None else out.stream
    if first is None and second is None:
        return None
    if first is None or second is None:
        raise InvalidArgumentError(
            f"{function}: the array and out must both be in host memory, or both on a CUDA device"
        )
    streams = {first, second} - {_NO_STREAM}
    if len(streams) > 1:
        raise InvalidArgumentError(
            f"{function}: the array and out belong to different streams: use them on one stream"
        )
    return streams.pop() if streams else _DEFAULT_STREAM


def new_array(shape: Shape, dtype: int) -> tuple[Any, Buffer]:
    """Returns an uninitialized NumPy array, and its memory."""
    array = numpy().empty(shape, _numpy_dtype(dtype))
    return array, _of_array_interface(array, "the result")


def array_at(address: int, shape: Shape, dtype: int, owner: object) -> Any:
    """Returns a NumPy array over memory that `owner` keeps alive."""
    as_numpy = _numpy_dtype(dtype)
    if math.prod(shape) == 0:
        return numpy().empty(shape, as_numpy)
    view = _View()
    view.owner = owner
    view.__array_interface__ = {
        "version": 3,
        "shape": shape,
        "typestr": f"|V{as_numpy.itemsize}",
        "data": (address, False),
    }
    return numpy().asarray(view).view(as_numpy)


def numpy() -> Any:
    """Returns the module numpy.

    Raises:
        InvalidArgumentError: NumPy is not installed.
    """
    try:
        return importlib.import_module("numpy")
    except ImportError:
        raise InvalidArgumentError(
            "results are NumPy arrays, and there is no NumPy: install it, or pass out="
        ) from None


def _is_array(value: Any) -> bool:
    # Checks the class, because each access to an array's attribute creates a new interface object.
    return hasattr(type(value), "__array_interface__") and hasattr(value, "__setitem__")


def _is_masked(value: Any) -> bool:
    """Whether `value` is a numpy.ma array. Checks attributes, because this module does not import
    NumPy.
    """
    return hasattr(type(value), "mask") and hasattr(type(value), "filled")


def _is_plain(value: Any) -> bool:
    """Whether `value` must first be converted to a NumPy array. NumPy scalars must be converted
    too, because the memory in their array interface is temporary.
    """
    return isinstance(value, (int, float, list, tuple)) or hasattr(value, "__array_interface__")


class _View:
    """An object with an array interface, which numpy.asarray() reads."""

    owner: object
    __array_interface__: dict[str, object]


def _numpy_dtype(dtype: int) -> Any:
    name = _NAMES[dtype]
    if name not in _OTHERS:
        return numpy().dtype(name)
    try:
        ml_dtypes = importlib.import_module("ml_dtypes")
    except ImportError:
        raise InvalidArgumentError(
            f"NumPy has no {name} for the result: pass out=, or install ml_dtypes"
        ) from None
    return numpy().dtype(getattr(ml_dtypes, name))


def _dtype_of(kind: str, size: int, name: object, role: str) -> int:
    dtype = _DTYPES.get((kind, size))
    if dtype is None:
        raise InvalidArgumentError(f"{role} has elements of type {name}: Ronda has {_SUPPORTED}")
    return dtype


def _check_contiguous(is_contiguous: bool, role: str) -> None:
    if not is_contiguous:
        raise InvalidArgumentError(
            f"{role} is not contiguous in row-major order: "
            "pass a copy, such as numpy.ascontiguousarray(array)"
        )


def _is_row_major(shape: Shape, strides: Shape | None) -> bool:
    """Args: strides: in elements, not bytes."""
    if strides is None or math.prod(shape) == 0:
        return True
    expected = 1
    for count, stride in zip(reversed(shape), reversed(strides)):
        if count != 1 and stride != expected:
            return False
        expected *= count
    return True


def _of_array_interface(array: Any, role: str) -> Buffer:
    return _of_interface(array, array.__array_interface__, role)


def _of_cuda_array_interface(array: Any, role: str) -> Buffer:
    interface = array.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise InvalidArgumentError(f"{role} has a mask, which does not travel")
    # A "stream" of None means that no synchronization is needed. Versions of the interface before 3
    # have no "stream".
    stream = interface.get("stream", _LEGACY)
    if stream is None:
        stream = _NO_STREAM
    elif stream == _LEGACY:
        stream = _DEFAULT_STREAM
    return _of_interface(array, interface, role)._replace(stream=stream)


def _of_interface(array: Any, interface: dict[str, Any], role: str) -> Buffer:
    typestr = interface["typestr"]
    dtype, size = _TYPESTRS.get(typestr) or _of_unusual_type(array, typestr, role)
    shape = interface["shape"]
    strides = interface.get("strides")
    if strides is not None:
        in_elements = tuple(stride // size if stride % size == 0 else 0 for stride in strides)
        _check_contiguous(_is_row_major(shape, in_elements), role)
    address, is_read_only = interface["data"]
    return Buffer(dtype, shape, address, math.prod(shape) * size, not is_read_only, array)


def _of_unusual_type(array: Any, typestr: str, role: str) -> tuple[int, int]:
    """Returns the DType and the size of the elements."""
    name = getattr(getattr(array, "dtype", None), "name", typestr)
    if name in _OTHERS:
        return _OTHERS[name], array.dtype.itemsize
    if _NATIVE + typestr[1:] in _TYPESTRS:
        raise InvalidArgumentError(
            f"{role} is of another byte order ({typestr}): pass it in this machine's"
        )
    raise InvalidArgumentError(f"{role} has elements of type {name}: Ronda has {_SUPPORTED}")


class _PyBuffer(ctypes.Structure):
    """The struct Py_buffer, which has been in the stable ABI since Python 3.11, and had the same
    layout before.
    """

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


def _of_buffer_protocol(value: Any, role: str) -> Buffer:
    try:
        view = memoryview(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{role} is a {type(value).__name__}, and no array of numbers "
            f"with the buffer protocol or DLPack ({error})"
        ) from None
    _check_contiguous(view.c_contiguous, role)
    element = view.format.lstrip("@=<") if sys.byteorder == "little" else view.format.lstrip("@=>")
    dtype = _dtype_of(_FORMAT_KINDS.get(element, ""), view.itemsize, view.format, role)
    # `view` keeps the memory from moving, so the second view can be released as soon as its address
    # has been read.
    raw = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(raw), 0)
    address = raw.buf or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(raw))
    return Buffer(dtype, tuple(view.shape or ()), address, view.nbytes, not view.readonly, view)


class _DlTensor(ctypes.Structure):
    """The struct DLTensor, which is the first field of the struct in a DLPack capsule."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DL_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
_DL_BFLOAT16 = 4
_DL_HOST_DEVICES = (1, 3, 11)  # plain, pinned by CUDA, pinned by ROCm
_DL_CUDA_DEVICES = (2, 13)  # of the device, managed
# These libraries never change an array, but their capsules do not say that the memory is read-only.
_IMMUTABLE = ("jax", "jaxlib", "tensorflow")

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _of_dlpack(value: Any, role: str) -> Buffer:
    device = value.__dlpack_device__()[0]
    if device not in _DL_HOST_DEVICES + _DL_CUDA_DEVICES:
        raise InvalidArgumentError(
            f"{role} is neither in host memory nor on a CUDA device (DLPack's device "
            f"{int(device)}): pass a copy"
        )
    stream = _DEFAULT_STREAM if device in _DL_CUDA_DEVICES else None
    try:
        # The library that owns the memory makes the given stream wait for the work that fills it.
        capsule = value.__dlpack__() if stream is None else value.__dlpack__(stream=_LEGACY)
    except (BufferError, RuntimeError, TypeError) as error:
        raise InvalidArgumentError(f"{role}: {error}") from None
    # Ronda keeps the capsule and does not mark it as used: its destructor then releases the memory.
    tensor = _DlTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    _check_contiguous(_is_row_major(shape, strides), role)
    size = tensor.bits // 8
    if tensor.code == _DL_BFLOAT16 and size == 2:
        dtype: int = DType.BFLOAT16
    else:
        dtype = _dtype_of(
            _DL_KINDS.get(tensor.code, ""),
            size,
            f"{tensor.code}, {tensor.bits} bits in DLPack",
            role,
        )
    address = (tensor.data or 0) + tensor.byte_offset
    is_writable = type(value).__module__.partition(".")[0] not in _IMMUTABLE
    size_in_bytes = math.prod(shape) * size
    return Buffer(dtype, shape, address, size_in_bytes, is_writable, (value, capsule), stream)
