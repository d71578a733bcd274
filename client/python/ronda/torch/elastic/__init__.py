# SPDX-License-Identifier: Apache-2.0

"""Horovod's elastic API.

With an elastic launcher, `rondarun --min-np`, ranks may die, join and leave. The remaining ranks
return to the newest commit that any of them has, new ranks receive it, and then the training
function runs again. Without such a launcher a job has a fixed number of ranks: its state is
synchronized at the start, committed and restored. After an error that the job survives, all ranks
return to the last commit and try again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ronda import errors, exchanges
from ronda.torch._basics import init, reform, shutdown
from ronda.torch.elastic.sampler import ElasticSampler
from ronda.torch.elastic.state import (
    HostsUpdatedInterrupt,
    ObjectState,
    State,
    TorchState,
    is_elastic,
)

__all__ = [
    "ElasticSampler",
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "TorchState",
    "run",
]

_Result = TypeVar("_Result")

# After these errors a job of fixed size no longer has all of its ranks.
_FATAL = (errors.PeerFailedError, errors.InvalidArgumentError, errors.OutOfMemoryError)

# After these errors the remaining ranks of an elastic job are sound. An error whose class is
# RondaError itself was raised by the program, as HorovodInternalError.
_RECOVERABLE = (errors.PeerFailedError, errors.DeadlineError)


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """Decorates a training function whose first argument is a State.

    The state is synchronized before the function runs. If the function raises HorovodInternalError,
    the state returns to its last commit, the ranks meet again, and the function runs again. In an
    elastic job this also happens when a rank has died, or when the members change. A rank that
    SIGTERM asks to leave ends with SystemExit(0) at its next commit. If a job that is not elastic
    loses a rank, the error passes through: start the job again from a checkpoint.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> _Result:
        attempt = _attempt_elastically if is_elastic() else _attempt
        meet = _reform if is_elastic() else _rejoin
        synchronizes = True
        while True:
            reason = None
            try:
                return attempt(synchronizes, func, state, *args, **kwargs)
            except errors.RondaError as error:
                if not _is_recoverable(error):
                    raise
                state.restore()
                synchronizes = True
                reason = str(error)
            except HostsUpdatedInterrupt as interrupt:
                synchronizes = not interrupt.skip_sync
            meet(reason)
            state.on_reset()

    return wrapper


def _is_recoverable(error: errors.RondaError) -> bool:
    if not is_elastic():
        return not isinstance(error, _FATAL)
    return isinstance(error, _RECOVERABLE) or type(error) is errors.RondaError


def _attempt(
    synchronizes: bool, func: Callable[..., _Result], state: State, *args: Any, **kwargs: Any
) -> _Result:
    if synchronizes:
        state.sync()
    return func(state, *args, **kwargs)


def _attempt_elastically(
    synchronizes: bool, func: Callable[..., _Result], state: State, *args: Any, **kwargs: Any
) -> _Result:
    del synchronizes  # new ranks always need the state
    state.sync_with_newest()
    result = func(state, *args, **kwargs)
    exchanges.barrier()  # no rank goes on alone while others still have to repeat the last steps
    return result


def _reform(reason: str | None) -> None:
    while True:
        try:
            reform(reason)
            return
        except _RECOVERABLE as error:
            reason = str(error)


def _rejoin(reason: str | None) -> None:
    del reason
    try:
        shutdown()
    except errors.RondaError:
        pass  # the failure for which the program called this
    init()
