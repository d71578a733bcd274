# SPDX-License-Identifier: Apache-2.0

"""Horovod's elastic API for JAX; ronda/_elastic.py explains how it works.

state = elastic.JaxState(params=params, opt_state=opt_state, key=jax.random.key(0), step=0)

@elastic.run
def train(state):
    while state.step < 1000:
        state.params, state.opt_state = train_step(state.params, state.opt_state, ...)
        state.step += 1
        state.commit()
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ronda import exchanges
from ronda._elastic import HostsUpdatedInterrupt, ObjectState, State, run
from ronda._horovod import rank, size
from ronda._refusals import Told
from ronda.errors import InvalidArgumentError
from ronda.handles import Handle
from ronda.jax._exit import wait_for_programs
from ronda.objects import broadcast_object

__all__ = ["HostsUpdatedInterrupt", "JaxState", "ObjectState", "State", "run"]


class JaxState(ObjectState):
    """Attributes that are pytrees: parameters, optimizer state, keys, numbers, Python objects.

    A commit copies the attributes, so programs may donate the state's arrays. Arrays keep their
    types, weak types and devices. A new rank must start with trees of the same structure. sync()
    gives it the values, shapes and types. If an attribute has no arrays, sync() pickles the whole
    attribute.
    """

    def __init__(self, **kwargs: Any) -> None:
        """
        Args:
            **kwargs: names and initial values of the attributes.
        """
        super().__init__(**kwargs)
        self._place: tuple[int, int] | None = None  # rank and size since the last sync()

    def save(self) -> None:
        """Waits for the programs that compute the attributes, and then copies the attributes.

        Raises:
            InvalidArgumentError: an array of the state was donated to a program.
        """
        self._wait()
        super().save()

    def commit(self) -> None:
        """Saves the current state in memory, for a later restore(). First waits for the programs
        that compute the state. If a program has failed, commit() raises the program's error, and
        keeps the last commit.

        Raises:
            InvalidArgumentError: an array of the state was donated to a program.
        """
        self._wait()
        super().commit()

    def check_host_updates(self) -> None:
        """Like the base class, but first waits for this rank's programs, because they run with the
        current members.
        """
        wait_for_programs()
        super().check_host_updates()

    def restore(self) -> None:
        """Waits for this rank's programs, and then returns to the last saved state."""
        wait_for_programs()
        super().restore()

    def reset(self) -> None:
        """If this process's rank or the number of ranks has changed, makes JAX recompile its
        programs, because the compiled ones may contain the old numbers.
        """
        if self._place != (rank(), size()):
            jax.clear_caches()

    def sync(self) -> None:
        """Copies the attributes of rank 0, or of the rank with the newest commit, to all ranks, and
        saves them.

        Raises:
            InvalidArgumentError: this rank's trees have a different structure.
        """
        self._place = (rank(), size())
        own = self._attributes()
        described = {name: _describe(tree) for name, tree in own.items()}
        sent = broadcast_object(described, self._source, name="JaxState")
        with contextlib.ExitStack() as told:
            for name, tree in sent.items():
                for wire_name in _wire_names(name, tree):
                    told.enter_context(Told(0, wire_name))
            _check_structures(described, sent, self._source)
        for name in sent:  # in the same order on every rank
            setattr(self, name, _broadcast(name, own[name], sent[name], self._source))
        self.save()

    def _copy(self, value: Any, known: dict[int, Any]) -> Any:
        def copy_leaf(leaf: Any) -> Any:
            return leaf.copy() if _is_array(leaf) else copy.deepcopy(leaf, known)

        return jax.tree_util.tree_map(copy_leaf, value)

    def _wait(self) -> None:
        """Waits for the state's arrays. Raises an error for donated arrays, because their values
        are gone.
        """
        for name, tree in self._attributes().items():
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
                if isinstance(leaf, jax.Array) and leaf.is_deleted():
                    raise InvalidArgumentError(
                        f"JaxState: the array {name}{jax.tree_util.keystr(path)} was donated to a"
                        f" program: assign the program's result to state.{name} before the commit"
                    )
        jax.block_until_ready([_arrays_of(tree) for tree in self._attributes().values()])


# -- Trees --


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray):
        return not leaf.dtype.hasobject  # such an array is pickled
    return isinstance(leaf, jax.Array)


def _arrays_of(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree_util.tree_leaves(tree) if _is_array(leaf)]


