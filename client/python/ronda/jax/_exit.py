# SPDX-License-Identifier: Apache-2.0

"""The end of the job. JAX runs compiled programs asynchronously, so some may still run then."""

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
        RondaError: the job had failed. It has ended all the same.
    """
    wait_for_programs()
    ronda.shutdown()


def wait_for_programs() -> None:
    """Waits until this rank's programs with collectives have ended, in results or in errors."""
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # who uses the results gets the error
        jax.effects_barrier()


def _end_at_exit() -> None:
    """Registered after the functions of JAX and of ronda.job, and so called before them.

    JAX waits at exit for programs that still run. If an exception ends this rank, its programs may
    wait for other ranks, which wait for this rank. So the job fails at once instead.
    """
    if not ronda.is_initialized():
        return
    if job.is_ended_by_exception():
        job.abort(f"an exception has ended the rank: {_last_error.describe(sys.last_value)}")
    else:
        wait_for_programs()


atexit.register(_end_at_exit)
