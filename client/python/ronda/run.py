# SPDX-License-Identifier: Apache-2.0

"""Starts jobs: `ronda.run(func)` from a program, and the console scripts."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    np: int = 2,
    *,
    hosts: str | None = None,
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> list[Any]:
    """Calls a function on each rank of a new job.

        def train(learning_rate):
            ronda.init()
            ...
            return loss

        losses = ronda.run(train, (0.1,), np=4)  # a list of four

    The function, its arguments and its result travel pickled. For functions and classes of the main
    program or a notebook, and for lambdas, pickling needs cloudpickle: pip install ronda[run]. The
    ranks' output goes to sys.stdout and sys.stderr.

    Args:
        func: which may call init().
        args: of each call.
        kwargs: of each call.
        np: the number of ranks.
        hosts: "alpha:4,beta:4", as for rondarun -H; None: this host.
        env: variables for the ranks, beside this process' own.
        options: more options of rondarun: ["--min-np", "2"].

    Returns:
        What the calls have returned, by rank.

    Raises:
        Exception: the first exception that a call has raised, with the rank's traceback as its
            cause.
        InvalidArgumentError: an argument is wrong, or the function cannot be pickled.
        PeerFailedError: a rank has ended without a result, or rondarun cannot start the job.
    """
    # Imported here, because the import would slow `import ronda` down.
    from ronda import _run_job

    call = _run_job.Call(func, args, kwargs or {})
    return _run_job.run(launcher(), call, np, hosts, env or {}, options)


def _program(name: str) -> str:
    """Returns the path of a program. In a wheel it is beside the library, else in the
    installation's bin/.
    """
    library = pathlib.Path(__file__).parent / "lib"
    own = library / name
    return str(own if own.exists() else library.resolve().parent / "bin" / name)


def launcher() -> str:
    """The path of rondarun."""
    return _program("rondarun")


def _become(name: str) -> None:
    program = _program(name)
    os.execv(program, [program, *sys.argv[1:]])


def rondarun() -> None:
    """Serves the console scripts rondarun and horovodrun. Becomes the launcher of this package."""
    _become("rondarun")


def rondactl() -> None:
    """Serves the console script rondactl. Becomes the program of this package that looks at
    jobs.
    """
    _become("rondactl")


def ronda_monitor() -> None:
    """Serves the console script ronda-monitor. Becomes the program of this package that serves the
    state of jobs.
    """
    _become("ronda-monitor")


def ronda_bench() -> None:
    """Serves the console script ronda-bench. Becomes the benchmark of this package."""
    _become("ronda-bench")
