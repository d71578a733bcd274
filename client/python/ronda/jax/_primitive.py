# SPDX-License-Identifier: Apache-2.0

"""The JAX primitive that every collective binds, and its rules for compilation, derivatives and
vmap.

Under jit the primitive becomes a custom call of XLA, which runs a handler of _native_xla.c. Outside
of jit the collective runs at once. For arrays on a CPU the collective needs no compiled program
(_eager.py). For arrays on a GPU the collective runs in a compiled program of its own, because only
XLA knows the stream that computes the arrays.

The other ranks wait for each call, so JAX and XLA must not remove or repeat a call. For this reason
the primitive has an effect in JAX, and the custom call has a side effect in XLA.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
import re
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import effects  # there is no public name
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.interpreters.mlir import ir

from ronda import _carried_errors, reductions
from ronda._library import native
from ronda._xla import IN_PLACE, NAMELESS, OF_ROWS, REDUCTIONS, Kind
from ronda.errors import InvalidArgumentError
from ronda.jax import _eager
from ronda.jax._call import DTYPES, Call
from ronda.types import ReduceOp

try:
    import jax.ffi
except ImportError:
    raise ImportError(
        f"ronda.jax needs JAX 0.5.0 or later, and this is {jax.__version__}: pip install -U jax"
    ) from None

_TARGET = "ronda_collective"


class _Collective(effects.Effect):
    """The effect of a collective call, which JAX must not remove, because other ranks wait for the
    call.
    """

    def __str__(self) -> str:
        return "Collective"

    # jax.export writes effects that equal another object of their class.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Collective)

    def __hash__(self) -> int:
        return hash(_Collective)


_EFFECT = _Collective()
for _allowed in (
    effects.lowerable_effects,
    effects.control_flow_allowed_effects,
    effects.custom_derivatives_allowed_effects,
    effects.remat_allowed_effects,
):
    _allowed.add_type(_Collective)

collective_p = Primitive("ronda_collective")
collective_p.multiple_results = True


def _abstract(*avals: Any, call: Call) -> tuple[list[Any], set[effects.Effect]]:
    results = [jax.core.ShapedArray(shape, dtype) for shape, dtype in call.results(avals)]
    return results, {_EFFECT}


collective_p.def_effectful_abstract_eval(_abstract)


# -- Outside of jit --


def _run(*arrays: Any, call: Call) -> list[jax.Array]:
    if call.kind == Kind.BARRIER or not _eager.is_on_gpu(arrays):
        return _eager.run(*arrays, call=call)
    program = _program_of(_named_outside_of_jit(call, arrays))
    try:
        with jax.disable_jit(False):  # otherwise the program would call this function again
            results = list(jax.block_until_ready(program(*arrays)))
    except jax.errors.JaxRuntimeError as error:
        raise (_carried_errors.original_of(error) or error) from error
    native.job_status()  # if the job has failed while the GPU worked, the results are undefined
    return results


def _named_outside_of_jit(call: Call, arrays: Sequence[Any]) -> Call:
    """Returns the call, named as in _eager.run(). It cannot be named after its position in the
    compiled program, because the program contains only this call.
    """
    if call.name is not None:
        return call
    if not call.grouped:
        return dataclasses.replace(call, by_order=True)
    name = reductions.name_of_group([(DTYPES[each.dtype.name], each.shape) for each in arrays])
    labels = tuple(f".{i}" for i in range(len(arrays)))
    return dataclasses.replace(call, name=name, labels=labels)


@functools.lru_cache(maxsize=1024)
def _program_of(call: Call) -> Any:
    """Returns a compiled program that makes only this call. Each line of user code has a compiled
    program of its own.
    """

    def ronda(*arrays: Any) -> list[jax.Array]:
        return list(collective_p.bind(*arrays, call=call))

    return jax.jit(ronda)


collective_p.def_impl(_run)


# -- Compilation --


def _register_handlers() -> None:
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    version = re.search(
        r"define XLA_FFI_API_MAJOR (\d+).*define XLA_FFI_API_MINOR (\d+)", header, re.S
    )
    if version is None or version[1] != "0":
        raise ImportError(
            f"ronda.jax does not know the interface of JAX {jax.__version__} for foreign functions:"
            " install a newer Ronda"
        )
    for platform, handler in native.xla_handlers(int(version[2])).items():
        jax.ffi.register_ffi_target(_TARGET, handler, platform=platform)


def _names_in(module: Any, call: Call) -> list[str]:
    """Returns the names of a call's arrays in a program, or "" for each array without a name."""
    if call.by_order or call.kind in NAMELESS:
        return [""] * len(call.labels)
    name = _name_in(module, call)
    return [name + label for label in call.labels]


