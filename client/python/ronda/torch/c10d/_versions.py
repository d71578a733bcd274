# SPDX-License-Identifier: Apache-2.0

"""Hides differences between versions of PyTorch from the backend of torch.distributed.

In versions that let Python subclass torch's Backend (as 2.15 does) a torch group has one Backend
for each device, and Ronda's class is such a Backend. In earlier versions Ronda's class is a
subclass of ProcessGroup, and replaces the whole group.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import CodeType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

from ronda.types import ReduceOp

_c10d: Any = _distributed_c10d
_Method = TypeVar("_Method", bound=Callable[..., Any])

# Whether Python can subclass torch's Backend, with the method names of new versions.
HAS_BACKENDS = hasattr(getattr(_c10d, "Backend", None), "all_gather_single")

GroupBase: Any = _c10d.Backend if HAS_BACKENDS else _c10d.ProcessGroup

# The names of group methods, and of methods for coalescing, in other versions of PyTorch.
_OTHER_NAMES = {
    "all_gather_single": ("_allgather_base",),
    "all_gather_single_coalesced": ("allgather_into_tensor_coalesced",),
    "reduce_scatter_single": ("_reduce_scatter_base",),
    "reduce_scatter_single_coalesced": ("reduce_scatter_tensor_coalesced",),
    "gather_single": ("gather_into_tensor",),
    "all_to_all_single": ("alltoall_base",),
    "start_coalescing": ("_start_coalescing",),
    "end_coalescing": ("_end_coalescing",),
    "set_group_name": ("_set_group_name", "setGroupName"),
    "group_name_of_torch": ("getGroupName",),
}


def with_other_names(group: type) -> type:
    """Decorates a class. Adds the names under which other versions of PyTorch call the methods of
    the class.
    """
    for name, others in _OTHER_NAMES.items():
        method = getattr(group, name, None)
        for other in others if method is not None else ():
            setattr(group, other, method)
    return group


# -- torch.compile --


def _skip_frames(code: CodeType) -> None:
    """Makes torch.compile skip frames of `code`."""
    frames: Any = torch._C._dynamo.eval_frame
    if hasattr(frames, "skip_code"):
        frames.skip_code(code)
    elif hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))


def not_compiled(method: _Method) -> _Method:
    """Makes torch.compile skip a method. In a compiled model, torch.compile would fail to compile a
    method that C++ code calls.

    torch's own decorator for this purpose imports the compiler, which takes seconds.
    """
    if not hasattr(torch._C, "_dynamo"):
        return method
    set_compiler: Any = torch._C._dynamo.eval_frame.set_eval_frame

    def call(*args: Any, **kwargs: Any) -> Any:
        compiler = set_compiler(None)
        try:
            return method(*args, **kwargs)
        finally:
            set_compiler(compiler)

    _skip_frames(call.__code__)
    return functools.wraps(method)(call)  # type: ignore[return-value]


# -- Options --

# Ronda's op for each number of torch's RedOpType.
_OPS = {
    0: ReduceOp.SUM,
    1: ReduceOp.AVERAGE,
    2: ReduceOp.PRODUCT,
    3: ReduceOp.MIN,
    4: ReduceOp.MAX,
    5: ReduceOp.BAND,
    6: ReduceOp.BOR,
    7: ReduceOp.BXOR,
}
# The results of reduce_op() for the operators in _OPS.
_PLAIN = {number: (int(op), 1.0) for number, op in _OPS.items()}
_SUM = _PLAIN[0]
_PREMUL_SUM = 8
_OP_NAMES = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")


def op_name(opts: Any) -> str:
    """Returns torch's name for the reduce op in a collective's options."""
    number = _op_number(opts)
    name = _OP_NAMES[number] if number < len(_OP_NAMES) else str(number)
    return f"ReduceOp.{name}"


def _op_number(opts: Any) -> int:
    op = getattr(opts, "reduceOp", opts)
    return int(getattr(op, "op", op))


def reduce_op(opts: Any) -> tuple[int, float]:
    """Returns the op and the prescale of a collective's options. torch may pass a ReduceOp instead
    of options.

    Raises:
        ValueError: Ronda does not support this op of torch.
        NotImplementedError: this version of torch hides the op's factor.
    """
    if opts is None:
        return _SUM
    number = _op_number(opts)
    plain = _PLAIN.get(number)
    if plain is not None:
        return plain
    if number != _PREMUL_SUM:
        raise ValueError(f"{op_name(opts)} is no op that Ronda reduces by")
    op = getattr(opts, "reduceOp", opts)
    state = getattr(type(op), "__getstate__", None) and op.__getstate__()
    pickled = state[1] if isinstance(state, tuple) and len(state) == 2 else None
    factor = getattr(op, "factor", pickled)
    if factor is None:
        raise NotImplementedError(
            f"torch {torch.__version__} does not tell the factor of PREMUL_SUM: multiply the "
            "tensor before a SUM, or use PyTorch 2"
        )
    return int(ReduceOp.SUM), float(factor)


def blocks(opts: Any) -> bool:
    """Returns whether torch waits for the collective at once, and accepts None instead of a
    Work.
    """
    return HAS_BACKENDS and not getattr(opts, "asyncOp", True)


def barrier_timeout(timeout: Any) -> timedelta | None:
    """Returns the timeout of a monitored_barrier(). New versions of torch pass barrier options
    instead of a timeout.
    """
    return getattr(timeout, "timeout", timeout)


def seconds(timeout: timedelta) -> float:
    """Returns a group's timeout. If the program has not chosen a timeout, returns 0, which means
    the job's deadline.
    """
    is_default = timeout == dist.distributed_c10d.default_pg_timeout
    return 0.0 if is_default else timeout.total_seconds()


def backend_options(name: str, ranks: Sequence[int], timeout_s: float) -> Any:
    """Returns torch's own options for a group, or None if this version of torch has no such
    options.
    """
    if not HAS_BACKENDS:
        return None
    default = dist.distributed_c10d.default_pg_timeout
    timeout = timedelta(seconds=timeout_s) if timeout_s else default
    options = _c10d.Backend.Options("ronda", timeout)
    options.group_name, options.global_ranks_in_group = name, list(ranks)
    return options


# -- Registration --


def register(name: str, create: Callable[..., Any]) -> None:
    """Registers a backend with torch, for tensors on CPUs and on CUDA devices."""
    register_backend: Any = dist.Backend.register_backend
    has_devices = "devices" in inspect.signature(register_backend).parameters
    devices = {"devices": ["cpu", "cuda"]} if has_devices else {}
    register_backend(name, create, extended_api=True, **devices)


def check_devices(is_reconfigurable: bool) -> None:
    """Rejects a choice such as "cpu:gloo,cuda:ronda" if one backend must serve all devices of a
    group.

    torch does not pass the user's choice to the backend, so this function reads it from a local
    variable of the torch function that calls the backend.
    """
    if HAS_BACKENDS and not is_reconfigurable:
        return
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back
    config = frame.f_locals.get("backend_config") if frame is not None else None
    backends: Mapping[str, str] = config.get_device_backend_map() if config is not None else {}
    if len(set(backends.values())) > 1:
        raise ValueError(
            f"backend '{config}': with torch {torch.__version__} Ronda serves all devices of a "
            "group or none. Pass 'ronda' alone, or use PyTorch 2.15 without enable_reconfigure"
        )


# -- Works --

_UNKNOWN_OPERATION = 100
_asking = threading.local()


def answer(work: Any) -> bool:
    """Returns whether work_behind() is the caller of get_future(). If work_behind() is the caller,
    passes `work` to it.
    """
    if not getattr(_asking, "is_open", False):
        return False
    _asking.work = work
    return True


def work_behind(holder: Any) -> Any:
    """Returns the Ronda Work that a torch Work wraps, or None.

    torch's C++ code wraps a Work written in Python, and forwards only wait() and get_future().
    work_behind() finds the wrapped Work by calling get_future().
    """
    if type(holder) is not _c10d.Work or holder._get_op_type() != _UNKNOWN_OPERATION:
        return None
    _asking.is_open, _asking.work = True, None
    try:
        holder.get_future()
    except RuntimeError:
        pass  # a Work of another backend, without futures
    finally:
        _asking.is_open = False
    work, _asking.work = _asking.work, None
    return work


def _handed_on(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any) -> Any:
        work = work_behind(self)
        return original(self, *args) if work is None else getattr(work, original.__name__)(*args)

    return method


def complete_groups(backend_of: Callable[[Any, Any], Any]) -> None:
    """Makes torch's groups call gather_single() of Ronda's backend, because torch's C++ code does
    not find the Python method.

    Args:
        backend_of: returns a group's Ronda backend for a device, or None if a different backend
            serves the device.
    """
    if not HAS_BACKENDS:
        return
    original = _c10d.ProcessGroup.gather_single

    def gather_single(self: Any, output: Any, input: Any, opts: Any) -> Any:
        group = backend_of(self, input.device)
        if group is None:
            return original(self, output, input, opts)
        return group.gather_single(output, input, opts)

    _c10d.ProcessGroup.gather_single = gather_single
    _c10d.ProcessGroup.gather_into_tensor = gather_single


def complete_works() -> None:
    """Makes torch's wrapper of Ronda's Works forward all calls. Otherwise is_completed() would
    always return False.
    """
    if HAS_BACKENDS:
        for name in (
            "is_completed",
            "is_success",
            "exception",
            "result",
            "source_rank",
            "_source_rank",
            "synchronize",
            "_get_sequence_number",
        ):
            setattr(_c10d.Work, name, _handed_on(getattr(_c10d.Work, name)))
