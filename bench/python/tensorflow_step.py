# SPDX-License-Identifier: Apache-2.0

"""Compares ronda.tensorflow with tf.distribute in the all-reduce of a step's gradients.

    rondarun -np 2 python3 bench/python/tensorflow_step.py

Ronda and tf.distribute reduce the same tensors in a tf.function, taking turns of a few steps in the
same processes. Ronda uses grouped_allreduce(); tf.distribute uses the all_reduce() of a
MultiWorkerMirroredStrategy. Ronda is measured twice: with its kernel, and with a tf.numpy_function,
which calls Python. The table shows medians of the slowest rank in microseconds, and the time of
each other implementation divided by the time of Ronda's kernel. On a busy machine, only the ratios
are meaningful.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import unittest.mock
from collections.abc import Callable
from typing import Any

import interleaved
import ronda

# The names of the cases, and how many floats each of their tensors has.
CASES = {
    "1 KiB": [256],
    "64 KiB": [1 << 14],
    "256 KiB": [1 << 16],
    "1 MiB": [1 << 18],
    "4 MiB": [1 << 20],
    "16 MiB": [1 << 22],
    "LeNet, 10 tensors": [150, 6, 2400, 16, 48000, 120, 10080, 84, 840, 10],
    "100 tensors, 25 MiB": [1 << 16] * 100,
}


def join_cluster() -> None:
    """Describes the ranks to tf.distribute through TF_CONFIG."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        own = f"127.0.0.1:{listener.getsockname()[1]}"
        workers = ronda.allgather_object(own)
    task = {"type": "worker", "index": ronda.rank()}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})


def make_steps(tf: Any, strategy: Any, hvd: Any, sizes: list[int]) -> dict[str, Callable[[], Any]]:
    """Returns the steps to compare. Each step is a function that returns the reduced tensors."""
    tensors = [tf.fill([size], ronda.rank() + 1.0) for size in sizes]

    def reduce() -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)

    def by_numpy_function() -> Any:
        with unittest.mock.patch.object(hvd._kernels, "are_registered", False):  # while it traces
            return hvd.grouped_allreduce(tensors, op=hvd.Sum)

    assert hvd.native_ops_built()
    return {
        "Ronda": tf.function(lambda: hvd.grouped_allreduce(tensors, op=hvd.Sum)),
        "numpy_function": tf.function(by_numpy_function, autograph=False),
        "tf.distribute": tf.function(lambda: strategy.run(reduce)),
    }


def waiting(step: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a function that runs the step and waits for its last tensor."""
    return lambda: step()[-1].numpy()


def check(step: Callable[[], Any]) -> None:
    """Raises ValueError if any result is not the sum over the ranks."""
    expected = ronda.size() * (ronda.size() + 1) / 2
    for tensor in step():
        if (tensor.numpy() != expected).any():
            raise ValueError(f"a sum is {tensor.numpy()}, not {expected}")


def main() -> None:
    """Measures each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    interleaved.add_arguments(parser, turns=10)
    args = parser.parse_args()

    ronda.init()
    join_cluster()
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before any operation of TensorFlow

    import ronda.tensorflow as hvd

    hvd.init()
    table = interleaved.Table(args.raw)
    for name, sizes in CASES.items():
        steps = make_steps(tf, strategy, hvd, sizes)
        for step in steps.values():
            check(step)
        ways = {way: waiting(step) for way, step in steps.items()}
        table.add(name, interleaved.measure(ways, args.turns, args.calls))


if __name__ == "__main__":
    main()
