"""Tells other libraries of this process its place in the job, by the variables that they read.

torch.distributed's env:// reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
MASTER_PORT; programs written for Horovod read HOROVOD_RANK and its companions. The rules:

- Variables of the place are set, whatever they were: a process has one place, and a program that is
  told two computes nonsense. They differ only if a rank of another job started this process.
- MASTER_ADDR and MASTER_PORT stay the user's where they are set. They are for the store of
  torch.distributed, at which rank 0 listens, and not for Ronda. rondarun sets them; under Open
  MPI's mpirun on one host, and under Slurm, they follow from the name of the job. Otherwise (MPICH,
  several hosts under mpirun) the user sets them, as without Ronda.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

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

# Ports of stores that follow from a job's name; Ronda's own begin at 20000.
_FIRST_PORT = 10000
_PORT_COUNT = 10000

# Steps from this number on are Slurm's own: batch scripts, shells.
_SLURM_SPECIAL_STEPS = 0xFFFFFFF0

_Environment = Mapping[str, str]
_Address = tuple[str, int]


def _no_address(env: _Environment, is_one_host: bool) -> _Address | None:
    return None


def _open_mpi_address(env: _Environment, is_one_host: bool) -> _Address | None:
    name = env.get("PMIX_NAMESPACE")
    if name is None or not is_one_host:
        return None
    return "127.0.0.1", _FIRST_PORT + zlib.crc32(name.encode()) % _PORT_COUNT


def _slurm_address(env: _Environment, is_one_host: bool) -> _Address | None:
    host = "127.0.0.1" if is_one_host else _first_slurm_host(env.get("SLURM_STEP_NODELIST", ""))
    try:
        number = int(env["SLURM_JOB_ID"]) + int(env["SLURM_STEP_ID"])
    except (KeyError, ValueError):
        return None
    return (host, _FIRST_PORT + number % _PORT_COUNT) if host else None


def _first_slurm_host(nodes: str) -> str:
    """The first of "rack[1-2]n[01-03]a,b": "rack1n01a"."""
    host = ""
    while nodes and nodes[0] != ",":
        if nodes[0] == "[":
            ranges, _, nodes = nodes[1:].partition("]")
            host += ranges.replace("-", ",").split(",")[0]
        else:
            host, nodes = host + nodes[0], nodes[1:]
    return host


class _Launcher(NamedTuple):
    """Variables of a launcher; the same, in the same order, as in
    runtime/rendezvous/launchers.cc.
    """

    sign: str  # set in its ranks
    rank: str
    size: str
    local_rank: str = ""
    local_size: str = ""
    cross_rank: str = ""
    cross_size: str = ""
    address: Callable[[_Environment, bool], _Address | None] = _no_address


_LAUNCHERS = (
    _Launcher(
        "RONDA_RANK",
        "RONDA_RANK",
        "RONDA_SIZE",
        "RONDA_LOCAL_RANK",
        "RONDA_LOCAL_SIZE",
        "RONDA_CROSS_RANK",
        "RONDA_CROSS_SIZE",
    ),
    _Launcher("RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    _Launcher("JOB_COMPLETION_INDEX", "JOB_COMPLETION_INDEX", "WORLD_SIZE"),  # Kubernetes
    _Launcher(
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        address=_open_mpi_address,
    ),
    _Launcher("MPI_LOCALRANKID", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    _Launcher(
        "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", address=_slurm_address
    ),
    _Launcher("PMI_RANK", "PMI_RANK", "PMI_SIZE"),
)

# What export() has set and the program has not changed since.
_ours: dict[str, str] = {}


def export() -> None:
    """Sets the variables: of the job, once it is there, else of the launcher. Without either it
    sets none.

    init() calls it. Code that needs the variables before, env:// for instance, calls it first.
    """
    withdraw()
    launcher = next((each for each in _LAUNCHERS if _has_started_us(each)), None)
    place = _place_of_job() if native.is_initialized() else _place_of(launcher, os.environ)
    for field, value in place.items():
        for name in _EXPORTED[field]:
            _set(name, str(value))
    address = _address(place, launcher)
    if address is not None and not {"MASTER_ADDR", "MASTER_PORT"} & set(os.environ):
        _set("MASTER_ADDR", address[0])
        _set("MASTER_PORT", str(address[1]))


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


def _has_started_us(launcher: _Launcher) -> bool:
    sign = os.environ.get(launcher.sign)
    if sign is None or launcher.size not in os.environ:
        return False
    # A shell or script in an allocation of Slurm has its variables, but is no task of a step.
    return launcher.sign != "SLURM_STEP_ID" or int(sign) < _SLURM_SPECIAL_STEPS


def _place_of_job() -> dict[str, int]:
    return {field: getattr(native, field)() for field in _EXPORTED}


def _place_of(launcher: _Launcher | None, env: _Environment) -> dict[str, int]:
    values = {field: env.get(getattr(launcher, field, "")) for field in _EXPORTED}
    return {field: int(value) for field, value in values.items() if value is not None}


def _address(place: Mapping[str, int], launcher: _Launcher | None) -> _Address | None:
    """Where rank 0 may listen, the same on all ranks."""
    if launcher is not None:
        return launcher.address(os.environ, place.get("local_size") == place.get("size"))
    return _free_address() if place.get("size") == 1 else None


@functools.cache
def _free_address() -> _Address:
    """The same at each call, as a store may listen there already."""
    return "127.0.0.1", free_port()