# For each program (an MLIR module), how many of its calls use each name.
_names: weakref.WeakKeyDictionary[Any, collections.Counter[str]] = weakref.WeakKeyDictionary()


def _name_in(module: Any, call: Call) -> str:
    """Returns the name of a call in a program. All ranks run the same program, so they give a call
    the same name. Programs of different functions give their calls different names, because
    several threads may run them at the same time.
    """
    name = call.name
    used = _names.setdefault(module, collections.Counter())
    if name is None:
        program = module.operation.attributes["sym_name"].value
        used[""] += 1  # names that callers choose are never empty
        return f"{program}@{call.function}/{used[''] - 1}"
    used[name] += 1
    return name if used[name] == 1 else f"{name}#{used[name]}"


def _check_one_device(context: Any, call: Call) -> None:
    devices = getattr(context.module_context.axis_context, "num_devices", 1)
    if devices > 1:
        raise InvalidArgumentError(
            f"{call.kind.name.lower()} at {call.where}: the program is compiled for {devices}"
            " devices: a rank of ronda.jax has one device, so start more ranks instead"
        )


def _lower(context: Any, *operands: Any, call: Call) -> Any:
    _check_one_device(context, call)
    attributes = {
        "kind": np.int64(call.kind),
        "op": np.int64(call.op),
        "wire": np.int64(call.wire),
        "peer": np.int64(call.peer),
        "tag": np.int64(call.tag),
        "error_feedback": np.int64(call.error_feedback),
        "grouped": np.int64(call.grouped),
        "process_set": np.int64(call.process_set),
        "prescale": np.float64(call.prescale),
        "postscale": np.float64(call.postscale),
        "splits": np.array(call.splits, np.int64),
        "received": np.array(call.received_splits, np.int64),
        "names": "\n".join(_names_in(context.module_context.module, call)),
        "where": f"{call.kind.name.lower()} at {call.where}",
    }
    ticket = jax.core.ShapedArray((), np.int32)
    ticketed = context.replace(
        avals_in=[*context.avals_in, ticket], avals_out=[*context.avals_out, ticket]
    )
    # Makes XLA reuse the memory of the arguments for the results, as the handler requires.
    aliases = {i: i for i in range(len(operands))} if call.kind in IN_PLACE else {}
    aliases[len(operands)] = len(context.avals_out)
    lower = jax.ffi.ffi_lowering(_TARGET, has_side_effect=True, operand_output_aliases=aliases)
    results = lower(ticketed, *operands, _ticket_of_last_call(), **attributes)
    return results[:-1]


def _lower_for_gpu(context: Any, *operands: Any, call: Call) -> Any:
    if call.kind == Kind.BARRIER:
        raise InvalidArgumentError(
            f"barrier at {call.where}: in a program for a GPU the barrier would wait for the ranks'"
            " hosts, and not for their GPUs: call barrier(tree) outside of jit"
        )
    return _lower(context, *operands, call=call)


def _ticket_of_last_call() -> Any:
    """Returns the ticket of the last call in this block of the program. The next call takes this
    ticket as an argument, so XLA runs the next call after the last call.

    XLA may run independent calls in a different order on each rank, one at a time. Without the
    ticket, two ranks could therefore wait for each other.
    """
    last = None
    for each in ir.InsertionPoint.current.block.operations:
        if each.operation.name != "stablehlo.custom_call":
            continue
        if ir.StringAttr(each.operation.attributes["call_target_name"]).value == _TARGET:
            last = each
    return mlir.ir_constant(np.int32(0)) if last is None else list(last.operation.results)[-1]


