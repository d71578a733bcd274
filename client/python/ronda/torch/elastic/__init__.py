"""Horovod's elastic API.

Under an elastic launcher, `rondarun --min-np`, ranks may die, come and go: those that are left go
back to the newest commit that one of them holds, newcomers get it too, and the training function
runs again. Elsewhere a job has a fixed number of ranks: its state is synchronized at the start,
committed and restored, and after an error that the job survives all ranks go back to the last
commit and try again.
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

# After these the ranks of a job of fixed size are not all there any more.
_FATAL = (errors.PeerFailedError, errors.InvalidArgumentError, errors.OutOfMemoryError)

# After these the ranks of an elastic job that are left are sound. A RondaError of no class of its
# own is one that the program has raised, as HorovodInternalError.
_RECOVERABLE = (errors.PeerFailedError, errors.DeadlineError)


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """Decorates a training function whose first argument is a State.

    The state is synchronized before the function runs. If the function raises
    HorovodInternalError, the state goes back to its last commit, the ranks meet anew, and the
    function runs again. In an elastic job so it does when a rank has died, or when the members
    change; a rank that is asked to leave, by SIGTERM, ends with SystemExit(0) at its next commit.
    Elsewhere, where a rank is lost, the error passes through: start the job again from a
    checkpoint.
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
    del synchronizes  # newcomers always need the state
    state.sync_with_newest()
    result = func(state, *args, **kwargs)
    exchanges.barrier()  # nobody goes on alone while others have yet to redo the last steps
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
        pass  # the failure that brought the program here
    init()