@dataclasses.dataclass(frozen=True)
class _Array:
    """Describes an array to the other ranks before they receive it.

    dtype: the type of the elements, or of the keys' data.
    key_impl: the result of jax.random.key_impl(), or None if the array has no keys.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_numpy: bool
    is_weak: bool
    key_impl: Any = None


@dataclasses.dataclass(frozen=True)
class _Tree:
    """Describes an attribute to the other ranks before they receive it.

    paths: the paths of the leaves. None if the attribute has no arrays; `leaves` then holds only
        the attribute itself.
    leaves: an _Array for each array, and the other leaves themselves.
    """

    paths: list[str] | None
    leaves: list[Any]


def _describe(tree: Any) -> _Tree:
    if not _arrays_of(tree):
        return _Tree(None, [tree])
    leaves = jax.tree_util.tree_leaves(tree)
    described = [_describe_array(leaf) if _is_array(leaf) else leaf for leaf in leaves]
    return _Tree(_paths_of(tree), described)


def _paths_of(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def _describe_array(array: Any) -> _Array:
    data = _data_of(array)
    return _Array(
        data.shape,
        np.dtype(data.dtype),
        isinstance(array, np.ndarray),
        getattr(array, "weak_type", False),
        jax.random.key_impl(array) if _has_keys(array) else None,
    )


def _has_keys(array: Any) -> bool:
    return jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)


def _data_of(array: Any) -> Any:
    return jax.random.key_data(array) if _has_keys(array) else array


# -- Transport --


def _wire_names(name: str, tree: _Tree) -> list[str]:
    """Returns the names under which the arrays of an attribute are broadcast."""
    return [
        f"JaxState.{name}{path}"
        for path, leaf in zip(tree.paths or (), tree.leaves)
        if isinstance(leaf, _Array)
    ]


def _check_structures(own: dict[str, _Tree], sent: dict[str, _Tree], source: int) -> None:
    if own.keys() != sent.keys():
        raise InvalidArgumentError(
            f"JaxState has the attributes {sorted(own)} on rank {rank()}, and {sorted(sent)} on"
            f" rank {source}: pass the same names on every rank"
        )
    for name, tree in sent.items():
        if tree.paths is None or own[name].paths == tree.paths:
            continue
        ours, theirs = own[name].paths or [], tree.paths
        differing = sorted(set(ours) ^ set(theirs))
        example = f", and only one of them has {name}{differing[0]}" if differing else ""
        raise InvalidArgumentError(
            f"JaxState: the tree {name} has {len(ours)} leaves on rank {rank()} and {len(theirs)}"
            f" on rank {source}{example}: build it in the same way on every rank"
        )


def _broadcast(name: str, own: Any, sent: _Tree, source: int) -> Any:
    """Returns the value that the attribute has on the source.

    `sent` describes the value on the source, and `own` is this rank's value.
    """
    if sent.paths is None:
        return own if rank() == source else sent.leaves[0]
    leaves, structure = jax.tree_util.tree_flatten(own)
    pairs = [(leaf, new) for leaf, new in zip(leaves, sent.leaves) if isinstance(new, _Array)]
    begun = [
        _begin(wire_name, *pair, source) for wire_name, pair in zip(_wire_names(name, sent), pairs)
    ]
    arrived = [handle.wait() for handle in begun]
    if rank() == source:
        return own
    arrays = iter([_make_array(data, *pair) for data, pair in zip(arrived, pairs)])
    received = [next(arrays) if isinstance(new, _Array) else new for new in sent.leaves]
    return jax.tree_util.tree_unflatten(structure, received)


def _begin(name: str, own: Any, new: _Array, source: int) -> Handle:
    """Starts the broadcast of an array's bytes."""
    if rank() == source:
        data = np.ascontiguousarray(_data_of(own)).reshape(-1).view(np.uint8)
    else:
        data = np.empty(math.prod(new.shape) * new.dtype.itemsize, np.uint8)
    return exchanges.broadcast_async(data, source, name=name)


def _make_array(data: np.ndarray[Any, Any], own: Any, new: _Array) -> Any:
    """Returns the received array, on the device of this rank's own array."""
    data = data.view(new.dtype).reshape(new.shape)
    if new.is_numpy:
        return data
    array = _weak(data) if new.is_weak else jnp.asarray(data)
    if new.key_impl is not None:
        array = jax.random.wrap_key_data(array, impl=new.key_impl)
    is_placed = isinstance(own, jax.Array) and own.committed
    return jax.device_put(array, own.sharding) if is_placed else array


def _weak(data: np.ndarray[Any, Any]) -> jax.Array:
    """Returns a weakly typed array. In an operation with another array, JAX uses the other array's
    type, as with a Python number.
    """
    return jnp.full(data.shape, data.dtype.type(0).item()).at[...].set(data)
