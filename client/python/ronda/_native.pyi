# SPDX-License-Identifier: Apache-2.0

"""The extension module over libronda.so, through which Python calls the C ABI.

The module is deliberately low-level: buffers are addresses, enums are the numbers of ronda.h, and
the module leaves all checks to the C ABI. Every function that may wait releases the GIL. Functions
that wait for other ranks check for signals, so Ctrl-C interrupts them. Only should_stop(), which
rarely waits, does not. A failed call raises one of the classes passed to `set_error_types`.

Common arguments of operations:
    name: the tensor's name, or None to match operations by call order.
    dtype, op, compression: values of ronda_dtype, ronda_reduce_op and ronda_compression.
    shape: dimensions, outermost first; () is a scalar.
    input, output: addresses of row-major memory; 0 means none. If the function has `output_bytes`
        and `output` is 0, Ronda allocates the output; see output().
    source: a rank, or -1 for any rank (see ronda_recv_args).
    keep: any object that owns the memory behind the addresses. The binding holds a reference to
        `keep` until the handle has been released and its operation has ended.
    process_set: id; 0 is the set of all ranks.
    deadline_s: 0 means the job's deadline, and a negative number means no deadline.
    stream: None for host memory; for GPU memory, the cudaStream_t as a number (0 is the default
        stream).
    error_feedback, detect_overflow: as in ronda_allreduce_args.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

def set_error_types(types: Sequence[type[Exception]]) -> None:
    """Sets the exception class for each ronda_status, starting with RONDA_ERROR_INVALID_ARGUMENT
    (1). Each constructor takes the error text.
    """

# -- The job --

def version() -> str: ...
def init(options: Mapping[str, object] | None = None) -> None:
    """`options` has fields of ronda_options by name; `process_sets` is a sequence of sequences of
    ranks.
    """

def shutdown() -> None: ...
def abort(reason: str, /) -> None: ...
def job_status() -> None:
    """If the job has failed, raises the job's failure."""

def is_initialized() -> bool: ...
def rank() -> int: ...
def size() -> int: ...
def local_rank() -> int: ...
def local_size() -> int: ...
def cross_rank() -> int: ...
def cross_size() -> int: ...
def should_stop() -> bool: ...
def elastic_reform(reason: str | None = None) -> None: ...
def elastic_begin_update() -> None: ...
def elastic_end_update() -> None: ...
def elastic_sync(snapshot_step: int) -> tuple[int, int, int, int, int]:
    """The fields of ronda_elastic_source: step, rank, is_snapshot, is_behind, any_behind."""

def elastic_poll() -> int:
    """A ronda_elastic_change."""

def current() -> int: ...
def make_current(context: int) -> None: ...
def place() -> dict[str, Any]:
    """Returns what the launcher's environment variables say: `launcher` (see ronda_launcher), and
    the known fields of ronda_place.
    """

def statistics() -> dict[str, int]:
    """The fields of ronda_statistics."""

def start_timeline(path: str) -> None: ...
def stop_timeline() -> None: ...

# -- Process sets --

def add_process_set(ranks: Sequence[int]) -> int: ...
def create_process_set(ranks: Sequence[int], tag: str | None = None) -> int: ...
def remove_process_set(id: int) -> None: ...
def remove_process_set_async(id: int, /) -> int:
    """Like remove_process_set(), but does not wait, and returns a handle. Ranks that use this
    function may remove several sets in different orders.
    """

def process_set_size(id: int) -> int: ...
def process_set_rank(id: int) -> int: ...
def process_set_ranks(id: int) -> list[int]: ...
def process_set_ids() -> list[int]: ...

# -- Operations, which take positional arguments and return handles --
#
# A function without _async waits, and is faster for small tensors. It needs `keep` only because
# Ctrl-C may interrupt the wait while the operation is in flight. Each member of a group takes the
# arguments of the function for one tensor.

