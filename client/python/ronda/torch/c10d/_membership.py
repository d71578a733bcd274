# SPDX-License-Identifier: Apache-2.0

"""torch.distributed groups whose members change, for example because ranks die or are excluded.

A process can be in only one Ronda job at a time. To change the members of the group of all ranks,
each member of the changed group leaves its job and joins a new job. The old job fails on the ranks
that stay in it, and its other groups end.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist

from ronda import job
from ronda._library import native
from ronda._ports import free_port
from ronda.torch.c10d import _rendezvous
from ronda.torch.c10d._work import Work

if TYPE_CHECKING:
    from ronda.torch.c10d._group import Group

_EPOCHS = 10**9


def shrink(group: Group, excluded: Sequence[int], timeout_s: float) -> Group:
    """Creates a group of the ranks of `group` except `excluded`. torch calls this function on the
    new group's ranks.

    If `group` contains all ranks, the remaining ranks find each other through torch's store. The
    server process of the store must then still be running. If `group` does not contain all ranks,
    its job must not have failed.

    Args:
        group: the existing group.
        excluded: ranks in `group`.
        timeout_s: the deadline of the collectives. 0 means the job's deadline.
    """
    remaining = [rank for rank in range(group.size()) if rank not in set(excluded)]
    rank, name = remaining.index(group.rank()), f"{group.group_name} without {list(excluded)}"
    members = [group.ranks[rank] for rank in remaining]
    if group.process_set != 0:
        process_set = native.create_process_set(sorted(members), f"c10d/{name}")
        return type(group)(rank, members, process_set, name, timeout_s)
    size, is_one_host = len(members), native.local_size() == native.size()
    address = "127.0.0.1" if is_one_host else socket.gethostname()
    key = _rendezvous.next_key(size)
    place = _rendezvous.meeting_point(group.store, key, rank, size, address)
    _rendezvous.await_all(group.store, f"{key}/ready", size)  # no rank is in an earlier operation
    reason = f"shrink_group() has left out the ranks {list(excluded)}"
    job.rejoin(_rendezvous.USER, reason, rank=rank, size=size, **place)
    return type(group)(rank, range(size), 0, name, timeout_s, group.store)


def serve_all_devices(whole: Any, group: Group) -> None:
    """Makes Ronda serve a torch group for tensors on every device."""
    kind: Any = dist.ProcessGroup.BackendType.CUSTOM
    for device in ("cpu", "cuda"):
        whole._register_backend(torch.device(device), kind, group)
    whole._set_default_backend(kind)


class _Handle(NamedTuple):
    """The address of a process, in the form that is sent to the other processes."""

    host: str
    port: int
    nonce: str  # distinguishes processes, and cannot be guessed

    @classmethod
    def parse(cls, text: str) -> _Handle:
        try:
            host, port, nonce = json.loads(text)
            return cls(str(host), int(port), str(nonce))
        except (ValueError, TypeError):
            raise ValueError(
                f"reconfigure: {text!r} is no handle of Ronda's: pass what "
                "get_reconfigure_handle() has returned in each process"
            ) from None


class ReconfigurableGroup(dist.ProcessGroup):
    """The group of all ranks, for a program that may change its ranks at any time.

    The class is a whole ProcessGroup and not a Backend, because torch asks a Backend that is
    written in Python only once for its rank and size.
    """

    def __init__(self, store: Any, group: Group) -> None:
        """
        Args:
            store: torch's store.
            group: the group of the first members, which runs the operations. reconfigure() changes
                the members of `group`.
        """
        super().__init__(store, group.rank(), group.size())
        self._group = group
        serve_all_devices(self, group)
        self._handle = ""
        self._uuids: set[int] = set()

    # -- Functions of torch's C++ code, and their Python names --

    def getRank(self) -> int:  # noqa: N802
        return self._group.rank()

    def getSize(self) -> int:  # noqa: N802
        return self._group.size()

    rank, size = getRank, getSize
    supports_reconfigure = property(lambda _: True)

    def get_reconfigure_handle(self) -> str:
        """Returns the address at which the other members find this process in the next
        reconfigure(). reconfigure() gives the process a new address, so no member can join with an
        old one.
        """
        if not self._handle:
            host = socket.gethostname()
            self._handle = json.dumps(_Handle(host, free_port(host), secrets.token_hex(16)))
        return self._handle

    def reconfigure(self, opts: Any) -> Work:
        """Turns this group into the group of the processes with these handles, and blocks until
        they have joined.

        Operations in flight fail. The process with the first handle becomes rank 0. Handles in a
        set are sorted as strings.

        Raises:
            ValueError: the handles, the uuid or the hints are wrong.
            RondaError: the processes have not joined in time. The process is then in no group, and
                may call reconfigure() again with a new uuid.
        """
        members = list(opts.handles) if isinstance(opts.handles, list) else sorted(opts.handles)
        self._check(opts, members)
        rank, size = members.index(self._handle), len(members)
        first = [_Handle.parse(member) for member in members][0]
        self._uuids.add(opts.uuid)
        self._handle = ""
        secret = hashlib.sha256(json.dumps([opts.uuid, members]).encode()).hexdigest()
        limit = {} if opts.timeout is None else {"start_timeout_s": opts.timeout.total_seconds()}
        job.rejoin(
            _rendezvous.USER,
            "reconfigure() makes another group",
            rank=rank,
            size=size,
            master_address=first.host,
            master_port=first.port,
            secret=secret,
            epoch=opts.uuid % _EPOCHS,
            **limit,
        )
        self._group.become(rank, size)
        # torch records the members of a group when it creates the group.
        dist.distributed_c10d._world.pg_group_ranks[self] = {i: i for i in range(size)}
        return Work("reconfigure", [], [])

    def _check(self, opts: Any, members: Sequence[str]) -> None:
        if not self._handle or self._handle not in members:
            raise ValueError(
                "reconfigure: the handles lack this process' own: each member passes what "
                "get_reconfigure_handle() has returned in each, since its last reconfigure()"
            )
        if len(set(members)) != len(members):
            raise ValueError("reconfigure: a handle is there twice: each process has one rank")
        if opts.uuid in self._uuids:
            raise ValueError(
                f"reconfigure: the uuid {opts.uuid} was used before: pass a new one, the same in "
                "each process"
            )
        if opts.hints:
            raise ValueError(f"reconfigure: Ronda takes no hints, but got {sorted(opts.hints)}")
