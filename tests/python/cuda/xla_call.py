# SPDX-License-Identifier: Apache-2.0

"""Calls Ronda's handlers as XLA does, without JAX and without a GPU.

jaxlib documents the frames and the table of functions in xla/ffi/api/c_api.h, version 0.3. The GPU
is the tests' fake CUDA, whose streams are threads that pause at random.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import os
import pathlib
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

_FAKES = pathlib.Path("tests/testing").resolve()
_PLUGIN = str(_FAKES / "fake_cuda" / "libfake_cuda.so")

os.environ.setdefault("RONDA_CUDA_PLUGIN", _PLUGIN)
os.environ.setdefault("RONDA_NCCL_LIBRARY", str(_FAKES / "fake_nccl" / "libfake_nccl.so"))
os.environ.setdefault("FAKE_CUDA_DEVICES", "3")
os.environ.setdefault("FAKE_CUDA_DELAY_SEED", "1")

from ronda import _native  # noqa: E402
from ronda._xla import Kind  # noqa: E402

MINOR = 3
FLOAT32, INT32, COMPLEX64 = 11, 4, 15  # of XLA_FFI_DataType


# -- Structs --

_Pointer = ctypes.c_void_p
_HEAD: list[tuple[str, Any]] = [("struct_size", ctypes.c_size_t), ("extensions", _Pointer)]


class _Sized(ctypes.Structure):
    """A C struct whose first field is the size of the struct."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class _Buffer(_Sized):
    _fields_ = [
        *_HEAD,
        ("dtype", ctypes.c_int),
        ("data", _Pointer),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    ]


class _Text(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]


class _Scalar(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("value", _Pointer)]


class _Array(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("size", ctypes.c_size_t), ("data", _Pointer)]


class _Values(_Sized):
    _fields_ = [*_HEAD, ("size", ctypes.c_int64), ("types", _Pointer), ("values", _Pointer)]


class _Attributes(_Sized):
    _fields_ = [
        *_HEAD,
        ("size", ctypes.c_int64),
        ("types", _Pointer),
        ("names", _Pointer),
        ("values", _Pointer),
    ]


class _ErrorArgs(_Sized):
    _fields_ = [*_HEAD, ("message", ctypes.c_char_p), ("code", ctypes.c_int)]


class _StreamArgs(_Sized):
    _fields_ = [*_HEAD, ("context", _Pointer), ("stream", _Pointer)]


_ErrorCreate = ctypes.CFUNCTYPE(_Pointer, ctypes.POINTER(_ErrorArgs))
_StreamGet = ctypes.CFUNCTYPE(_Pointer, ctypes.POINTER(_StreamArgs))


class _Version(_Sized):
    _fields_ = [*_HEAD, ("major", ctypes.c_int), ("minor", ctypes.c_int)]


class _Api(_Sized):
    _fields_ = [
        *_HEAD,
        ("version", _Version),
        ("internal", _Pointer),
        ("error_create", _ErrorCreate),
        ("error_and_registration", _Pointer * 3),
        ("stream_get", _StreamGet),
        ("types_state_memory_and_threads", _Pointer * 8),
        ("futures", _Pointer * 3),
        ("run_id_and_device", _Pointer * 2),
    ]


class _Frame(_Sized):
    _fields_ = [
        *_HEAD,
        ("api", ctypes.POINTER(_Api)),
        ("context", _Pointer),
        ("stage", ctypes.c_int),
        ("args", _Values),
        ("results", _Values),
        ("attributes", _Attributes),
        ("future", _Pointer),
    ]


_Handler = ctypes.CFUNCTYPE(_Pointer, ctypes.POINTER(_Frame))
_EXECUTE = 3
_BUFFER = 1
_ARRAY, _SCALAR, _STRING = 1, 3, 4
_INT64, _FLOAT64 = 5, 12


class Tensor:
    """An argument or a result of a call: elements of 4 bytes at an address."""

    def __init__(self, address: int, shape: Sequence[int], dtype: int = FLOAT32) -> None:
        self.address, self.shape, self.dtype = address, tuple(shape), dtype


class TooMany:
    """An attribute that claims to be an array with more numbers than memory can hold."""


