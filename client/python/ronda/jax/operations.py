# SPDX-License-Identifier: Apache-2.0

"""Collectives on pytrees of arrays, inside and outside of jit, grad, vmap, scan and remat.

Every rank of the process set must call the same operations in the same order, and run the same
program under jit. On CPUs, several threads of a rank may run the programs of different functions,
in an order that may differ between ranks. Two programs whose calls have the same names must not run
at the same time: see `name`.

Common arguments:
    tree: any pytree of numeric arrays in the memory of one device: a CPU, or an NVIDIA GPU.
        Complex numbers are sent as pairs of their parts, and have only Sum and Average. The arrays
        have the same shapes and types on every rank, unless the function says otherwise.
    op: how elements are combined; AVERAGE divides by the number of ranks.
    name: the name of the arrays, the same on every rank. If it is None, arrays are matched outside
        of jit by the order of the calls. Under jit, they are then matched by the name of the
        program, the line that defines the function, and the position of the call in the program.
        So if two threads run the same function, or two functions of one `def` statement, pass
        names that differ.
    compression: the format in which floating-point elements are sent (Compression).
    prescale: multiplies each rank's arrays before the reduction.
    postscale: multiplies the results.
    process_set: the ranks that take part.

Errors of all functions:
    NotInitializedError, InvalidArgumentError: no operation was submitted. If the arguments of one
        rank are wrong, the operation fails on the others too. Under jit, and with grouped=True, it
        does so only if the call has a name; otherwise the others wait until their deadline.
    MismatchError: the ranks disagree; the job continues.
    DeadlineError, PeerFailedError, InternalError.
    A program under jit raises these errors as jax.errors.JaxRuntimeError with the same text;
    error_of() returns Ronda's error.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.core import trace_state_clean  # there is no public name
from jax.tree_util import tree_flatten_with_path

from ronda import _carried_errors, exchanges
from ronda._library import native
from ronda._refusals import Told, ToldToPeer
from ronda._xla import OF_ROWS, REDUCTIONS, Kind
from ronda.errors import InvalidArgumentError, RondaError
from ronda.jax._call import (
    DTYPES,
    Call,
    id_of_members,
    own_rows,
    program_line,
    traced_function,
)
from ronda.jax._exit import wait_for_programs
from ronda.jax._primitive import collective_p
from ronda.process_sets import ProcessSet, global_process_set
from ronda.types import DType, ReduceOp, Wire


class Compression:
    """The formats in which floating-point elements are sent. Ronda adds in 32 bits and rounds each
    sum once.
    """

    none = Wire.NONE
    fp16 = Wire.FP16
    bf16 = Wire.BF16
    fp8 = Wire.FP8_E4M3


def allreduce(
    tree: Any,
    op: ReduceOp = ReduceOp.AVERAGE,
    *,
    name: str | None = None,
    compression: Wire = Compression.none,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
    error_feedback: bool = False,
    grouped: bool = False,
) -> Any:
    """Combines the arrays of all ranks; every rank gets the result. The derivative of an allreduce
    with SUM or AVERAGE is the allreduce of the derivatives.

    Args:
        error_feedback: whether to add the compression's rounding errors to this rank's next array
            of this name.
        grouped: if true, the floating-point arrays form one group and the other arrays form another
            group. The arrays of a group are reduced together or, if one of them fails, not at all.
            If false, each array is reduced as soon as all ranks have submitted it.
    """
    return _collect(
        Kind.ALLREDUCE,
        tree,
        name,
        process_set,
        op=op,
        wire=compression,
        prescale=prescale,
        postscale=postscale,
        error_feedback=error_feedback,
        grouped=grouped,
    )


def reducescatter(
    tree: Any,
    op: ReduceOp = ReduceOp.AVERAGE,
    *,
    name: str | None = None,
    compression: Wire = Compression.none,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Like allreduce(), but each rank gets only its share of the rows. With n rows and m ranks,
    each rank gets n // m rows, and the first n % m ranks get one row more.
    """
    return _collect(
        Kind.REDUCESCATTER,
        tree,
        name,
        process_set,
        own_rows,
        op=op,
        wire=compression,
        prescale=prescale,
        postscale=postscale,
    )


