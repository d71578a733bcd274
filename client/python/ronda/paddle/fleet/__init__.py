# SPDX-License-Identifier: Apache-2.0

"""Fleet's API for data parallelism on CPUs: `from ronda.paddle import fleet`.

    fleet.init(is_collective=True)
    model = fleet.distributed_model(LeNet())
    optimizer = fleet.distributed_optimizer(
        paddle.optimizer.Momentum(0.1, parameters=model.parameters())
    )
    for images, labels in loader:  # with a paddle.io.DistributedBatchSampler
        loss_function(model(images), labels).backward()
        optimizer.step()
        optimizer.clear_grad()

Every rank makes the same calls. Start programs with rondarun, or with any other launcher that Ronda
supports.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

import paddle  # type: ignore[import-not-found]

from ronda import errors, job, process_sets
from ronda._library import native
from ronda.exchanges import barrier
from ronda.paddle._tensors import broadcast
from ronda.paddle.fleet._optimizer import DistributedOptimizer
from ronda.paddle.fleet._strategy import DistributedStrategy

__all__ = [
    "DistributedOptimizer",
    "DistributedStrategy",
    "barrier_worker",
    "distributed_model",
    "distributed_optimizer",
    "init",
    "is_first_worker",
    "stop_worker",
    "worker_index",
    "worker_num",
]

_USER = "fleet"
_Model = TypeVar("_Model")
_strategy = DistributedStrategy()
_exported: list[str] = []


def init(
    role_maker: Any = None,
    is_collective: bool = False,
    strategy: DistributedStrategy | None = None,
    log_level: int | str = "INFO",
) -> None:
    """Joins the job that the environment describes, and blocks until every rank has joined. If this
    process has already joined a job, init() shares that job.

    After init(), paddle.io.DistributedBatchSampler uses the job's ranks, and Paddle's signal
    handlers are disabled.

    Args:
        role_maker: must be None, because the launcher determines the rank of this process.
        is_collective: must be True, because Ronda does not support parameter servers.
        strategy: the settings. The settings for fusing tensors take effect here, unless another
            part of the program has already joined the job.
        log_level: not used; RONDA_LOG_LEVEL controls Ronda's messages.

    Raises:
        ValueError: `role_maker` or `is_collective` has a different value.
        RondaError: the ranks' settings contradict each other, or some ranks did not join in time.
    """
    del log_level
    if role_maker is not None or not is_collective:
        raise ValueError(
            "fleet.init: only collective training is there, with the launcher's ranks: call"
            " fleet.init(is_collective=True)"
        )
    global _strategy
    _strategy = strategy if strategy is not None else DistributedStrategy()
    # Paddle's handler of SIGABRT allocates memory. If a process's heap is damaged, the C library
    # aborts the process while it holds the heap's lock. Paddle's handler would then hang, and the
    # whole job would wait for this rank.
    paddle.disable_signal_handler()
    process_sets.init_job(_USER, (), **_strategy.job_options())
    numbers = {"PADDLE_TRAINER_ID": native.rank(), "PADDLE_TRAINERS_NUM": native.size()}
    for name, number in numbers.items():
        if os.environ.get(name) != str(number):
            os.environ[name] = str(number)
            _exported.append(name)


def stop_worker() -> None:
    """Leaves the job, and blocks until every rank has left the job. If the program does not call
    stop_worker(), this process leaves the job when the program ends.
    """
    while _exported:
        os.environ.pop(_exported.pop(), None)
    job.shutdown(_USER)


def worker_index() -> int:
    """Returns the rank of this process in the job, from 0.

    Raises:
        NotInitializedError: init() has not been called. All functions of this module but init() and
            stop_worker() raise this error.
    """
    _check("worker_index")
    return native.rank()


def worker_num() -> int:
    """Returns the number of ranks."""
    _check("worker_num")
    return native.size()


def is_first_worker() -> bool:
    """Returns whether this process is rank 0."""
    return worker_index() == 0


def barrier_worker() -> None:
    """Waits until every rank has called barrier_worker()."""
    _check("barrier_worker")
    barrier()


def distributed_model(model: _Model) -> _Model:
    """Copies the parameters and buffers of rank 0's model to all ranks.

    Args:
        model: a paddle.nn.Layer, of the same kind on every rank. The function returns the model.

    Raises:
        RondaError: the models differ, or a rank has failed.
    """
    _check("distributed_model")
    state: dict[str, Any] = model.state_dict()  # type: ignore[attr-defined]
    broadcast(sorted(state.items()), root=0)
    return model


def distributed_optimizer(
    optimizer: Any, strategy: DistributedStrategy | None = None
) -> DistributedOptimizer:
    """Returns an optimizer that reduces the gradients over the ranks before each step.

    Args:
        optimizer: an optimizer of paddle.optimizer. Its parameters must have the same order on
            every rank.
        strategy: the settings. None means the settings of init().
    """
    _check("distributed_optimizer")
    return DistributedOptimizer(optimizer, strategy if strategy is not None else _strategy)


def _check(function: str) -> None:
    if not job.is_initialized(_USER):
        raise errors.NotInitializedError(f"{function}(): call fleet.init(is_collective=True) first")