def _refuse_platform(context: Any, *operands: Any, call: Call) -> Any:
    platforms = ", ".join(context.module_context.platforms)
    raise InvalidArgumentError(
        f"{call.kind.name.lower()} at {call.where}: the program is compiled for {platforms}:"
        " ronda.jax is for arrays on CPUs and on NVIDIA's GPUs: call"
        ' jax.config.update("jax_platforms", "cpu"), or start with JAX_PLATFORMS=cpu'
    )


# Otherwise newer versions of JAX would lower two equal calls only once, and both would have the
# same name.
_uncached = (
    {"cacheable": False}
    if "cacheable" in inspect.signature(mlir.register_lowering).parameters
    else {}
)
mlir.register_lowering(collective_p, _refuse_platform, **_uncached)
mlir.register_lowering(collective_p, _lower, platform="cpu", **_uncached)
mlir.register_lowering(collective_p, _lower_for_gpu, platform="cuda", **_uncached)
_register_handlers()


# -- Derivatives --


def _is_linear(call: Call) -> bool:
    if call.kind in REDUCTIONS:
        return call.op in (ReduceOp.SUM, ReduceOp.AVERAGE)
    return call.kind not in (Kind.SEND, Kind.RECV)


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, call: Call
) -> tuple[list[Any], list[Any]]:
    """REQUIRES: all arrays have floating-point elements."""
    if not _is_linear(call):
        op = f" with {call.op.name}" if call.kind in REDUCTIONS else ""
        raise InvalidArgumentError(
            f"{call.kind.name.lower()}{op} at {call.where} has no derivative: use Sum or Average,"
            " or jax.lax.stop_gradient"
        )
    results = collective_p.bind(*primals, call=call)
    # Passes every tangent, even if it is zero, so that the calls of all ranks match.
    given = [ad.instantiate_zeros(each) for each in tangents]
    return results, collective_p.bind(*given, call=call.derived(".tangent"))


def _transpose(cotangents: Sequence[Any], *arguments: Any, call: Call) -> list[Any]:
    given = [ad.instantiate_zeros(each) for each in cotangents]
    if call.kind == Kind.BROADCAST:
        summed = call.derived(".gradient", kind=Kind.ALLREDUCE, op=ReduceOp.SUM)
        found = collective_p.bind(*given, call=summed)
        is_root = native.rank() == call.peer
        return found if is_root else [jnp.zeros_like(each) for each in found]
    changes: dict[str, Any] = {}
    if call.kind in OF_ROWS:
        changes["rows"] = tuple(each.aval.shape[0] for each in arguments)
    if call.kind == Kind.ALLGATHER:
        changes.update(kind=Kind.REDUCESCATTER, op=ReduceOp.SUM)
    elif call.kind == Kind.ALLTOALL:
        changes.update(splits=call.received_splits, received_splits=call.splits)
    elif call.kind == Kind.REDUCESCATTER:
        changes.update(kind=Kind.ALLGATHER)
        members = native.process_set_size(call.process_set) if call.op == ReduceOp.AVERAGE else 1
        factor = call.prescale * call.postscale / members
        given = [each * jnp.asarray(factor, each.dtype) for each in given]
    return collective_p.bind(*given, call=call.derived(".gradient", **changes))


ad.primitive_jvps[collective_p] = _jvp
ad.primitive_transposes[collective_p] = _transpose


# -- vmap --


def _batch(
    arrays: Sequence[Any], dimensions: Sequence[Any], *, call: Call
) -> tuple[list[Any], list[Any]]:
    if call.op == ReduceOp.ADASUM:
        raise InvalidArgumentError(
            f"allreduce at {call.where}: Adasum combines whole arrays: it cannot run under vmap"
        )
    # In operations on rows, the rows are the first dimension, so the mapped dimension comes second.
    first = 1 if call.kind in OF_ROWS else 0
    outs = [None if each is None else first for each in dimensions]  # None: not mapped
    moved = [
        array if dimension is None else jnp.moveaxis(array, dimension, first)
        for array, dimension in zip(arrays, dimensions)
    ]
    return collective_p.bind(*moved, call=call), outs


batching.primitive_batchers[collective_p] = _batch
