# SPDX-License-Identifier: Apache-2.0

"""Turns the ranks of a torch.distributed program into a Ronda job, and a Ronda job into torch's
ranks.

With rondarun and mpirun, Ronda knows the job, and gives torch the rank and the size. For env://,
Ronda creates a store, and sends the store's address to all ranks. With torchrun, or with the
program's own store, torch knows the job, and rank 0 publishes through the store the address to
which Ronda's ranks connect. Ronda uses the store and this address only to connect its ranks.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from torch._C._distributed_c10d import TCPStore

from ronda import _env, _local_rank, job
from ronda._library import native
from ronda._ports import free_port
from ronda.errors import RondaError

USER = "c10d"
_KEY = "ronda/job"
# Counts the jobs that this process has formed through torch's stores. The number is the same on all
# ranks.
_meetings = itertools.count()
# With these launchers the ranks find each other through the launcher's environment variables. With
# other launchers they use torch's store, which also gives them a secret.
_LAUNCHERS = (
    _env.Launcher.RONDARUN,
    _env.Launcher.OPEN_MPI,
    _env.Launcher.MPICH,
    _env.Launcher.PMI,
)


def is_launched_for_ronda() -> bool:
    """Returns whether rondarun or an MPI launcher has started this process."""
    return _env.launcher() in _LAUNCHERS


def join(store: Any, rank: int, size: int) -> None:
    """Joins the job, and blocks until all ranks have joined. If the ranks are in a job that has
    failed, and meet through torch's store, they leave it and join a new one.

    Args:
        store: the store of the default group.
        rank: the rank of this process in the group.
        size: the size of the group.

    Raises:
        RuntimeError: this process has already joined a different Ronda job, the launcher's
            variables describe a different job, or the launcher's job has failed.
    """
    if is_launched_for_ronda():
        _join_launched()
    elif native.is_initialized() and not _has_failed_on_any(store, size):
        job.init(USER)
    else:
        address = os.environ.get("RONDA_MASTER_ADDR") or _own_address(size)
        port = os.environ.get("RONDA_MASTER_PORT")
        place = meeting_point(store, next_key(size), rank, size, address, port)
        reason = "init_process_group() makes a new job in place of this one, which has failed"
        job.rejoin(USER, reason, rank=rank, size=size, **_local_place(), **place)
    _check_place(rank, size)


def _join_launched() -> None:
    """Joins the job for which rondarun or an MPI launcher has started this process.

    Raises:
        RuntimeError: the job has failed. The launcher has told the ranks the place of this job
            only, so they cannot form another one.
    """
    job.init(USER)
    failure = _failure()
    if failure is not None:
        raise RuntimeError(
            "init_process_group: the job for which the launcher has started this process has "
            "failed, and the ranks cannot form another one: start the program again, start its "
            "ranks with torchrun, or use an elastic job (rondarun --min-np). The job's failure: "
            f"{failure}"
        ) from failure


def _failure() -> RondaError | None:
    """Returns the failure of the current job, or None."""
    try:
        native.job_status()
    except RondaError as error:
        return error
    return None


def _has_failed_on_any(store: Any, size: int) -> bool:
    """Returns whether the job has failed on any of the `size` ranks that call this function. All
    ranks get the same answer, although they learn of a failure at different times.
    """
    key = f"{next_key(size)}/failures"
    store.add(key, int(_failure() is not None))
    await_all(store, f"{key}/known", size)
    return int(store.add(key, 0)) > 0


def await_all(store: Any, key: str, size: int) -> None:
    """Waits until `size` ranks have called this function.

    Args:
        store: a torch store that all ranks can reach.
        key: a key that no earlier call has used.
        size: the number of the ranks.
    """
    if store.add(key, 1) == size:
        store.set(f"{key}/all", "")
    store.wait([f"{key}/all"])


def _check_place(rank: int, size: int) -> None:
    if (native.rank(), native.size()) != (rank, size):
        raise RuntimeError(
            f"torch.distributed calls this process rank {rank} of {size}, but it is rank "
            f"{native.rank()} of {native.size()} in Ronda's job: the default group has all ranks, "
            "in the order of the launcher"
        )


def _local_place() -> dict[str, int]:
    names = {"local_rank": "LOCAL_RANK", "local_size": "LOCAL_WORLD_SIZE"}
    if not all(name in os.environ for name in names.values()):
        return {}
    return {option: int(os.environ[name]) for option, name in names.items()}


def meeting_point(
    store: Any, key: str, rank: int, size: int, address: str, port: str | None = None
) -> dict[str, object]:
    """Returns job options with the address to which the ranks connect. Rank 0 chooses the address.

    Args:
        store: a torch store that all ranks can reach.
        key: the key of the address in the store. No other job uses this key.
        rank: the rank of this process in the job.
        size: the size of the job.
        address: the address at which the other ranks reach this process, if it is rank 0.
        port: the port on which rank 0 listens. None means a free port.
    """
    if size == 1:
        return {}
    if rank == 0:
        secret = os.environ.get("RONDA_JOB_SECRET") or secrets.token_hex(16)
        _claim_publication(store, f"{key}/publisher")
        store.set(key, json.dumps([address, int(port or free_port(address)), secret]))
    names = ("master_address", "master_port", "secret")
    return dict(zip(names, json.loads(store.get(key))))


def next_key(size: int) -> str:
    """Returns a key that no earlier job in torch's store has used. torchrun keeps its store when it
    restarts the ranks, so earlier keys may still exist.
    """
    return f"{_KEY}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{size}/{next(_meetings)}"


def _claim_publication(store: Any, key: str) -> None:
    """Claims the right to publish the address, as rank 0 of the job, so that no second process can
    publish it. For the other ranks, Ronda makes this check when they connect.

    Raises:
        RuntimeError: another live process already publishes the address, because a rank has started
            a copy of itself.
    """
    own = (socket.gethostname(), os.getpid())
    # The claim and the address use different keys, because in torch 1.13 waiting ranks do not
    # notice a value that compare_set has set.
    host, pid = json.loads(store.compare_set(key, "", json.dumps(own)))
    if (host, pid) != own and host == own[0] and _is_alive(pid):
        raise RuntimeError(
            f"rank 0 of this job is process {pid} already, and this process ({own[1]}) has the "
            "same RANK: start each rank once, and remove its place (RANK, WORLD_SIZE, ...) from "
            "the environment of copies"
        )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _own_address(size: int) -> str:
    """Returns the address at which the other ranks reach rank 0."""
    if os.environ.get("LOCAL_WORLD_SIZE") == str(size):
        return "127.0.0.1"
    return os.environ.get("MASTER_ADDR") or socket.gethostname()


def serve_env() -> None:
    """Makes env:// ask Ronda for rank and size if rondarun or mpirun has started the ranks.

    Each rendezvous has its own store, so that a program may leave its group and create a new one.
    serve_env() is a program's first call to Ronda. For this reason it also adds the argument
    --local_rank, if rondarun has started the program and the program declares it.
    """
    # The module is imported by its name, because torch.distributed has a function of the same name.
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    original = handlers["env"]

    def from_env(url: str, **options: Any) -> Iterator[tuple[Any, int, int]]:
        if not is_launched_for_ronda():
            _env.export()
            yield from original(url, **options)
            return
        _join_launched()
        _check_place(*_asked_place(url))
        yield _shared_store(options.get("timeout")), native.rank(), native.size()
        raise RuntimeError("a process joins its job once: there is no second rendezvous")

    handlers["env"] = from_env
    main = getattr(sys.modules["__main__"], "__file__", None)
    if main is not None and _env.launcher() == _env.Launcher.RONDARUN:
        _local_rank.hand_over(main)


def _asked_place(url: str) -> tuple[int, int]:
    """Returns the rank and size that the program has passed to init_process_group(), or else the
    job's rank and size. torch puts the program's rank and size into the URL.
    """
    asked = dict(parse_qsl(urlsplit(url).query))
    return int(asked.get("rank", native.rank())), int(asked.get("world_size", native.size()))


def _shared_store(timeout: timedelta | None) -> Any:
    """Returns a store whose server runs in rank 0, on a port that the system has chosen."""
    limit: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    if native.rank() == 0:
        alone = native.local_size() == native.size()
        address = "127.0.0.1" if alone else _own_address(native.size())
        store = TCPStore(address, 0, native.size(), True, wait_for_workers=False, **limit)
        _broadcast(json.dumps([address, store.port]).encode())
    else:
        address, port = json.loads(_broadcast(None))
        store = TCPStore(address, port, native.size(), False, wait_for_workers=False, **limit)
    # The server ends with rank 0's store, so rank 0 waits here until the other ranks have
    # connected.
    native.monitored_barrier(0)
    return store


def _broadcast(data: bytes | None) -> bytes:
    handle = native.broadcast_object_async("c10d/store", data, 0)
    try:
        native.synchronize(handle)
        return native.output_bytes(handle)
    finally:
        native.release(handle)
