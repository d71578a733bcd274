# SPDX-License-Identifier: Apache-2.0

"""Starts jobs from a Python program, with `ronda.run(func)`, and implements the console scripts."""

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

    The function, its arguments and its result are sent in pickled form. For functions and classes
    of the main program or a notebook, and for lambdas, pickling needs cloudpickle: pip install
    ronda[run]. The ranks' output goes to sys.stdout and sys.stderr.

    Args:
        func: the function, which may call init().
        args: positional arguments of each call.
        kwargs: named arguments of each call.
        np: the number of ranks.
        hosts: as for rondarun -H, for example "alpha:4,beta:4". None means this host.
        env: environment variables for the ranks, in addition to the variables of this process.
        options: more options of rondarun, for example ["--min-np", "2"].

    Returns:
        The results of the calls, by rank. In an elastic job: the results of the ranks of its last
        epoch, of which there may be fewer or more than `np`.

    Raises:
        Exception: the first exception that a call raised, with the rank's traceback as its cause.
            An elastic job that has gone on without that rank returns its results instead.
        OSError, ValueError: sys.stdout or sys.stderr was closed; the job has been ended.
        InvalidArgumentError: an argument is wrong, or the function cannot be pickled.
        PeerFailedError: a rank has ended without a result, or rondarun cannot start the job.
    """
    # _run_job is imported here, because an import at the top of the file would make `import ronda`
    # slower.
    from ronda import _run_job

    call = _run_job.Call(func, args, kwargs or {})
    return _run_job.run(launcher(), call, np, hosts, env or {}, options)


def _program(name: str) -> str:
    """Returns the path of a program. In a wheel the program is next to the library; otherwise it is
    in the installation's bin/.
    """
    library = pathlib.Path(__file__).parent / "lib"
    own = library / name
    return str(own if own.exists() else library.resolve().parent / "bin" / name)


def launcher() -> str:
    """Returns the path of rondarun."""
    return _program("rondarun")


def _become(name: str) -> None:
    program = _program(name)
    os.execv(program, [program, *sys.argv[1:]])


def rondarun() -> None:
    """The console scripts rondarun and horovodrun. Replaces this process with the launcher."""
    _become("rondarun")


def rondactl() -> None:
    """The console script rondactl. Replaces this process with the program that inspects jobs."""
    _become("rondactl")


def ronda_monitor() -> None:
    """The console script ronda-monitor. Replaces this process with the program that serves the
    state of jobs over HTTP.
    """
    _become("ronda-monitor")


def ronda_bench() -> None:
    """The console script ronda-bench. Replaces this process with the benchmark program."""
    _become("ronda-bench")
