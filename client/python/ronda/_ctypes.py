# SPDX-License-Identifier: Apache-2.0

"""The C ABI for ctypes: functions, structs, and the arguments of operations."""

from __future__ import annotations

import ctypes
import pathlib
from collections.abc import Callable, Sequence
from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

library = ctypes.CDLL(str(pathlib.Path(__file__).parent / "lib" / "libronda.so.0"))

_MEMORY_CUDA = 1

# -- The C ABI's functions: a letter for each parameter --

_PARAMETERS: dict[str, Any] = {
    "p": c_void_p,
    "h": c_int64,
    "i": c_int,
    "u": c_uint32,
    "z": c_size_t,
    "d": c_double,
    "s": c_char_p,
}

_STATUS_FUNCTIONS = (
    "init:p shutdown: abort:s job_status: make_current:h should_stop:p elastic_reform:p "
    "elastic_sync:hp elastic_poll:p get_place:p get_statistics:p start_timeline:s "
    "stop_timeline: add_process_set:pip create_process_set:pisp remove_process_set:u "
    "process_set_ranks:up process_set_ids:pip allreduce_async:pp reduce_async:pp "
    "reducescatter_async:pp broadcast_async:pp allgather_async:pp gather_async:pp "
    "scatter_async:pp alltoall_async:pp send_async:pp recv_async:pp "
    "broadcast_object_async:pp allgather_object_async:pp sparse_allreduce_async:ppp "
    "grouped_allreduce_async:pzsp grouped_allgather_async:pzsp "
    "grouped_reducescatter_async:pzsp monitored_barrier_async:udp monitored_barrier:ud "
    "join_async:uip remove_process_set_async:up refuse:uss refuse_message:uiiis "
    "allreduce_for:pdp cuda_zero:pzp poll:hp poll_all:pzp synchronize:h synchronize_for:hdp "
    "synchronize_all:pz "
    "synchronize_on_stream_for:hpdp synchronize_on_stream_async:hppp "
    "on_completion:hpp output:hpppp found_inf:hp last_rank:hp source:hp averaged_over:hp release:h "
    "release_on_stream:hp prepare_group:pzsp group_ready:pz group_ready_on_stream:pzpp "
    "group_wait_for:pdp "
    "group_wait_on_stream_for:ppdp group_detach:pp group_found_inf:pp group_release:p"
)

for _declaration in _STATUS_FUNCTIONS.split():
    _name, _, _letters = _declaration.partition(":")
    getattr(library, "ronda_" + _name).argtypes = [_PARAMETERS[letter] for letter in _letters]
library.ronda_version.restype = c_char_p
library.ronda_last_error.restype = c_char_p
library.ronda_current.restype = c_int64
library.ronda_elastic_begin_update.restype = None
library.ronda_elastic_end_update.restype = None
library.ronda_process_set_size.argtypes = [c_uint32]
library.ronda_process_set_rank.argtypes = [c_uint32]


class RankList(Structure):
    _fields_ = (("ranks", POINTER(c_int)), ("count", c_int))


class Options(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("cycle_time_ms", c_double),
        ("fusion_threshold", c_int64),
        ("cache_capacity", c_int64),
        ("stall_warning_s", c_double),
        ("stall_deadline_s", c_double),
        ("start_timeout_s", c_double),
        ("process_sets", POINTER(RankList)),
        ("process_set_count", c_int),
        ("master_address", c_char_p),
        ("secret", c_char_p),
        ("master_port", c_int),
        ("rank", c_int),
        ("size", c_int),
        ("local_rank", c_int),
        ("local_size", c_int),
        ("epoch", c_int64),
    )


class ReformOptions(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("reason", c_char_p),
        ("timeout_s", c_double),
        ("options", c_void_p),
    )


class Source(Structure):
    """ronda_elastic_source."""

    _fields_ = (
        ("struct_size", c_size_t),
        ("step", c_int64),
        ("rank", c_int),
        ("is_snapshot", c_int),
        ("is_behind", c_int),
        ("any_behind", c_int),
    )


class Place(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("launcher", c_int),
        ("rank", c_int),
        ("size", c_int),
        ("local_rank", c_int),
        ("local_size", c_int),
        ("cross_rank", c_int),
        ("cross_size", c_int),
        ("store_port", c_int),
        ("store_address", c_char * 256),
    )


class Statistics(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("reports_sent", c_uint64),
        ("reports_received", c_uint64),
        ("lists_sent", c_uint64),
        ("lists_received", c_uint64),
        ("buckets_agreed", c_uint64),
        ("buckets_scheduled", c_uint64),
        ("schedules_begun", c_uint64),
        ("schedules_left", c_uint64),
        ("own_vetoes", c_uint64),
        ("schedule_rounds", c_uint64),
        ("steps", c_uint64),
        ("tensors", c_uint64),
        ("payload_bytes", c_uint64),
        ("wire_bytes", c_uint64),
        ("bucket_nanoseconds", c_uint64),
        ("tensors_in_flight", c_uint64),
        ("exposed_nanoseconds", c_uint64),
    )


# -- Operations: the fields of their arguments, and their order in a call --


class Tensor(Structure):
    _fields_ = (("name", c_char_p), ("dtype", c_int), ("ndim", c_int), ("shape", POINTER(c_int64)))


class Call(Structure):
    _fields_ = (
        ("process_set", c_uint32),
        ("warning_s", c_double),
        ("deadline_s", c_double),
        ("memory", c_int),
        ("stream", c_void_p),
    )


