# SPDX-License-Identifier: Apache-2.0

"""Runs a Python program with Ronda's backend registered.

    python -m ronda.torch.c10d [-m] PROGRAM [ARGUMENTS]

RANK, WORLD_SIZE, LOCAL_RANK and similar variables are in the environment before the program's first
line runs, even with mpirun and srun, which do not set them. A program that declares the argument
--local_rank gets it.

With RONDA_REPLACE_BACKEND=gloo,nccl,mpi in its environment, a program that names one of these
backends runs on Ronda without changes.
"""

from __future__ import annotations

import os
import runpy
import sys

import ronda.torch.c10d  # noqa: F401  registers the backend
from ronda import _env, _local_rank


def main() -> None:
    """Runs the program in this process, as if `python` itself had started the program."""
    del sys.argv[0]
    if not sys.argv:
        sys.exit("usage: python -m ronda.torch.c10d [-m] PROGRAM [ARGUMENTS]")
    _env.announce()
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        _local_rank.hand_over(sys.argv[0])
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
