"""Tells other libraries of this process its place in the job, by the variables that they read.

torch.distributed's env:// reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
MASTER_PORT; programs written for Horovod read HOROVOD_RANK and its companions. The rules:

- Variables of the place are set, whatever they were: a process has one place, and a program that is
  told two computes nonsense. They differ only if a rank of another job started this process.
- MASTER_ADDR and MASTER_PORT stay the user's where they are set. They are for the store of
  torch.distributed, at which rank 0 listens, and not for Ronda. rondarun sets them; under Open
  MPI's mpirun on one host, and under Slurm, they follow from the name of the job. Otherwise (MPICH,
  several hosts under mpirun) the user sets them, as without Ronda.

Which variables a launcher sets is the library's knowledge.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ronda import errors
from ronda._library import native
from ronda._ports import free_port

# Fields of a place, and the variables that other libraries read.
_EXPORTED = {
    "rank": ("RANK", "HOROVOD_RANK"),
    "size": ("WORLD_SIZE", "HOROVOD_SIZE"),
    "local_rank": ("LOCAL_RANK", "HOROVOD_LOCAL_RANK"),
    "local_size": ("LOCAL_WORLD_SIZE", "HOROVOD_LOCAL_SIZE"),
    "cross_rank": ("HOROVOD_CROSS_RANK",),
    "cross_size": ("HOROVOD_CROSS_SIZE",),
}


class Launcher(enum.IntEnum):
    """Whose variables tell this process its place (ronda_launcher)."""

    NONE = 0
    RONDARUN = 1
    TORCHRUN = 2
    PADDLE = 3
    OPEN_MPI = 4
    MPICH = 5
    SLURM = 6
    PMI = 7


# What export() has set and the program has not changed since.
_ours: dict[str, str] = {}


def export() -> None:
    """Sets the variables: of the job, once it is there, else of the launcher. Without either it
    sets none.

    init() calls it. Code that needs the variables before, env:// for instance, calls it first.
    """
    withdraw()
    told = _told()
    place = _place_of_job() if native.is_initialized() else told
    for field in _EXPORTED.keys() & place.keys():
        for name in _EXPORTED[field]:
            _set(name, str(place[field]))
    address = _address(place, told)
    if address is not None and not {"MASTER_ADDR", "MASTER_PORT"} & set(os.environ):
        _set("MASTER_ADDR", address[0])
        _set("MASTER_PORT", str(address[1]))


def launcher() -> Launcher:
    """Whose variables tell this process its place, but for what export() has set."""
    with _without_ours():
        return Launcher(_told()["launcher"])


def withdraw() -> None:
    """Unsets what export() has set, so that Ronda reads what the launcher has, and not what it has
    said itself.
    """
    for name, value in _ours.items():
        if os.environ.get(name) == value:
            del os.environ[name]
    _ours.clear()


def inherited() -> dict[str, str]:
    """This process' environment without what export() has set: for processes that are no ranks of
    this job.
    """
    return {name: value for name, value in os.environ.items() if _ours.get(name) != value}


def _set(name: str, value: str) -> None:
    if os.environ.get(name) != value:
        os.environ[name] = value
        _ours[name] = value


@contextlib.contextmanager
def _without_ours() -> Iterator[None]:
    hidden = {name: value for name, value in _ours.items() if os.environ.get(name) == value}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


def _told() -> dict[str, Any]:
    """The place that the environment gives. None, if it is not complete: init() then says why."""
    try:
        return native.place()
    except errors.InvalidArgumentError:
        return {"launcher": Launcher.NONE}


def _place_of_job() -> dict[str, int]:
    return {field: getattr(native, field)() for field in _EXPORTED}


def _address(place: Mapping[str, int], told: Mapping[str, Any]) -> tuple[str, int] | None:
    """Where rank 0 may listen, the same on all ranks."""
    if told["launcher"] != Launcher.NONE:
        return (told["store_address"], told["store_port"]) if "store_port" in told else None
    return _free_address() if place.get("size") == 1 else None


@functools.cache
def _free_address() -> tuple[str, int]:
    """The same at each call, as a store may listen there already."""
    return "127.0.0.1", free_port()