# -- Made by `make bindings` from client/ronda/operations.h: to the end of this part --

def allreduce_async(
    name: str | None,
    dtype: int,
    shape: Sequence[int],
    input: int,
    output: int,
    keep: object,
    op: int,
    compression: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: int = 0,
    error_feedback: bool = False,
    detect_overflow: bool = False,
    deadline_s: float = 0.0,
    stream: int | None = None,
    /,
) -> int: ...
def allreduce(
    name: str | None,
    dtype: int,
    shape: Sequence[int],
    input: int,
    output: int,
    keep: object,
    op: int,
    compression: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: int = 0,
    error_feedback: bool = False,
    detect_overflow: bool = False,
    deadline_s: float = 0.0,
    stream: int | None = None,
    /,
) -> None: ...
def reduce_async(
    name: str | None,
    dtype: int,
    shape: Sequence[int],
    input: int,
    output: int,
    keep: object,
    op: int,
    root: int,
    compression: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: int = 0,
    deadline_s: float = 0.0,
    stream: int | None = None,
    /,
) -> int: ...
def reducescatter_async(
    name: str | None,
    dtype: int,
    shape: Sequence[int],
    input: int,
    output: int,
    output_bytes: int,
    keep: object,
    op: int,
    compression: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: int = 0,
    deadline_s: float = 0.0,
    stream: int | None = None,
    /,
) -> int: ...
def broadcast_async(
    name: str | None,
    dtype: int,
    shape: Sequence[int],
    data: int,
    keep: object,
    root: int,
    process_set: int = 0,
    deadline_s: float = 0.0,
    stream: int | None = None,
    /,
) -> int: ...
def allgather_async(
    name: str | None,
    dtype: int,
    shape: Sequence[int],
    input: int,
    output: int,
    output_bytes: int,
    keep: object,
    process_set: int = 0,
    deadline_s: float = 0.0,
    stream: int | None = None,
    /,
) -> int: ...
def gather_async(
    name: str | None,
    dtype: int,
    shape: Sequence[int],
    input: int,
    output: int,
    output_bytes: int,
    keep: object,
    root: int,
    process_set: int = 0,
    deadline_s: float = 0.0,
    stream: int | None = None,
    /,
) -> int: ...
def scatter_async(
    name: str | None,
    dtype: int,
    shape: Sequence[int],
    input: int,
    output: int,
    output_bytes: int,
    keep: object,
    root: int,
    splits: Sequence[int] | None,
    process_set: int = 0,
    deadline_s: float = 0.0,
    stream: int | None = None,
    /,
) -> int: ...
def alltoall_async(
    name: str | None,
    dtype: int,
    shape: Sequence[int],
    input: int,
    output: int,
    output_bytes: int,
    keep: object,
    splits: Sequence[int] | None,
    process_set: int = 0,
    deadline_s: float = 0.0,
    stream: int | None = None,
    /,
) -> int: ...
def send_async(
    dtype: int,
    shape: Sequence[int],
    input: int,
    keep: object,
    to: int,
    tag: int,
    process_set: int = 0,
    deadline_s: float = 0.0,
    stream: int | None = None,
    /,
) -> int: ...
def recv_async(
    dtype: int,
    shape: Sequence[int],
    output: int,
    keep: object,
    source: int,
    tag: int,
    process_set: int = 0,
    deadline_s: float = 0.0,
    stream: int | None = None,
    /,
) -> int: ...
def grouped_allreduce_async(
    arguments: Sequence[tuple[object, ...]],
    group: str,
    /,
) -> list[int]: ...
def grouped_reducescatter_async(
    arguments: Sequence[tuple[object, ...]],
    group: str,
    /,
) -> list[int]: ...
def grouped_allgather_async(
    arguments: Sequence[tuple[object, ...]],
    group: str,
    /,
) -> list[int]: ...

# -- The end of what `make bindings` makes --

