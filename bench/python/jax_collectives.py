# SPDX-License-Identifier: Apache-2.0

"""Allreduces of JAX arrays under jit: by Ronda, by JAX's own collectives over Gloo, and by mpi4jax.

    rondarun -np 2 python3 bench/python/jax_collectives.py            # Ronda and Gloo
    mpirun -np 2 python3 bench/python/jax_collectives.py              # also mpi4jax, if it is there
    mpirun -np 2 python3 bench/python/jax_collectives.py --raw FILE   # also each turn, as CSV

All run in the same processes, in turns of a few calls. A call is a compiled program that adds the
ranks' arrays, and the wait for its result. The table has medians of the slowest rank in
microseconds, and how many times as long as Ronda's the others' are. FILE gets a line for each size,
way and turn: the median of the turn's calls on the slowest rank.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import ronda
import ronda.jax as rj
from ronda._ports import free_port

Call = Callable[[Any], Any]

# 1 KiB to 16 MiB, and the size in which DistributedDataParallel reduces gradients.
SIZES = [*(1 << exponent for exponent in range(10, 25, 2)), 25 << 20]


def ronda_call(elements: int) -> tuple[Call, Any]:
    """The program, and its argument."""
    return jax.jit(lambda x: rj.allreduce(x, rj.Sum)), jnp.ones(elements)


def gloo_call(elements: int) -> tuple[Call, Any]:
    """A sum over an array of which each process has a row."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), "rank")
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rank"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    own = np.ones((1, elements), np.float32)
    array = jax.make_array_from_process_local_data(rows, own)
    return jax.jit(lambda x: x.sum(0), out_shardings=everywhere), array


def mpi4jax_call(elements: int) -> tuple[Call, Any]:
    """As Ronda's."""
    mpi4jax = importlib.import_module("mpi4jax")
    mpi = importlib.import_module("mpi4py.MPI")

    def add(x: Any) -> Any:
        found = mpi4jax.allreduce(x, op=mpi.SUM, comm=mpi.COMM_WORLD)
        return found[0] if isinstance(found, tuple) else found  # older versions add a token

    return jax.jit(add), jnp.ones(elements)


def seconds(call: Call, argument: Any, calls: int) -> list[float]:
    """The times of some calls."""
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        jax.block_until_ready(call(argument))
        times.append(time.perf_counter() - begin)
    return times


def start_gloo() -> None:
    """Joins the processes, which are all on this host, to one runtime of JAX."""
    address = rj.broadcast_object(f"127.0.0.1:{free_port()}")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, rj.size(), rj.rank())


def measure(
    programs: dict[str, tuple[Call, Any]], turns: int, calls: int
) -> dict[str, list[float]]:
    """For each way, the median of each turn in microseconds. The slowest rank's counts."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(turns + 1):
        for name, program in programs.items():
            ronda.barrier()
            found = seconds(*program, calls)
            if turn:  # the first turn compiles
                times[name].append(statistics.median(found) * 1e6)
    every = ronda.allreduce(np.array(list(times.values())), ronda.ReduceOp.MAX)
    return dict(zip(times, every.tolist()))


def write_turns(path: str, size: int, times: dict[str, list[float]]) -> None:
    """Adds lines to the file of --raw."""
    with open(path, "a") as file:
        for name, turns in times.items():
            for turn, microseconds in enumerate(turns):
                print(f"{size},{name},{turn},{microseconds:.1f}", file=file)


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--calls", type=int, default=10, help="in a turn")
    parser.add_argument("--raw", metavar="FILE", help="each turn as CSV: bytes,way,turn,us")
    return parser.parse_args()


def main() -> None:
    """Prints the table."""
    args = arguments()
    jax.config.update("jax_platforms", "cpu")
    rj.init()
    start_gloo()
    makers = {"ronda": ronda_call, "gloo": gloo_call}
    if importlib.util.find_spec("mpi4jax") and "OMPI_COMM_WORLD_RANK" in os.environ:
        makers["mpi4jax"] = mpi4jax_call
    if rj.rank() == 0:
        print("bytes".rjust(9), *[name.rjust(9) for name in makers], *list(makers)[1:], sep="  ")
        if args.raw:
            Path(args.raw).write_text("bytes,way,turn,us\n")
    for size in args.bytes:
        programs = {name: make(size // 4) for name, make in makers.items()}
        times = measure(programs, args.turns, args.calls)
        if rj.rank() == 0:
            medians = [statistics.median(each) for each in times.values()]
            ratios = [f"{each / medians[0]:.2f}x" for each in medians[1:]]
            print(f"{size:9}", *[f"{each:9.1f}" for each in medians], *ratios, sep="  ", flush=True)
            if args.raw:
                write_turns(args.raw, size, times)
    rj.shutdown()


if __name__ == "__main__":
    main()
