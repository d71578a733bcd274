# SPDX-License-Identifier: Apache-2.0

"""Sets the environment variables from which other libraries in this process read ranks and sizes.

torch.distributed's env:// reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
MASTER_PORT. Lightning also reads GROUP_RANK. Programs written for Horovod read HOROVOD_RANK and the
like. rondarun sets all these variables before it starts the ranks. Other launchers set some or none
of them. export() follows these rules:

- Variables for ranks and sizes are overwritten, because a process that reads two different ranks
  computes wrong results. The old values differ only if a rank of another job started this process.
- MASTER_ADDR and MASTER_PORT keep the user's values if they are set. Ronda does not use these two
  variables: they are the address at which rank 0 serves torch.distributed's store. rondarun sets
  both. Under Open MPI's mpirun on one host, and under Slurm, Ronda derives both variables from the
  job's name. With MPICH, and under mpirun on several hosts, the user must set both variables, as
  without Ronda.
- The variables stay set until the job ends. Then their previous values are restored, except where
  the program itself has changed a variable.

The native library knows which variables each launcher sets.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ronda import errors
from ronda._library import native
from ronda._ports import free_port

# The environment variables from which other libraries read each rank and size.
_EXPORTED = {
    "rank": ("RANK", "HOROVOD_RANK"),
    "size": ("WORLD_SIZE", "HOROVOD_SIZE"),
    "local_rank": ("LOCAL_RANK", "HOROVOD_LOCAL_RANK"),
    "local_size": ("LOCAL_WORLD_SIZE", "HOROVOD_LOCAL_SIZE"),
    "cross_rank": ("HOROVOD_CROSS_RANK",),
    "cross_size": ("HOROVOD_CROSS_SIZE",),
    "host": ("GROUP_RANK",),
}
_LOCAL_FIELDS = ("local_rank", "local_size")
_NAMES_OF_PLACE = {name for names in _EXPORTED.values() for name in names} | {
    f"RONDA_{field.upper()}" for field in _EXPORTED if field != "host"
}
# This variable holds the file descriptor through which a member of an elastic job receives its rank
# in each epoch.
_MEMBERSHIP = "RONDA_MEMBERSHIP_FD"


class Launcher(enum.IntEnum):
    """The launcher whose variables give this process its rank (ronda_launcher)."""

    NONE = 0
    RONDARUN = 1
    TORCHRUN = 2
    PADDLE = 3
    OPEN_MPI = 4
    MPICH = 5
    SLURM = 6
    PMI = 7


class _Change(NamedTuple):
    """A change that export() has made to a variable."""

    value: str
    before: str | None  # None: it was not set


# The changes that export() has made. Variables that the program has changed since then are not
# restored.
_ours: dict[str, _Change] = {}
_announced = False


def announce() -> None:
    """Sets the variables to the launcher's ranks and sizes. end() sets them again after a job."""
    global _announced
    _announced = True
    export()


def export() -> None:
    """Sets the variables to the job's ranks and sizes. Without a job, uses the launcher's ranks and
    sizes, if there is a launcher.

    init() calls export(). Code that needs the variables before init(), for instance env://, must
    call export() itself.
    """
    withdraw()
    told = _told()
    place = _place_of_job() if native.is_initialized() else _known_before(told)
    for field in _EXPORTED.keys() & place.keys():
        for name in _EXPORTED[field]:
            _set(name, str(place[field]))
    address = _address(place, told)
    if address is not None and not {"MASTER_ADDR", "MASTER_PORT"} & set(os.environ):
        _set("MASTER_ADDR", address[0])
        _set("MASTER_PORT", str(address[1]))


def launcher() -> Launcher:
    """Returns the launcher whose variables give this process its rank. Ignores the changes of
    export().
    """
    with _without_ours():
        return Launcher(_told()["launcher"])


def place_on_host() -> int | None:
    """Returns the local rank that the launcher gave this process at its start, or None if the
    launcher gave none. The value stays the same in all epochs of an elastic job.
    """
    with _without_ours():
        number: int | None = _told().get("local_rank")
        return number


def withdraw() -> None:
    """Restores the values from before export(), so that Ronda reads the launcher's values, and not
    its own.
    """
    for name, change in _unchanged().items():
        _put(name, change.before)
    _ours.clear()


def end() -> None:
    """Restores the variables when the job has ended."""
    withdraw()
    if _announced:
        export()


def inherited() -> dict[str, str]:
    """Returns this process's environment without ranks and sizes, for processes that are not ranks
    of this job.
    """
    hidden = _NAMES_OF_PLACE | _unchanged().keys()
    return {name: value for name, value in os.environ.items() if name not in hidden}


def variables(place: Mapping[str, int]) -> dict[str, str]:
    """Returns the variables of Ronda, torchrun and Horovod that pass the ranks and sizes in `place`
    to another process.
    """
    return {
        name: str(value)
        for field, value in place.items()
        for name in (f"RONDA_{field.upper()}", *_EXPORTED[field])
        if name in _NAMES_OF_PLACE
    }


def _unchanged() -> dict[str, _Change]:
    return {name: change for name, change in _ours.items() if os.environ.get(name) == change.value}


def _put(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _set(name: str, value: str) -> None:
    before = os.environ.get(name)
    if before != value:
        os.environ[name] = value
        _ours[name] = _Change(value, before)


@contextlib.contextmanager
def _without_ours() -> Iterator[None]:
    hidden = _unchanged()
    for name, change in hidden.items():
        _put(name, change.before)
    try:
        yield
    finally:
        os.environ.update({name: change.value for name, change in hidden.items()})


def _told() -> dict[str, Any]:
    """Returns the launcher, ranks and sizes in the environment. If the ranks and sizes are
    incomplete, returns only the launcher NONE; init() reports the reason later.
    """
    try:
        return native.place()
    except errors.InvalidArgumentError:
        return {"launcher": Launcher.NONE}


def _known_before(told: Mapping[str, Any]) -> dict[str, int]:
    """Returns the ranks and sizes that the launcher's variables give before the job exists."""
    place = {field: told[field] for field in _EXPORTED if field in told}
    if _MEMBERSHIP in os.environ:
        # Rank and size change from epoch to epoch, and may differ from the launcher's variables.
        return {field: place[field] for field in _LOCAL_FIELDS if field in place}
    if "size" in place and place.get("local_size") == place["size"]:
        place.update(cross_rank=0, cross_size=1)
    return _with_host(place)


def _place_of_job() -> dict[str, int]:
    return _with_host({field: getattr(native, field)() for field in _EXPORTED if field != "host"})


def _with_host(place: dict[str, int]) -> dict[str, int]:
    """Adds the host's number, if all hosts have the same number of ranks, and the ranks on each
    host are consecutive.
    """
    if {"rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"} <= place.keys():
        host, each = place["cross_rank"], place["local_size"]
        is_regular = place["size"] == place["cross_size"] * each
        if is_regular and place["rank"] == host * each + place["local_rank"]:
            place["host"] = host
    return place


def _address(place: Mapping[str, int], told: Mapping[str, Any]) -> tuple[str, int] | None:
    """Returns an address at which rank 0 may listen, the same on all ranks, or None."""
    if told["launcher"] != Launcher.NONE:
        return (told["store_address"], told["store_port"]) if "store_port" in told else None
    return _free_address() if place.get("size") == 1 else None


@functools.cache
def _free_address() -> tuple[str, int]:
    """Each call returns the same address, because a store may already listen there."""
    return "127.0.0.1", free_port()