def broadcast_object_async(
    name: str | None, data: bytes | None, root: int, process_set: int = 0, /
) -> int: ...
def allgather_object_async(name: str | None, data: bytes, process_set: int = 0, /) -> int: ...
def sparse_allreduce_async(
    name: str,
    dtype: int,
    shape: Sequence[int],
    values: int,
    indices: int,
    keep: object,
    op: int,
    process_set: int = 0,
    deadline_s: float = 0.0,
    stream: int | None = None,
    /,
) -> tuple[int, int]:
    """Returns the handles of the indices and of the values."""

def barrier_async(process_set: int = 0, deadline_s: float = 0.0, /) -> int: ...
def monitored_barrier(process_set: int = 0, timeout_s: float = 0.0, /) -> None:
    """Waits at most `timeout_s` seconds. A rank that does not want to wait passes 0.001; the error
    then names the missing ranks.
    """

def join_async(process_set: int = 0, absent: int = 0, /) -> int: ...
def refuse(process_set: int, name: str | None, message: str, /) -> None:
    """Tells the other ranks that this rank cannot take part in the operation on the tensor `name`.
    If `name` is None, refuses this rank's next unnamed operation in the set, and counts it as
    called.

    The operation fails on the other ranks, with an error that contains this rank's number and
    `message`. refuse() does not wait for the other ranks.
    """

def refuse_message(process_set: int, source: int, to: int, tag: int, message: str, /) -> None:
    """Refuses the next message between these two ranks with this tag."""

def cuda_zero(data: int, bytes: int, stream: int, /) -> None: ...

# -- Lanes --

def lane_open(process_set: int, buffer: int, /) -> bool:
    """Whether the lane of the set is open now; see ronda_lane_open()."""

def lane_close(process_set: int, /) -> None: ...
def lane_retire(process_set: int, /) -> None: ...
def lane_reduces(process_set: int, dtype: int, op: int, factor: float, /) -> bool:
    """Whether the set has an open lane that supports such reductions; see ronda_lane_reduces()."""

def lane_refuse(process_set: int, message: str, /) -> None: ...
def lane_memory(process_set: int, /) -> int:
    """The bytes of the memory of the set's lane, or 0; see ronda_lane_memory()."""

def lane_allocator(process_set: int, /) -> tuple[int, int]:
    """The addresses of the functions of ronda_lane_allocator()."""

def gradient_allocate(bytes: int, stream: int, /) -> int:
    """The address of a block in the memory for gradients, or 0 if there is no such memory; see
    ronda_gradient_allocate()."""

def lane_free(block: int, stream: int, /) -> None:
    """Frees a block of gradient_allocate(); see ronda_lane_free()."""

def last_error() -> str:
    """The text of the last error of this thread; see ronda_last_error()."""

def lane_exchange_async(
    op: int,
    dtype: int,
    sends: Sequence[int],
    receives: Sequence[int],
    keep: object,
    root: int,
    process_set: int,
    deadline_s: float,
    stream: int | None,
    /,
) -> int:
    """Submits a gather, a scatter or an alltoall; see ronda_lane_exchange_async().

    Args:
        op: a value of ronda_lane_exchange.
        dtype: the DType of the elements.
        sends: an address and a number of elements for each member, alternating.
        receives: as `sends`.
        keep: an object that is kept until the operation has ended.
        root: the root's rank in the job, for a gather or a scatter.
        process_set: the id of the process set.
        deadline_s: the deadline in seconds; 0 means the job's deadline.
        stream: the stream of the tensors.
    """

# -- Handles --

def poll(handle: int, /) -> bool: ...
def poll_all(handles: Sequence[int], /) -> bool: ...
def synchronize(handle: int, timeout_s: float = -1.0, /) -> bool:
    """Waits until the operation has ended, and raises its error.

    Returns False if it takes longer than `timeout_s` (negative: no limit).
    """