class Xla:
    """Calls the handler for a platform as XLA does. A call's context is the number of its stream.

    gives_streams: whether the handler gets a stream when it asks for one, or an error.
    """

    def __init__(self, platform: str) -> None:
        capsule = _native.xla_handlers(MINOR)[platform]
        pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_of.restype, pointer_of.argtypes = _Pointer, [ctypes.py_object, ctypes.c_char_p]
        self.gives_streams = True
        self._errors: list[str] = []
        self._handler = _Handler(pointer_of(capsule, None))
        self._api = _Api(
            version=_Version(major=0, minor=MINOR),
            error_create=_ErrorCreate(self._create_error),
            stream_get=_StreamGet(self._get_stream),
        )

    def call(
        self,
        kind: Kind,
        arguments: Sequence[Tensor],
        results: Sequence[Tensor],
        stream: int,
        ticket: tuple[int, int] = (0, 0),
        **attributes: Any,
    ) -> str | None:
        """Calls the handler. Returns the text of the handler's error, or None.

        ticket: the addresses of the two tickets, which are the call's last argument and last
            result.
        """
        kept: list[Any] = []
        given = {**_DEFAULTS, **attributes, "kind": int(kind)}
        frame = _Frame(
            api=ctypes.pointer(self._api),
            context=stream,
            stage=_EXECUTE,
            args=_values([*arguments, Tensor(ticket[0], (), INT32)], kept),
            results=_values([*results, Tensor(ticket[1], (), INT32)], kept),
            attributes=_attributes(given, kept),
        )
        error = self._handler(ctypes.byref(frame))
        assert frame.future is None
        return None if error is None else self._errors[error - 1]

    def _error(self, text: str) -> int:
        self._errors.append(text)
        return len(self._errors)

    def _create_error(self, args: Any) -> int:
        return self._error(args.contents.message.decode())

    def _get_stream(self, args: Any) -> int | None:
        if not self.gives_streams:
            return self._error("XLA's own words")
        args.contents.stream = args.contents.context
        return None


_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("op", "wire", "peer", "tag", "error_feedback", "grouped", "process_set"), 0),
    "prescale": 1.0,
    "postscale": 1.0,
    "splits": (),
    "received": (),
    "names": "",
    "where": "the test",
}


def _pointers(objects: Sequence[Any], kept: list[Any]) -> int:
    array = (_Pointer * len(objects))(*map(ctypes.addressof, objects))
    kept += [*objects, array]
    return ctypes.addressof(array)


def _numbers(kind: Any, numbers: Sequence[Any], kept: list[Any]) -> Any:
    array = (kind * len(numbers))(*numbers)
    kept.append(array)
    return array


def _values(tensors: Sequence[Tensor], kept: list[Any]) -> _Values:
    buffers = [
        _Buffer(
            dtype=each.dtype,
            data=each.address,
            rank=len(each.shape),
            dims=_numbers(ctypes.c_int64, each.shape, kept),
        )
        for each in tensors
    ]
    types = _numbers(ctypes.c_int, [_BUFFER] * len(buffers), kept)
    return _Values(
        size=len(buffers), types=ctypes.addressof(types), values=_pointers(buffers, kept)
    )


def _attributes(given: dict[str, Any], kept: list[Any]) -> _Attributes:
    kinds, values = zip(*(_attribute(given[name], kept) for name in sorted(given)))
    names = [_Text(name.encode(), len(name)) for name in sorted(given)]
    types = _numbers(ctypes.c_int, kinds, kept)
    return _Attributes(
        size=len(names),
        types=ctypes.addressof(types),
        names=_pointers(names, kept),
        values=_pointers(values, kept),
    )


def _attribute(value: Any, kept: list[Any]) -> tuple[int, Any]:
    if isinstance(value, str):
        return _STRING, _Text(value.encode(), len(value.encode()))
    if isinstance(value, (int, float)):
        kind, dtype = (
            (ctypes.c_int64, _INT64) if isinstance(value, int) else (ctypes.c_double, _FLOAT64)
        )
        return _SCALAR, _Scalar(dtype, ctypes.addressof(_numbers(kind, [value], kept)))
    if isinstance(value, TooMany):
        return _ARRAY, _Array(_INT64, 1 << 58, 0)
    array = _numbers(ctypes.c_int64, value, kept)
    return _ARRAY, _Array(_INT64, len(value), ctypes.addressof(array))