def broadcast(
    tree: Any,
    root: int = 0,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Copies root's arrays to every rank."""
    return _collect(Kind.BROADCAST, tree, name, process_set, peer=root)


def allgather(
    tree: Any, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Concatenates the rows of all ranks in rank order. Every rank gets the result. The ranks may
    have different numbers of rows only outside of jit, and only if the arrays are not on GPUs.
    """
    return _collect(Kind.ALLGATHER, tree, name, process_set, _all_rows)


def alltoall(
    tree: Any,
    splits: Sequence[int] | None = None,
    *,
    received_splits: Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows to every rank, and receives rows from every rank, in rank order.

    Args:
        splits: how many rows go to each rank, as integers that are constants under jit. None means
            the same number for each rank.
        received_splits: with `splits`, how many rows come from each rank. Either all ranks pass it,
            or no rank does. Under jit, vmap and grad all ranks must pass `received_splits`, because
            JAX needs the shapes of the results. In other calls without `received_splits`, the ranks
            exchange these numbers first.

    Returns:
        The received rows. With `splits`, returns the rows and a tuple with the number of rows from
        each rank.
    """
    if splits is None:
        if received_splits is not None:
            raise InvalidArgumentError("alltoall: received_splits is for splits: pass these too")
        return _collect(Kind.ALLTOALL, tree, name, process_set, _same_rows)
    id = id_of_members("alltoall", process_set)
    known = received_splits is not None
    with _told(id, Kind.ALLTOALL, name, tree) if known else Told(id, _name_of_splits(name)):
        sent = _checked_splits("splits", splits, id)
        _check_rows(tree, sent)
        if received_splits is not None:
            received = _checked_splits("received_splits", received_splits, id)
    if received_splits is None:
        received = _checked_splits(
            "received_splits", _ask_for_splits(tree, sent, name, process_set), id
        )
    rows = _collect(
        Kind.ALLTOALL,
        tree,
        name,
        process_set,
        lambda rows, process_set: sum(received),
        splits=sent,
        received_splits=received,
    )
    return rows, received


def _name_of_splits(name: str | None) -> str | None:
    return None if name is None else f"{name}.splits"


def _check_rows(tree: Any, splits: tuple[int, ...]) -> None:
    for leaf in jax.tree_util.tree_leaves(tree):
        rows = np.shape(leaf)[0] if np.ndim(leaf) > 0 else 1
        if rows != sum(splits):
            raise InvalidArgumentError(
                f"alltoall: splits is {list(splits)}, {sum(splits)} rows together, but the array"
                f" has {rows}: pass splits that add up to its rows"
            )


def _checked_splits(role: str, splits: Sequence[int], id: int) -> tuple[int, ...]:
    try:
        numbers = tuple(operator.index(each) for each in splits)
    except TypeError:
        raise InvalidArgumentError(
            f"alltoall: {role} is {splits!r:.80}: pass a sequence of integers, which under jit are"
            " constants of the program"
        ) from None
    members = native.process_set_size(id)
    if len(numbers) != members or min(numbers) < 0:
        raise InvalidArgumentError(
            f"alltoall: {role} is {list(numbers)}: pass {members} numbers of rows, one for each"
            " rank"
        )
    return numbers


def _ask_for_splits(
    tree: Any, splits: tuple[int, ...], name: str | None, process_set: ProcessSet
) -> Sequence[int]:
    """Returns how many rows each rank sends to this rank."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(tree)):
        raise InvalidArgumentError(
            "alltoall: under jit, vmap and grad the shape of the result must be known: pass"
            " received_splits, how many rows each rank sends to this one"
        )
    found: Sequence[int] = exchanges.alltoall(
        np.array(splits, np.int64), name=_name_of_splits(name), process_set=process_set
    ).tolist()
    return found


def send(tree: Any, to: int, *, tag: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """Sends arrays to rank `to`. The n-th send to rank `to` with a tag matches that rank's n-th
    recv() from this rank with the same tag. Under jit, messages that do not depend on each other
    have no defined order. Give each message its own tag, or make the next message depend on the
    result of this one.

    Returns:
        The tree. Computations that use this result run after the message.
    """
    return _collect(Kind.SEND, tree, None, process_set, peer=to, tag=tag)


def recv(
    like: Any, source: int, *, tag: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Receives arrays from rank `source`.

    Args:
        like: a tree of arrays, or of jax.ShapeDtypeStruct, with the shapes and types of the
            received arrays.
    """
    leaves, structure = jax.tree_util.tree_flatten(like)
    id = id_of_members("recv", process_set)
    expected = [
        jax.ShapeDtypeStruct(np.shape(each), _dtype_in_jax("recv: an array", each))
        for each in leaves
    ]
    sent = [jax.eval_shape(_without_complex, each) for each in expected]
    call = Call(
        Kind.RECV,
        None,
        ("",) * len(leaves),
        program_line(),
        traced_function(),
        process_set=id,
        peer=source,
        tag=tag,
        received=tuple((each.shape, each.dtype) for each in sent),
    )
    results = collective_p.bind(call=call)
    return jax.tree_util.tree_unflatten(
        structure, [_as_complex(each, own.dtype) for each, own in zip(results, expected)]
    )


def barrier(tree: Any = None, *, process_set: ProcessSet = global_process_set) -> Any:
    """Waits until every rank of the set has called barrier().

    Returns:
        The tree. Under jit, computations that use this result run after the barrier. For arrays on
        a GPU, call barrier() outside of jit; the call first waits for the arrays.
    """
    return _collect(Kind.BARRIER, tree, None, process_set)


def join(process_set: ProcessSet = global_process_set, *, count_absent: bool = False) -> int:
    """Announces that this rank has no more data, and waits until every rank has called join().
    Until then, the other ranks' operations continue without this rank where possible. join() cannot
    be called under jit.

    Args:
        count_absent: if true, averages divide by the size of the set, and not by the number of
            ranks that take part.

    Returns:
        The rank that joined last.
    """
    wait_for_programs()  # this rank's programs may still run
    return exchanges.join(process_set, count_absent=count_absent)


def error_of(error: BaseException) -> RondaError | None:
    """Returns the RondaError that caused an exception in a program under jit, or None."""
    return _carried_errors.original_of(error)


def _all_rows(rows: int, process_set: int) -> int:
    return rows * native.process_set_size(process_set)


def _same_rows(rows: int, process_set: int) -> int:
    size = native.process_set_size(process_set)
    if rows % size:
        raise InvalidArgumentError(
            f"alltoall: {rows} rows cannot be distributed equally to {size} ranks: pad the array"
        )
    return rows


def _collect(
    kind: Kind,
    tree: Any,
    name: str | None,
    process_set: ProcessSet,
    rows_of: Callable[[int, int], int] | None = None,
    **options: Any,
) -> Any:
    """Calls an operation on a tree."""
    function = kind.name.lower()
    id = id_of_members(function, process_set)
    _check_name(function, name)
    with_paths, structure = tree_flatten_with_path(tree)
    labels = tuple(jax.tree_util.keystr(path) for path, _ in with_paths)
    leaves = [each for _, each in with_paths]
    with _told(id, kind, name, tree, **options):
        options = _converted(options)
        for label, leaf in zip(labels, leaves):
            _check_leaf(kind, f"{function}: the array {label}".rstrip(), leaf, options.get("op"))
        rows = tuple(rows_of(np.shape(each)[0], id) for each in leaves) if rows_of else ()
    if not leaves and kind != Kind.BARRIER:
        return tree
    call = Call(
        kind,
        name,
        labels,
        program_line(),
        traced_function(),
        process_set=id,
        rows=rows,
        **options,
    )
    arrays = [jnp.asarray(each) for each in leaves]
    results = _bind([_without_complex(each) for each in arrays], call)
    return jax.tree_util.tree_unflatten(
        structure, [_as_complex(each, array.dtype) for each, array in zip(results, arrays)]
    )


@contextlib.contextmanager
def _told(id: int, kind: Kind, name: str | None, tree: Any, **options: Any) -> Iterator[None]:
    """A context manager in which a rank checks a call. If an argument is wrong, the call also fails
    on the other ranks: see Told.
    """
    try:
        yield
    except Exception:
        with contextlib.ExitStack() as told:
            for each in _refusals(id, kind, name, tree, options):
                told.enter_context(each)
            raise


def _refusals(
    id: int, kind: Kind, name: str | None, tree: Any, options: dict[str, Any]
) -> list[Told]:
    """Returns a Told for each array of a call.

    Returns none for an unnamed call in a program, and for an unnamed group, because a rank with
    wrong arguments does not know their names. The other ranks then wait until their deadline.
    """
    labels = [jax.tree_util.keystr(path) for path, _ in tree_flatten_with_path(tree)[0]]
    if kind == Kind.SEND:
        return [ToldToPeer(id, native.rank(), options["peer"], options["tag"]) for _ in labels]
    is_traced, is_group = not trace_state_clean(), bool(options.get("grouped"))
    if name is not None and is_group and not is_traced:
        return [Told(id, name, len(labels))]
    if name is not None:
        return [Told(id, name + label) for label in labels]
    return [] if is_traced or is_group else [Told(id, None) for _ in labels]


def _converted(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a call, after converting those of a reduction to their types."""
    if options.get("grouped") and options["error_feedback"]:
        raise InvalidArgumentError("allreduce: error_feedback is for arrays that are not grouped")
    types = {"op": ReduceOp, "wire": Wire, "prescale": float, "postscale": float}
    return {**options, **{key: types[key](options[key]) for key in types if key in options}}


def _is_complex(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.complexfloating))


def _without_complex(array: Any) -> Any:
    """Returns an array as Ronda sends it: complex numbers as pairs of their parts, in one more
    dimension. Sums, averages and exchanges treat the two parts alike.
    """
    return jnp.stack([array.real, array.imag], -1) if _is_complex(array.dtype) else array


def _as_complex(array: Any, dtype: Any) -> Any:
    """The inverse of _without_complex(): returns an array of `dtype`."""
    return jax.lax.complex(array[..., 0], array[..., 1]) if _is_complex(dtype) else array


def _bind(arrays: list[Any], call: Call) -> list[Any]:
    """Calls the primitive. Makes one call for the arrays that have derivatives, and one for the
    others. The arrays of a message, which have no derivatives, stay in one call, because the
    receiver relies on their order.
    """
    is_inexact = [jnp.issubdtype(each.dtype, jnp.inexact) for each in arrays]
    if len(set(is_inexact)) < 2 or call.kind == Kind.SEND:
        return list(collective_p.bind(*arrays, call=call))
    results: list[Any] = [None] * len(arrays)
    for kind in (True, False):
        indices = [i for i, each in enumerate(is_inexact) if each is kind]
        found = collective_p.bind(*(arrays[i] for i in indices), call=call.part(indices))
        for i, result in zip(indices, found):
            results[i] = result
    return results


def _check_name(function: str, name: str | None) -> None:
    if name is None:
        return
    if not name or "\n" in name or name.startswith("ronda/"):
        raise InvalidArgumentError(
            f"{function}: the name {name!r} is empty, has a line break, or begins with 'ronda/':"
            " choose another one"
        )


def _dtype_in_jax(role: str, leaf: Any) -> np.dtype[Any]:
    """Returns the dtype that a leaf of a tree has as an array of JAX.

    Raises:
        InvalidArgumentError: the leaf is neither an array nor a number.
    """
    try:
        return jnp.result_type(leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf))
    except (TypeError, ValueError):
        found = getattr(leaf, "dtype", type(leaf).__name__)
        raise InvalidArgumentError(
            f"{role} is {found}, and neither numbers nor an array of numbers: put None into its"
            " place in the tree, and put it back into the result"
        ) from None


def _check_leaf(kind: Kind, role: str, leaf: Any, op: ReduceOp | None) -> None:
    """Rejects arrays of types that Ronda does not support, and values that JAX would silently
    change.
    """
    taken = _dtype_in_jax(role, leaf)
    own = getattr(leaf, "dtype", None)
    if own is not None and jax.dtypes.issubdtype(own, jax.dtypes.extended):
        raise InvalidArgumentError(
            f"{role} is {own}, which Ronda does not know: pass jax.random.key_data(key)"
        )
    if own is not None and np.dtype(own) != taken:
        raise InvalidArgumentError(
            f"{role} is {own}, which JAX would round to {taken}: call"
            ' jax.config.update("jax_enable_x64", True), or pass'
            f" array.astype({taken.name!r})"
        )
    if _is_complex(taken) and op not in (None, ReduceOp.SUM, ReduceOp.AVERAGE):
        raise InvalidArgumentError(
            f"{role} is {taken}, and complex numbers have no {op.name}: use op=Sum or Average, or"
            " reduce array.real and array.imag separately"
        )
    sent = np.finfo(taken).dtype if _is_complex(taken) else taken
    if sent.name not in DTYPES:
        raise InvalidArgumentError(f"{role} is {taken}, which Ronda does not know: cast it")
    if op == ReduceOp.AVERAGE and not jnp.issubdtype(taken, jnp.inexact):
        raise InvalidArgumentError(
            f"{role} is {taken}, and an average of integers is not exact: use op=Sum, or pass"
            " array.astype('float32')"
        )
    if kind in REDUCTIONS and DTYPES[sent.name] == DType.UINT8 and sent != np.uint8:
        raise InvalidArgumentError(
            f"{role} is {taken}, in which Ronda does not add: pass array.astype('bfloat16') with"
            " compression=Compression.fp8"
        )
    if kind in OF_ROWS and np.ndim(leaf) == 0:
        raise InvalidArgumentError(f"{role} is a scalar: pass one with rows, array.reshape(1)")