def synchronize_all(handles: Sequence[int], /) -> None: ...
def synchronize_on_stream(handle: int, stream: int, timeout_s: float = -1.0, /) -> bool:
    """Waits until the operation has been launched on the device, and makes the stream wait for the
    operation.

    Returns False if it takes longer than `timeout_s` (negative: no limit).
    """

def synchronize_on_stream_async(
    handle: int, stream: int, callback: Callable[[int, str | None], None], /
) -> None: ...
def on_completion(handle: int, callback: Callable[[int, str | None], None], /) -> None:
    """`callback(status, message)` runs once, on one of Ronda's threads.

    The message is None if the status is 0. Exceptions that the callback raises go to
    sys.unraisablehook. Callbacks that have not run when the interpreter ends are dropped.
    """

def output(handle: int, /) -> tuple[int, int, list[int]]:
    """Returns a result's address, its number of rows, and the number of rows from each member (see
    ronda_output).

    The address is valid until the handle is released.
    """

def output_bytes(handle: int, row_bytes: int = 1, /) -> bytes:
    """Returns a copy of the result. The result must be in host memory, and `row_bytes` is the size
    of its rows.
    """

def found_inf(handle: int, /) -> bool: ...
def last_rank(handle: int, /) -> int: ...
def source(handle: int, /) -> int:
    """Returns the rank that sent the tensor of a recv_async(). The operation must have ended, or a
    stream must have been made to wait for it.
    """

def averaged_over(handle: int, /) -> int:
    """Returns the divisor for the average of the gathered rows."""

def keep(handle: int, /) -> object:
    """Returns the object that was passed as `keep` at the submission."""

def drop_buffers(handle: int, /) -> None:
    """Drops the object that was passed as `keep`. The stream on which its memory is used next must
    already wait for the operation.
    """

def release(handle: int, /) -> None:
    """Releases the handle without waiting. The memory of an operation in flight is kept until it
    has ended.

    A forked child may also release its parent's handles. This drops the objects kept for them.
    """

def release_on_stream(handle: int, stream: int, /) -> None:
    """Like release(), for a result in Ronda's memory that work already enqueued on the stream still
    uses.
    """

# -- Prepared groups --

def prepare_group(arguments: Sequence[tuple[object, ...]], name: str, /) -> int:
    """Each entry has the arguments of an allreduce_async.

    The binding holds the `keep` of each entry until the group is released.
    """

def group_ready(group: int, index: int, /) -> None: ...
def group_ready_on_stream(
    group: int, index: int, data: int, stream: int, owner: object = None, /
) -> None:
    """Like group_ready(), for a member whose buffer has moved. The member is reduced in place at
    `data` from now on.

    On a GPU, `stream` is the stream on which the caller has enqueued the work that fills the
    buffer; 0 is the default stream. For host memory `stream` is 0. The group holds `owner`, which
    owns that memory, until the step has ended.
    """

def group_wait(group: int, /) -> None: ...
def group_wait_on_stream(group: int, stream: int, /) -> None: ...
def group_detach(group: int, /) -> list[int]:
    """Ends the step early. Returns a handle per member, or 0 for a member that was not
    announced.
    """

def group_found_inf(group: int, /) -> bool: ...
def group_release(group: int, /) -> None: ...

# -- Errors of a completed operation, by status, for callbacks --

def error(status: int, message: str, /) -> Exception: ...

# -- Calls from a framework's graph --

def carried_error() -> Exception | None:
    """Returns the last error of a call from a graph, as an exception of ronda.errors."""

def register_tensorflow(path: str, /) -> bool:
    """Registers the operation RondaAllreduce with TensorFlow. `path` is the loaded TensorFlow
    library that has the C API. Returns False if this library lacks a function.
    """

# -- XLA --

def xla_handlers(minor: int, /) -> dict[str, object]:
    """Returns a capsule with the handler for jax.ffi.register_ffi_target() for each XLA platform.
    `minor` is the minor version of jaxlib's FFI.
    """