# -- The device --

# The first functions in the struct ronda_cuda_plugin, in the struct's order
# (runtime/cuda/plugin.h).
_FUNCTIONS = (
    "library",
    "error_text",
    "device_count",
    "describe",
    "use_device",
    "current_device",
    "restore_device",
    "prepare_device",
    "device_of",
    "allocate",
    "release",
    "sharing_unit",
    "allocate_shared",
    "map_shared",
    "unmap_shared",
    "register_host",
    "unregister_host",
    "create_stream",
)
_PLUGIN_VERSION = 6


class _Table(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), *[(name, _Pointer) for name in _FUNCTIONS]]


_Work = ctypes.CFUNCTYPE(None, _Pointer)


class Device:
    """A device of the fake CUDA, which one thread uses."""

    def __init__(self, ordinal: int) -> None:
        self._library = ctypes.CDLL(_PLUGIN, mode=ctypes.RTLD_GLOBAL)
        self._library.ronda_cuda_plugin_table.restype = ctypes.POINTER(_Table)
        self._table = self._library.ronda_cuda_plugin_table().contents
        assert self._table.version == _PLUGIN_VERSION, "compare _FUNCTIONS with plugin.h"
        self._library.fake_cuda_view.restype = _Pointer
        self._library.fake_cuda_view.argtypes = [_Pointer]
        self._library.fake_cuda_enqueue.argtypes = [_Pointer, _Work, _Pointer]
        self._kept: list[Any] = []  # streams may still call them
        self._call("use_device", [ctypes.c_int], ordinal)

    def _call(self, name: str, types: list[Any], *arguments: Any) -> None:
        function = ctypes.CFUNCTYPE(ctypes.c_int, *types)(getattr(self._table, name))
        assert function(*arguments) == 0, name

    def stream(self) -> int:
        """Creates a stream."""
        found = _Pointer()
        self._call("create_stream", [ctypes.POINTER(_Pointer)], ctypes.byref(found))
        assert found.value is not None
        return found.value

    def tensor(self, *shape: int, dtype: int = FLOAT32) -> Tensor:
        """Allocates an array in which each element is -1."""
        found = _Pointer()
        count = _count(shape)
        types = [ctypes.c_int, ctypes.c_size_t, ctypes.POINTER(_Pointer)]
        self._call("allocate", types, 0, max(4 * count, 4), ctypes.byref(found))
        assert found.value is not None
        self._write(found.value, [-1.0] * count)
        return Tensor(found.value, shape, dtype)

    def enqueue(self, stream: int, work: Callable[[], None]) -> None:
        """Enqueues work on the stream, which runs after all earlier work."""
        function = _Work(lambda _: work())
        self._kept.append(function)
        assert self._library.fake_cuda_enqueue(stream, function, None) == 0

    def hold(self, stream: int) -> threading.Event:
        """Blocks the stream until the event is set."""
        event = threading.Event()
        self.enqueue(stream, lambda: _wait(event))
        return event

    def fill(self, stream: int, tensor: Tensor, values: Sequence[float]) -> None:
        """Makes the stream fill the array with the values, repeated as often as needed."""
        count = _count(tensor.shape)
        every = (list(values) * count)[:count]
        self.enqueue(stream, lambda: self._write(tensor.address, every))

    def read(self, stream: int, tensor: Tensor) -> concurrent.futures.Future[list[float]]:
        """Makes the stream read the array."""
        found: concurrent.futures.Future[list[float]] = concurrent.futures.Future()

        def copy() -> None:
            size = 4 * _count(tensor.shape)
            content = ctypes.string_at(self._library.fake_cuda_view(tensor.address), size)
            found.set_result(list(struct.unpack(f"{size // 4}f", content)))

        self.enqueue(stream, copy)
        return found

    def _write(self, address: int, values: Sequence[float]) -> None:
        content = struct.pack(f"{len(values)}f", *values)
        ctypes.memmove(self._library.fake_cuda_view(address), content, len(content))


def _count(shape: Sequence[int]) -> int:
    count = 1
    for each in shape:
        count *= each
    return count


def _wait(event: threading.Event) -> None:
    assert event.wait(200), "the test has not let the stream go on"
