# SPDX-License-Identifier: Apache-2.0

"""Ends the job, but first waits for compiled programs, because JAX runs them asynchronously."""

from __future__ import annotations

import atexit
import contextlib
import sys

import jax

import ronda
from ronda import _last_error, job


def shutdown() -> None:
    """Waits for this rank's programs, completes the operations in flight, waits until every rank
    has called shutdown(), and ends the job for this process.

    Raises:
        RondaError: the job has failed. shutdown() has still ended it for this process.
    """
    wait_for_programs()
    ronda.shutdown()


def wait_for_programs() -> None:
    """Waits until this rank's programs with collectives have ended, with success or failure."""
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # users of the results get the error
        jax.effects_barrier()


def _end_at_exit() -> None:
    """Waits for this rank's programs at exit. Runs before the exit functions that JAX and ronda.job
    have registered; the exit function of ronda.job ends the job.

    At exit, JAX waits for programs that are still running. If an exception ends this rank, its
    programs may wait for other ranks, which wait for this rank. After an exception, this function
    therefore does not wait, but fails the job at once.
    """
    if not ronda.is_initialized():
        return
    if job.is_ended_by_exception():
        job.abort(f"an exception has ended the rank: {_last_error.describe(sys.last_value)}")
    else:
        wait_for_programs()


atexit.register(_end_at_exit)
