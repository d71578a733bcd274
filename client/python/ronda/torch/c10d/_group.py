# SPDX-License-Identifier: Apache-2.0

"""The class of a torch.distributed group over Ronda."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import torch

from ronda import job
from ronda._library import native
from ronda.errors import NotInitializedError, PeerFailedError
from ronda.torch.c10d import _membership, _versions
from ronda.torch.c10d._exchanges import Exchanges
from ronda.torch.c10d._lane_memory import LaneMemory


def create(rank: int, ranks: Sequence[int], name: str, timeout: timedelta) -> Group:
    """Creates a group of some ranks of the job. Every rank of the group must call this function.

    Args:
        rank: the rank of this process in the group.
        ranks: the members' ranks in the job, in the order of the group.
        name: the name of the group. All members pass the same name, and no other group has this
            name.
        timeout: the deadline of the group's collectives. torch's default means the job's deadline.

    Raises:
        NotInitializedError: the group of all ranks has a different backend, and this process has
            not joined a Ronda job.
    """
    if not native.is_initialized():
        raise NotInitializedError(
            f"the group {name!r} of ranks {list(ranks)} needs a job of Ronda: make the group of all"
            " ranks with init_process_group('ronda') before, or call ronda.init() on all ranks"
        )
    process_set = native.create_process_set(sorted(ranks), f"c10d/{name}")
    return Group(rank, ranks, process_set, name, _versions.seconds(timeout))


def backend_of(process_group: Any, device: torch.device) -> Group | None:
    """Returns a torch group's Ronda backend for a device, or None if a different backend serves the
    device.
    """
    backend = process_group._get_backend(device)
    return backend if isinstance(backend, Group) else None


def group_of(process_group: Any) -> Group:
    """Returns a torch group's Ronda backend.

    Raises:
        ValueError: Ronda is not a backend of the group.
    """
    if isinstance(process_group, Group):
        return process_group
    for device in process_group._device_types if _versions.HAS_BACKENDS else ():
        group = backend_of(process_group, device)
        if group is not None:
            return group
    raise ValueError(
        f"this needs a process group of the backend 'ronda', not {process_group.name()!r}"
    )


@_versions.with_other_names
class Group(Exchanges, _versions.GroupBase):  # type: ignore[misc]
    """A torch group whose ranks form a Ronda process set.

    In new versions of PyTorch this class is a Backend. In older versions this class is a whole
    ProcessGroup (see _versions).
    """

    # Keeps Groups alive, because C++ code that holds a Backend does not always keep the Python
    # object alive.
    _alive: ClassVar[set[Group]] = set()

    def __init__(
        self,
        rank: int,
        ranks: Sequence[int],
        process_set: int,
        name: str,
        timeout_s: float,
        store: Any = None,
    ) -> None:
        """
        Args:
            rank: the rank of this process in the group.
            ranks: the members' ranks in the job, in the order of the group.
            process_set: the id of the process set of these ranks. shutdown() removes the set,
                unless it is the set of all ranks.
            name: the name of the group.
            timeout_s: the deadline of the collectives. 0 means the job's deadline.
            store: torch's store, for the group of all ranks.
        """
        _versions.GroupBase.__init__(self, rank, len(ranks))
        Exchanges.__init__(self, rank, ranks, process_set, timeout_s)
        self._name = name
        self.store = store
        self._options = _versions.backend_options(name, ranks, timeout_s)
        self._memory = LaneMemory(self._lane, process_set)
        # Before 2.15 torch calls shutdown() only for the group of all ranks, and just drops the
        # other groups. The finalizer may run during garbage collection, so it does not wait.
        self._end = weakref.finalize(
            self, _give_back, process_set, job.number(), native.lane_retire
        )
        self._end.atexit = False
        if _versions.HAS_BACKENDS:
            Group._alive.add(self)

    # -- Properties that torch reads --

    def rank(self) -> int:
        return self._group_rank

    def size(self) -> int:
        return len(self._ranks)

    @property
    def ranks(self) -> Sequence[int]:
        """The members' ranks in the job, in the order of the group."""
        return self._ranks

    def getBackendName(self) -> str:  # noqa: N802
        return "ronda"

    @property
    def group_name(self) -> str:
        return self._name

    def group_name_of_torch(self) -> str:
        return self._name

    def set_group_name(self, name: str) -> None:
        self._name = name

    @property
    def _device_types(self) -> list[torch.device]:
        names = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
        return [torch.device(name) for name in names]

    def _get_backend(self, _device: Any) -> Group:
        """Returns the backend of a device. torch calls this method if this object is the whole
        group.
        """
        return self

    # The following properties replace torch's own, which read the value from the subclass, and so
    # would recurse endlessly.
    supports_coalescing = property(lambda _: True)
    supports_splitting = property(lambda _: _versions.HAS_BACKENDS)
    supports_shrinking = property(lambda _: True)
    supports_reconfigure = property(lambda _: False)
    supports_window = property(lambda _: False)
    supports_abort_hooks = property(lambda _: False)
    supports_completion_hooks = property(lambda _: False)
    _supports_time_estimate = property(lambda _: False)

    @property
    def options(self) -> Any:
        """The group's options, which torch copies when it splits a new group from this one."""
        return self._options

    def split(self, _store: Any, ranks: Sequence[int], options: Any) -> Group:
        """Creates a group of some ranks of this group. torch calls this method on the new group's
        ranks.

        Args:
            ranks: ranks in this group, in the order that they have in the new group.
            options: torch's options, with the new group's name and timeout.

        Raises:
            ValueError: this rank is not among `ranks`. split() cannot return None in this case,
                because torch's C++ code would crash.
        """
        if self._group_rank not in ranks:
            raise ValueError(
                f"split_group: rank {self._group_rank} is in none of the groups. Give it one of "
                f"its own, [{self._group_rank}], or use new_group()"
            )
        return create(
            list(ranks).index(self._group_rank),
            [self._ranks[rank] for rank in ranks],
            options.group_name,
            options._timeout,
        )

    def shrink(self, excluded: Sequence[int], _flags: int = 0, options: Any = None) -> Group:
        """Creates a group of this group's ranks except `excluded`; see _membership."""
        timeout_s = self._timeout_s if options is None else _versions.seconds(options._timeout)
        return _membership.shrink(self, excluded, timeout_s)

    def become(self, rank: int, size: int) -> None:
        """Turns this object into the group of all ranks of the job that this process has just
        joined.
        """
        self._begin(rank, range(size), 0)
        self._memory = LaneMemory(self._lane, 0)
        self._options = _versions.backend_options(self._name, self._ranks, self._timeout_s)

    def perform_nocolor_split(self, _device: Any) -> None:
        """Does nothing. torch calls this method on ranks that are not in a new group, if their own
        group is bound to a device.
        """

    # -- Tensors that NCCL can use directly --

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Returns whether allocate_tensor() works on this device; see LaneMemory.supports()."""
        return self._memory.supports(device)

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: torch.device) -> Any:
        """Returns a flat tensor in memory that all ranks of the group have registered with NCCL.

        All ranks must allocate and free such tensors in the same order.

        Raises:
            torch.cuda.OutOfMemoryError: the memory is full; the text names the setting.
            InvalidArgumentError: the group has no such memory.
        """
        return self._memory.allocate(size, dtype, torch.device(device))

    @property
    def mem_allocator(self) -> Any:
        """torch's allocator of this memory, for a torch.cuda.MemPool."""
        return self._memory.allocator

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the deadline of the group's later collectives."""
        self._timeout_s = _versions.seconds(timeout)

    _set_default_timeout = set_timeout

    # -- Its end --

    def abort(self) -> None:
        """Ends the group at once. For the group of all ranks abort() also ends the job, and then
        operations in flight fail on every rank.
        """
        if self._process_set == 0 and self._job == job.number():
            job.abort(f"the process group {self._name!r} was aborted")
        self._end_now()

    def shutdown(self) -> None:
        """Waits for the group's collectives, and removes the process set. The job continues,
        because other groups may use it.
        """
        if self._process_set != 0 and self._job == job.number():
            self._await_collectives()
        self._end_now()

    def _end_now(self) -> None:
        self._memory.drop()
        end = self._end.detach()
        if end is not None:
            process_set, job_number, _ = end[2]
            _give_back(process_set, job_number, native.lane_close)
        Group._alive.discard(self)


def _give_back(process_set: int, job_number: int, end_lane: Callable[[int], None]) -> None:
    if process_set == 0 or not native.is_initialized() or job.number() != job_number:
        return
    # If the job has failed, its process sets are already released.
    with contextlib.suppress(PeerFailedError):
        end_lane(process_set)
        native.release(native.remove_process_set_async(process_set))
