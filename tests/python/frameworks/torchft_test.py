# SPDX-License-Identifier: Apache-2.0

"""Tests torchft's Manager over Ronda. Replicas die and join, and the other replicas continue."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator, Sequence

import torch
from ronda_test import environment, eventually, finish, program
from torchft.coordination import LighthouseServer

RATE = 0.1  # of SGD

_HEAD = """
    import os
    import pathlib
    import signal
    import sys
    import time
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    import torchft
    from ronda.torch.frameworks.torchft import ProcessGroupRonda

    number, lighthouse = int(sys.argv[1]), sys.argv[2]
    folder = pathlib.Path(sys.argv[3])
    torch.manual_seed(1)
    plain = torch.nn.Linear(4, 1)
    descent = torch.optim.SGD(plain.parameters(), lr=RATE)

    def load(state):
        plain.load_state_dict(state["model"])
        descent.load_state_dict(state["optimizer"])

    def save():
        return {"model": plain.state_dict(), "optimizer": descent.state_dict()}

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = ProcessGroupRonda(timeout=timedelta(seconds=60))
    manager = torchft.Manager(
        pg=group, load_state_dict=load, state_dict=save, min_replica_size=1, init_sync=False,
        rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port,
        lighthouse_addr=lighthouse, replica_id=f"replica_{number}_", hostname="127.0.0.1",
    )
    model = torchft.DistributedDataParallel(manager, plain) if WRAPPED else plain
    optimizer = torchft.Optimizer(manager, descent)

    def step():
        # Returns how many replicas have made it; nothing if it does not count.
        before = manager.current_step()
        generator = torch.Generator().manual_seed(100 * before + number)
        inputs = torch.randn(8, 4, generator=generator)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        if not WRAPPED:
            for work in [manager.allreduce(value.grad) for value in plain.parameters()]:
                work.wait()
        optimizer.step()
        (folder / f"began{number}").touch()
        return [manager.num_participants()] * (manager.current_step() > before)

    def await_file(name):
        while not (folder / name).exists():
            time.sleep(0.01)

    def end():
        torch.save([value.detach() for value in plain.parameters()], folder / f"{number}.pt")
        manager.shutdown(wait=False)
        os._exit(0)  # threads of torchft's wait for their peers
""".replace("RATE", str(RATE))

# The number of steps that both replicas make together. Then replica 1 dies, and replica 0 makes as
# many steps alone.
_STEPS = 5
_LOSS = (
    _HEAD
    + f"""
    made = []  # participants of each step
    while made.count(2) < {_STEPS}:
        made += step()
    (folder / f"half{{number}}").touch()
    await_file("half0")
    await_file("half1")
    DEATH
    while len(made) - made.index(2) < 2 * {_STEPS}:
        made += step()
    print("participants", *made, flush=True)
    end()
"""
)
_BETWEEN_STEPS = """
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while group.errored() is None:
        time.sleep(0.01)
    print(f"{type(group.errored()).__name__}: {group.errored()}", flush=True)
"""
# Replica 1 dies after the replicas have agreed on a quorum, so replica 0 expects it to take part in
# the step.
_WITHIN_A_STEP = """
    if number == 1:
        optimizer.zero_grad()
        manager.wait_quorum()
        os.kill(os.getpid(), signal.SIGKILL)
"""

# Replica 0 first makes some steps alone. When replica 1 has joined, both replicas make steps
# together.
_JOINING = (
    _HEAD
    + f"""
    together = 0
    while together < {_STEPS}:
        together += step() == [2]
    end()
"""
)


def expected(participants: Sequence[int]) -> list[torch.Tensor]:
    """Computes in one process the parameters after steps with these numbers of replicas."""
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1)
    descent = torch.optim.SGD(model.parameters(), lr=RATE)
    for step, replicas in enumerate(participants):
        descent.zero_grad()
        for replica in range(replicas):
            generator = torch.Generator().manual_seed(100 * step + replica)
            inputs = torch.randn(8, 4, generator=generator)
            (model(inputs).square().mean() / replicas).backward()
        descent.step()
    return [parameter.detach() for parameter in model.parameters()]


class TorchftTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    @contextlib.contextmanager
    def lighthouse(self) -> Iterator[str]:
        """Starts the server that tells each replica which other replicas are alive. If a replica
        sends no more heartbeats, the server counts it as dead.
        """
        server = LighthouseServer(
            bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=60000, heartbeat_timeout_ms=2000
        )
        try:
            yield server.address().replace(os.uname().nodename, "127.0.0.1")
        finally:
            server.shutdown()

    def start(self, source: str, number: int, lighthouse: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, program(source), str(number), lighthouse, str(self.folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Otherwise the server would log each step, and fill a pipe that nobody reads.
            env={**environment(), "OMP_NUM_THREADS": "1", "RUST_LOG": "error"},
            start_new_session=True,
        )
        self.addCleanup(self.kill, process)
        return process

    def start_both(self, source: str, lighthouse: str) -> Sequence[subprocess.Popen[str]]:
        """Starts the second replica after the first has made a step."""
        first = self.start(source, 0, lighthouse)
        self.assertTrue(eventually((self.folder / "began0").exists, 200))
        return first, self.start(source, 1, lighthouse)

    @staticmethod
    def kill(process: subprocess.Popen[str]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def parameters(self, number: int) -> list[torch.Tensor]:
        return torch.load(self.folder / f"{number}.pt")

    def lose(self, death: str, wrapped: bool) -> str:
        """Runs two replicas, and replica 1 dies. Returns the output of replica 0."""
        death = death.replace("\n    ", "\n").strip().replace("\n", "\n    ")
        source = _LOSS.replace("DEATH", death).replace("WRAPPED", str(wrapped))
        with self.lighthouse() as address:
            first, second = self.start_both(source, address)
            self.assertEqual(finish(second).code, -signal.SIGKILL)
            finished = finish(first)
        self.assertEqual(finished.code, 0, finished.out)
        [line] = [line for line in finished.out.splitlines() if line.startswith("participants")]
        participants = [int(number) for number in line.split()[1:]]
        self.assertEqual(participants[-2 * _STEPS :], [2] * _STEPS + [1] * _STEPS)
        for mine, right in zip(self.parameters(0), expected(participants)):
            torch.testing.assert_close(mine, right)
        return finished.out

    def test_a_replica_is_lost(self) -> None:
        """Replica 1 dies. Replica 0 makes the remaining steps, with its own gradients."""
        out = self.lose(_BETWEEN_STEPS, wrapped=True)
        self.assertIn("PeerFailedError: rank 1", out)

    def test_a_replica_is_lost_in_a_step(self) -> None:
        """Replica 0 repeats the failed step. torchft 0.2.0's DistributedDataParallel cannot repeat
        a step.
        """
        self.lose(_WITHIN_A_STEP, wrapped=False)

    def test_a_replica_comes(self) -> None:
        """A replica that joins later gets the state of the other replica."""
        source = _JOINING.replace("WRAPPED", "True")
        with self.lighthouse() as address:
            for process in self.start_both(source, address):
                finished = finish(process)
                self.assertEqual(finished.code, 0, finished.out)
        for mine, other in zip(self.parameters(0), self.parameters(1)):
            self.assertTrue(torch.equal(mine, other))
