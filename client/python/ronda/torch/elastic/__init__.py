"""Horovod's elastic API, for jobs of a fixed number of ranks.

Programs run as they are: state is synchronized at the start, committed and restored. Ranks neither
come nor go. After an error that the job survives, all ranks go back to the last commit and try
again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ronda import errors
from ronda.torch._basics import init, shutdown
from ronda.torch.elastic.sampler import ElasticSampler
from ronda.torch.elastic.state import (
    HostsUpdatedInterrupt,
    ObjectState,
    State,
    TorchState,
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

# After these the ranks are not all there any more, and nobody will replace them.
_FATAL = (errors.PeerFailedError, errors.InvalidArgumentError, errors.OutOfMemoryError)


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """Decorates a training function whose first argument is a State.

    The state is synchronized before the function runs. If the function raises
    HorovodInternalError, the state goes back to its last commit, the ranks leave the job and join
    it anew, and the function runs again. Where a rank is lost, the error passes through: start the
    job again from a checkpoint.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> _Result:
        synchronizes = True
        while True:
            try:
                if synchronizes:
                    state.sync()
                return func(state, *args, **kwargs)
            except _FATAL:
                raise
            except errors.RondaError:
                state.restore()
                synchronizes = True
            except HostsUpdatedInterrupt as interrupt:
                synchronizes = not interrupt.skip_sync
            _rejoin()
            state.on_reset()

    return wrapper


def _rejoin() -> None:
    try:
        shutdown()
    except errors.RondaError:
        pass  # the failure that brought the program here
    init()
