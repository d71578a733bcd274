# SPDX-License-Identifier: Apache-2.0

"""A rank under Ray: its actor class, and the environment variables that tell the actor its rank."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import ray  # type: ignore[import-not-found]

from ronda import _env, job
from ronda._ports import free_port


class Where(NamedTuple):
    """Describes the host and the GPUs of an actor."""

    host_id: tuple[str, int, int]  # equal for actors that Ronda treats as ranks of one host
    host: str
    address: str
    pid: int
    gpus: list[str]  # those that Ray has reserved for it


class Worker:
    """The actor of a rank, which holds the program's object and calls the program's functions."""

    def __init__(self) -> None:
        self._executable: Any = None

    def where(self) -> Where:
        """Returns a description of the host and the GPUs of this actor."""
        context = ray.get_runtime_context()
        return Where(
            _host_id(),
            socket.gethostname(),
            ray.util.get_node_ip_address(),
            os.getpid(),
            context.get_accelerator_ids().get("GPU", []),
        )

    def free_ports(self, address: str) -> tuple[int, int]:
        """Returns two ports of this host on which no process listens."""
        first = second = free_port(address)
        while second == first:
            second = free_port(address)
        return first, second

    def set_environment(self, variables: Mapping[str, str]) -> None:
        """Sets environment variables of this process."""
        os.environ.update(variables)

    def make_executable(
        self, cls: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Creates the program's object."""
        with _told_to_others():
            self._executable = cls(*args, **kwargs)

    def execute(self, function: Callable[[Any], Any]) -> Any:
        """Calls a function with the program's object, or None if the program has no object."""
        with _told_to_others():
            return function(self._executable)

    def leave(self) -> None:
        """Leaves the job without waiting for other ranks. A later call can start a new job."""
        job.leave("the function of a rank has failed")


@contextlib.contextmanager
def _told_to_others() -> Iterator[None]:
    """A context manager in which the program runs. If the program fails, notifies the other ranks
    at once, so that they do not wait for this rank.
    """
    try:
        yield
    except BaseException as error:
        rank = os.environ["RONDA_RANK"]
        job.abort(f"the function of rank {rank} has raised {type(error).__name__}: {error}")
        raise


def _host_id() -> tuple[str, int, int]:
    """Identifies the host by its kernel, shared memory and pid namespace, as Ronda does."""
    return (
        pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        os.stat("/dev/shm").st_dev,
        os.stat("/proc/self/ns/pid").st_ino,
    )


def by_host(places: Sequence[Where]) -> list[int]:
    """Returns the actors' indices in rank order. The actors of a host have consecutive ranks. The
    hosts, and the actors of a host, keep their order in `places`.
    """
    hosts = list(dict.fromkeys(where.host_id for where in places))
    return sorted(range(len(places)), key=lambda number: hosts.index(places[number].host_id))


def environments(
    places: Sequence[Where], ports: tuple[int, int], nics: Sequence[str], timeout_s: float
) -> list[dict[str, str]]:
    """Returns the environment variables of each rank.

    Args:
        places: the description of each rank's host, by rank. The ranks of a host are consecutive.
        ports: two ports of rank 0's host on which no process listens. Ronda uses the first, and
            another library's store may use the second.
        nics: the network interfaces for the connections between hosts. If the list is empty, Ronda
            chooses the interfaces.
        timeout_s: how long a rank waits for the other ranks at the start.
    """
    hosts = list(dict.fromkeys(where.host_id for where in places))
    members = {host: [r for r, at in enumerate(places) if at.host_id == host] for host in hosts}
    common = {"RONDA_START_TIMEOUT": f"{timeout_s}s", **_meeting(places, len(hosts), ports[0])}
    common.update(MASTER_ADDR=places[0].address, MASTER_PORT=str(ports[1]))
    if nics:
        common["RONDA_NETWORK_INTERFACE"] = ",".join(nics)
    variables = []
    for rank, where in enumerate(places):
        ranks = members[where.host_id]
        local_rank = rank - ranks[0]
        alike = [host for host in hosts if len(members[host]) > local_rank]
        place = {
            "rank": rank,
            "size": len(places),
            "local_rank": local_rank,
            "local_size": len(ranks),
            "cross_rank": alike.index(where.host_id),
            "cross_size": len(alike),
            "host": hosts.index(where.host_id),
        }
        gpus = _visible([places[each].gpus for each in ranks])
        variables.append({**common, **_env.variables(place), **gpus})
    return variables


def _meeting(places: Sequence[Where], hosts: int, port: int) -> dict[str, str]:
    """Returns the environment variables through which the ranks find each other: by a name in
    shared memory on a single host, and by an address on several hosts.
    """
    if hosts == 1:
        return {"RONDA_JOB_ID": f"ray-{secrets.token_hex(8)}"}
    return {
        "RONDA_MASTER_ADDR": places[0].address,
        "RONDA_MASTER_PORT": str(port),
        "RONDA_JOB_SECRET": secrets.token_hex(32),
    }


def _visible(gpus: Sequence[list[str]]) -> dict[str, str]:
    """Returns the variable that makes the GPUs of all ranks on a host visible to each of them, so
    that NCCL can connect the GPUs directly. The index of a rank's first GPU is its local rank.
    """
    most = max(map(len, gpus))
    in_turns = [each[turn] for turn in range(most) for each in gpus if turn < len(each)]
    return {"CUDA_VISIBLE_DEVICES": ",".join(in_turns)} if in_turns else {}
