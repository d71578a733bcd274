# SPDX-License-Identifier: Apache-2.0

"""Compares allreduces of JAX arrays under jit with Ronda, with JAX's own collectives over Gloo, and
with mpi4jax.

    rondarun -np 2 python3 bench/python/jax_collectives.py            # Ronda and Gloo
    mpirun -np 2 python3 bench/python/jax_collectives.py              # also mpi4jax, if it is there
    mpirun -np 2 python3 bench/python/jax_collectives.py --raw FILE   # also each turn, as CSV

All implementations take turns of a few calls in the same processes. A call runs a compiled program
that adds the ranks' arrays, and waits for the result. The table shows medians of the slowest rank
in microseconds, and the time of each other implementation divided by Ronda's time. FILE receives
one line per size, implementation and turn, with the median of the turn's calls on the slowest rank.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import interleaved
import jax
import jax.numpy as jnp
import numpy as np
import ronda.jax as rj
from ronda._ports import free_port

Call = Callable[[Any], Any]

# 1 KiB to 16 MiB, and the size of the buckets in which DistributedDataParallel reduces gradients.
SIZES = [*(1 << exponent for exponent in range(10, 25, 2)), 25 << 20]


def ronda_call(elements: int) -> tuple[Call, Any]:
    """Returns the compiled program and its argument."""
    return jax.jit(lambda x: rj.allreduce(x, rj.Sum)), jnp.ones(elements)


def gloo_call(elements: int) -> tuple[Call, Any]:
    """Like ronda_call(), but with JAX's collectives: the program sums an array of which each
    process has one row.
    """
    mesh = jax.sharding.Mesh(np.array(jax.devices()), "rank")
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rank"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    own = np.ones((1, elements), np.float32)
    array = jax.make_array_from_process_local_data(rows, own)
    return jax.jit(lambda x: x.sum(0), out_shardings=everywhere), array


def mpi4jax_call(elements: int) -> tuple[Call, Any]:
    """Like ronda_call(), but with mpi4jax."""
    mpi4jax = importlib.import_module("mpi4jax")
    mpi = importlib.import_module("mpi4py.MPI")

    def add(x: Any) -> Any:
        found = mpi4jax.allreduce(x, op=mpi.SUM, comm=mpi.COMM_WORLD)
        return found[0] if isinstance(found, tuple) else found  # older versions add a token

    return jax.jit(add), jnp.ones(elements)


def start_gloo() -> None:
    """Joins the processes, which are all on this host, into one JAX runtime."""
    address = rj.broadcast_object(f"127.0.0.1:{free_port()}")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, rj.size(), rj.rank())


def find_ways() -> dict[str, Callable[[int], tuple[Call, Any]]]:
    """Returns the implementations that this job can use, by name."""
    ways = {"Ronda": ronda_call, "Gloo": gloo_call}
    if "OMPI_COMM_WORLD_RANK" not in os.environ:
        interleaved.say("without mpi4jax: start with mpirun, and not with rondarun")
    elif not importlib.util.find_spec("mpi4jax"):
        interleaved.say("without mpi4jax, which is not installed: pip install mpi4jax")
    else:
        ways["mpi4jax"] = mpi4jax_call
    return ways


def waiting(call: Call, argument: Any) -> Callable[[], Any]:
    """Returns a function that makes the call and waits for its result."""
    return lambda: jax.block_until_ready(call(argument))


def check(call: Call, argument: Any) -> None:
    """Raises ValueError if the result is not the sum over the ranks."""
    found = np.asarray(call(argument))
    if (found != rj.size()).any():
        raise ValueError(f"a sum is {found}, not {rj.size()}")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, nargs="+", default=SIZES)
    interleaved.add_arguments(parser, turns=20)
    args = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    rj.init()
    start_gloo()
    makers = find_ways()
    table = interleaved.Table(args.raw)
    for size in args.bytes:
        programs = {name: make(size // 4) for name, make in makers.items()}
        for program in programs.values():
            check(*program)
        ways = {name: waiting(*program) for name, program in programs.items()}
        table.add(f"{size} bytes", interleaved.measure(ways, args.turns, args.calls))
    rj.shutdown()


if __name__ == "__main__":
    main()
