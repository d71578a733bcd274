# SPDX-License-Identifier: Apache-2.0

"""Tests calls to ronda.jax's GPU handler in jobs that fail, or that cannot use a GPU."""

from __future__ import annotations

import pathlib
import unittest

import ronda_test

PROGRAM = """
    import os, signal, sys
    sys.path.insert(0, {folder!r})
    from xla_call import Device, Kind, Xla
    import ronda
    ronda.init()
    device = Device(ronda.rank())
    stream, own = device.stream(), device.tensor(3)
    xla = Xla("CUDA")

    def reduce(name):
        return xla.call(Kind.ALLREDUCE, [own], [own], stream, names=name)
    """


def run(body: str, ranks: int, **env: str) -> ronda_test.Finished:
    folder = str(pathlib.Path(__file__).parent)
    return ronda_test.run(PROGRAM.format(folder=folder) + body, ranks, env=env)


class FailureTest(unittest.TestCase):
    def test_a_plugin_that_is_missing_is_named(self) -> None:
        done = run("print(reduce('x'))", 0, RONDA_CUDA_PLUGIN="/nowhere/libronda_cuda.so")
        self.assertRegex(done.out, r"Error: .*Ronda's CUDA plugin cannot be loaded \(/nowhere/")
        self.assertRegex(done.out, r"belongs beside libronda.so, .*\[the test\]")

    def test_a_rank_that_dies_behind_a_call_is_named_by_the_next_one(self) -> None:
        done = run(
            """
    if ronda.rank() == 1:
        held = device.hold(stream)
    assert reduce("x") is None
    if ronda.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    print(reduce("y"))
    """,
            ranks=2,
        )
        self.assertRegex(done.out, r"PeerFailedError: .*rank 1 .*died.*\[the test\]")


if __name__ == "__main__":
    unittest.main()
