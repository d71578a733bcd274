# SPDX-License-Identifier: Apache-2.0

"""RondaExecutor: starts ranks as Ray actors, and calls functions on them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import ray  # type: ignore[import-not-found]
from ray.exceptions import GetTimeoutError, RayActorError  # type: ignore[import-not-found]
from ray.util.scheduling_strategies import (  # type: ignore[import-not-found]
    PlacementGroupSchedulingStrategy,
)

from ronda.errors import DeadlineError, InvalidArgumentError, PeerFailedError, RondaError
from ronda.ray import _worker

# When a rank fails, the other ranks are notified at once, but a rank continues while its program
# does not call Ronda. The executor waits at most this long for such ranks.
_AFTER_FAILURE_S = 10.0
_UNTIL_LEFT_S = 10.0


@dataclasses.dataclass
class Settings:
    """The timeouts and network interfaces of a job; see RondaExecutor.create_settings()."""

    timeout_s: float = 30
    placement_group_timeout_s: float = 100
    nics: Iterable[str] | None = None


class RondaExecutor:
    """A job whose ranks are Ray actors, with the methods of Horovod's RayExecutor.

    The ranks on a host are consecutive. Each rank's environment variables are set before the rank
    runs any of the program's code. The program's functions must call init(), as with rondarun. Ray
    must be initialized.

    Args:
        settings: the result of create_settings(), or an object with the same fields.
        num_workers: the number of ranks. Ray chooses the hosts, as few as possible.
        num_hosts: instead of num_workers, the number of hosts, each with the same number of ranks.
        num_workers_per_host: the number of ranks on each host; only with num_hosts.
        cpus_per_worker: the number of CPUs that Ray reserves for each rank.
        use_gpu: whether Ray reserves GPUs for the ranks.
        gpus_per_worker: the number of GPUs for each rank; the default is 1.
        use_current_placement_group: inside a placement group of Ray, use its bundles instead of a
            new placement group.

    Raises:
        InvalidArgumentError: the arguments contradict each other.
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: float = 100,
        nics: Iterable[str] | None = None,
    ) -> Settings:
        """Returns the settings for an executor.

        Args:
            timeout_s: how long a rank waits in init() for the other ranks.
            ssh_identity_file: not used, because Ray itself starts the ranks. `ssh_str` is not used
                either.
            placement_group_timeout_s: how long start() waits for Ray to start all ranks.
            nics: the network interfaces for the connections between hosts. None means that Ronda
                chooses the interfaces.
        """
        return Settings(timeout_s, placement_group_timeout_s, nics)

    def __init__(
        self,
        settings: Settings,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: int = 1,
        use_gpu: bool = False,
        gpus_per_worker: int | None = None,
        use_current_placement_group: bool = True,
    ) -> None:
        _check(num_workers, num_hosts, num_workers_per_host, use_gpu, gpus_per_worker)
        self.settings = settings
        self.num_workers: int = num_workers or (num_hosts or 0) * num_workers_per_host
        self.workers: list[Any] = []  # actors, by rank
        self._hosts = num_hosts
        self._resources: dict[str, float] = {"CPU": cpus_per_worker}
        if use_gpu:
            self._resources["GPU"] = gpus_per_worker or 1
        self._takes_current_group = use_current_placement_group
        self._own_group: Any = None
        self._places: list[_worker.Where] = []  # by rank

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the ranks.

        Args:
            executable_cls: a class that each rank instantiates, for execute().
            executable_args: positional arguments of the constructor.
            executable_kwargs: named arguments of the constructor.
            extra_env_vars: environment variables for the ranks. Variables that set a rank or the
                job's size are ignored.

        Raises:
            DeadlineError: Ray has not started the ranks within the settings'
                placement_group_timeout_s.
            PeerFailedError: a rank has died.
        """
        if self.workers:
            raise InvalidArgumentError("start(): there are ranks already: call shutdown() first")
        try:
            self._start_workers()
            self._set_environments(extra_env_vars or {})
            if executable_cls is not None:
                executable = (executable_cls, executable_args or [], executable_kwargs or {})
                self._wait([worker.make_executable.remote(*executable) for worker in self.workers])
        except BaseException:
            self.shutdown()
            raise

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Calls a function on each rank, and returns the results by rank.

        Raises:
            Exception: the function's exception, from the lowest rank on which it raised one.
            PeerFailedError: a rank has died. To start new ranks, call shutdown() and start().
        """
        return self._wait(self.run_remote(fn, args, kwargs))

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Like run(), but returns Ray's references to the results at once, for ray.get().

        If ray.get() raises a failure of the job, call shutdown() and start() to start new ranks.
        """
        return self._call(lambda _: fn(*(args or ()), **(kwargs or {})), self._started())

    def execute(self, fn: Callable[[Any], Any]) -> list[Any]:
        """Like run(), but calls the function with the object that the rank has created in
        start().
        """
        return self._wait(self._call(fn, self._started()))

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Like execute(), but calls the function only on rank 0."""
        [result] = self._wait(self._call(fn, self._started()[:1]))
        return result

    def shutdown(self) -> None:
        """Ends the ranks. After shutdown(), start() may be called again."""
        ends = [worker.__ray_terminate__.remote() for worker in self.workers]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=_UNTIL_LEFT_S)
        for worker in self.workers:
            ray.kill(worker)
        self.workers, self._places = [], []
        if self._own_group is not None:
            ray.util.remove_placement_group(self._own_group)
            self._own_group = None

    def _started(self) -> list[Any]:
        if not self.workers:
            raise InvalidArgumentError("there are no ranks: call start() first")
        return self.workers

    @staticmethod
    def _call(fn: Callable[[Any], Any], workers: Sequence[Any]) -> list[Any]:
        shared = ray.put(fn)  # once for all ranks, because the function may carry large objects
        return [worker.execute.remote(shared) for worker in workers]

    def _start_workers(self) -> None:
        deadline = time.monotonic() + self.settings.placement_group_timeout_s
        group, bundles = self._place(deadline)
        actor = ray.remote(_worker.Worker)
        workers = [
            actor.options(
                num_cpus=self._resources["CPU"],
                num_gpus=self._resources.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, bundle),
            ).remote()
            for bundle in bundles
        ]
        self.workers = workers  # shutdown() ends these workers if the next line fails
        places = self._in_time(deadline, [worker.where.remote() for worker in workers])
        order = _worker.by_host(places)
        self.workers = [workers[number] for number in order]
        self._places = [places[number] for number in order]

    def _place(self, deadline: float) -> tuple[Any, list[int]]:
        """Returns Ray's placement group, and the index of each actor's bundle in the group."""
        current = ray.util.get_current_placement_group() if self._takes_current_group else None
        if current is not None:
            return current, [-1] * self.num_workers  # any bundle that has room
        hosts = self._hosts or self.num_workers
        each = self.num_workers // hosts
        bundle = {name: amount * each for name, amount in self._resources.items()}
        self._own_group = ray.util.placement_group(
            [bundle] * hosts, strategy="STRICT_SPREAD" if self._hosts else "PACK"
        )
        self._in_time(deadline, [self._own_group.ready()])
        return self._own_group, [actor // each for actor in range(self.num_workers)]

    def _in_time(self, deadline: float, references: Sequence[Any]) -> list[Any]:
        try:
            return list(ray.get(list(references), timeout=max(0.0, deadline - time.monotonic())))
        except GetTimeoutError:
            where = f" on each of {self._hosts} hosts" if self._hosts else ""
            raise DeadlineError(
                f"Ray has not started {self.num_workers} ranks with {self._resources} each{where} "
                f"in placement_group_timeout_s={self.settings.placement_group_timeout_s:g}: it has "
                f"{_available()} to give; ask for less, or for a longer time in create_settings()"
            ) from None

    def _set_environments(self, extra: Mapping[str, str]) -> None:
        [ports] = self._wait([self.workers[0].free_ports.remote(self._places[0].address)])
        variables = _worker.environments(
            self._places, ports, list(self.settings.nics or ()), self.settings.timeout_s
        )
        self._wait(
            [
                worker.set_environment.remote({**extra, **mine})
                for worker, mine in zip(self.workers, variables)
            ]
        )

    def _wait(self, references: Sequence[Any]) -> list[Any]:
        """Returns the results of the ranks' calls, by rank."""
        results, pending = {}, list(references)
        try:
            while pending:
                [done], pending = ray.wait(pending)
                results[done] = ray.get(done)
            return [results[reference] for reference in references]
        except Exception:
            ray.wait(list(references), num_returns=len(references), timeout=_AFTER_FAILURE_S)
            for worker in self.workers:
                worker.leave.remote()
        raise self._first_failure(references)

    def _first_failure(self, references: Sequence[Any]) -> BaseException:
        """Returns the failure that caused the others: the death of a rank, or else an exception of
        the program. Returns an error of Ronda only if there is nothing else.
        """
        failures = []
        for rank, reference in enumerate(references):
            try:
                ray.get(reference, timeout=0)
            except GetTimeoutError:
                continue  # the rank's program does not call Ronda
            except RayActorError as death:
                return self._death(rank, death)
            except Exception as error:
                failures.append(error)
        return min(failures, key=lambda failure: isinstance(failure, RondaError))

    def _death(self, rank: int, cause: RayActorError) -> PeerFailedError:
        where = self._places[rank]
        error = PeerFailedError(
            f"rank {rank} (host {where.host}, pid {where.pid}) has died: "
            "call shutdown() and start()"
        )
        error.__cause__ = cause
        return error


def _available() -> str:
    resources = ray.available_resources()
    return ", ".join(f"{resources.get(name, 0):g} {name}" for name in ("CPU", "GPU"))


def _check(
    num_workers: int | None,
    num_hosts: int | None,
    num_workers_per_host: int,
    use_gpu: bool,
    gpus_per_worker: int | None,
) -> None:
    if (num_workers is None) == (num_hosts is None):
        raise InvalidArgumentError(
            f"num_workers={num_workers}, num_hosts={num_hosts}: give one of the two"
        )
    for name, value in (
        ("num_workers", num_workers),
        ("num_hosts", num_hosts),
        ("num_workers_per_host", num_workers_per_host),
        ("gpus_per_worker", gpus_per_worker),
    ):
        if value is not None and value < 1:
            raise InvalidArgumentError(f"{name}={value}: give a number of 1 or more")
    if num_workers is not None and num_workers_per_host != 1:
        raise InvalidArgumentError(
            f"num_workers_per_host={num_workers_per_host} goes with num_hosts: give num_hosts in "
            f"place of num_workers={num_workers}"
        )
    if gpus_per_worker is not None and not use_gpu:
        raise InvalidArgumentError(f"gpus_per_worker={gpus_per_worker} needs use_gpu=True")