_FIELDS: dict[str, list[tuple[str, Any]]] = {
    "data": [("data", c_void_p)],
    "error_feedback": [("error_feedback", c_int)],
    "detect_overflow": [("detect_overflow", c_int)],
    "from": [("source", c_int)],
    "input": [("input", c_void_p)],
    "output": [("output", c_void_p)],
    "values": [("values", c_void_p)],
    "indices": [("indices", c_void_p)],
    "scales": [
        ("op", c_int),
        ("compression", c_int),
        ("prescale", c_double),
        ("postscale", c_double),
    ]
    + [("error_feedback", c_int), ("detect_overflow", c_int)],
    "op": [("op", c_int)],
    "root": [("root", c_int)],
    "to": [("to", c_int)],
    "tag": [("tag", c_int)],
    "splits": [("splits", POINTER(c_int64)), ("split_count", c_int)],
    "call": [("call", Call)],
    "room": [("output", c_void_p), ("output_bytes", c_size_t)],
}


def encode(text: str | None) -> bytes | None:
    if text is None:
        return None
    if "\0" in text:
        raise ValueError(f"a text has a zero character in it: {text!r}")
    return text.encode()


def _set_shape(arguments: Any, shape: Sequence[int]) -> None:
    arguments.tensor.shape = (c_int64 * len(shape))(*shape)
    arguments.tensor.ndim = len(shape)


def _set_splits(arguments: Any, splits: Sequence[int] | None) -> None:
    if splits is not None:
        arguments.splits = (c_int64 * len(splits))(*splits)
        arguments.split_count = len(splits)


def _set_stream(arguments: Any, stream: int | None) -> None:
    if stream is not None:
        arguments.call.memory = _MEMORY_CUDA
        arguments.call.stream = stream


# Setters for values that are not plain fields.
_SETTERS: dict[str, Callable[[Any, Any], None]] = {
    "name": lambda arguments, value: setattr(arguments.tensor, "name", encode(value)),
    "dtype": lambda arguments, value: setattr(arguments.tensor, "dtype", value),
    "shape": _set_shape,
    "splits": _set_splits,
    "process_set": lambda arguments, value: setattr(arguments.call, "process_set", value),
    "deadline_s": lambda arguments, value: setattr(arguments.call, "deadline_s", value),
    "stream": _set_stream,
    "keep": lambda arguments, value: None,
}


class Operation:
    """An operation on tensors: the struct of its arguments, and their order in a call."""

    def __init__(self, name: str, fields: str, order: str) -> None:
        """Args: the struct's fields after the tensor, and the order of a call (required |
        optional).
        """
        laid_out: list[tuple[str, Any]] = [("struct_size", c_size_t), ("tensor", Tensor)]
        for field in fields.split():
            laid_out += _FIELDS[field]
        required, _, optional = order.partition("|")
        self.name = name
        self.struct: type[Any] = type(name, (Structure,), {"_fields_": laid_out})
        self.required = len(required.split())
        self.order = required.split() + optional.split()
        self.keep_index = self.order.index("keep")

    def read(self, values: Sequence[Any]) -> Any:
        if not self.required <= len(values) <= len(self.order):
            bounds = f"{self.required} to {len(self.order)}"
            raise TypeError(f"{self.name}() takes {bounds} arguments, not {len(values)}")
        arguments = self.struct(struct_size=ctypes.sizeof(self.struct))
        for name, value in zip(self.order, values):
            setter = _SETTERS.get(name)
            if setter is None:
                setattr(arguments, name, value)
            else:
                setter(arguments, value)
        return arguments

    def keep(self, values: Sequence[Any]) -> object:
        return values[self.keep_index]


_NAMED = "name dtype shape "
_CALL = " process_set deadline_s stream"

OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation(
            "allreduce_async",
            "input output scales call",
            _NAMED
            + "input output keep op | compression prescale postscale process_set error_feedback "
            "detect_overflow deadline_s stream",
        ),
        Operation(
            "reduce_async",
            "input output scales root call",
            _NAMED + "input output keep op root | compression prescale postscale" + _CALL,
        ),
        Operation(
            "reducescatter_async",
            "input scales call room",
            _NAMED + "input output output_bytes keep op | compression prescale postscale" + _CALL,
        ),
        Operation("broadcast_async", "data root call", _NAMED + "data keep root |" + _CALL),
        Operation(
            "allgather_async",
            "input call room",
            _NAMED + "input output output_bytes keep |" + _CALL,
        ),
        Operation(
            "gather_async",
            "input root call room",
            _NAMED + "input output output_bytes keep root |" + _CALL,
        ),
        Operation(
            "scatter_async",
            "input splits root call room",
            _NAMED + "input output output_bytes keep root splits |" + _CALL,
        ),
        Operation(
            "alltoall_async",
            "input splits call room",
            _NAMED + "input output output_bytes keep splits |" + _CALL,
        ),
        Operation("send_async", "input to tag call", "dtype shape input keep to tag |" + _CALL),
        Operation(
            "recv_async", "output from tag call", "dtype shape output keep source tag |" + _CALL
        ),
        Operation(
            "sparse_allreduce_async",
            "values indices op call",
            _NAMED + "values indices keep op |" + _CALL,
        ),
    )
}


class Object(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("data", c_char_p),
        ("size", c_size_t),
        ("root", c_int),
        ("call", Call),
    )
