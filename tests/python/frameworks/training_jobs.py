# SPDX-License-Identifier: Apache-2.0

"""Runs jobs of two ranks that train a small model with a framework, and collects the ranks'
results.

The program of such a job imports this module for the model and the samples. A test starts the
program with each backend and each launcher, and compares the results.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence

import torch
from ronda_test import RONDARUN, environment, finish, program

RANKS = 2
STEPS = 20
BATCH = 4
RATE = 0.05  # of SGD; large enough to show a sum instead of an average

_FOLDER = "TRAINED"  # variable with the folder of the results

# Files with the entry point through which torch finds the backend, as if pip had installed Ronda.
_INSTALLED = {
    "METADATA": "Metadata-Version: 2.1\nName: ronda\nVersion: 0\n",
    "entry_points.txt": "[torch.backends]\nronda = ronda._torch_backend:register\n",
}


# -- For programs --


class Model(torch.nn.Module):
    """A model that also adds up its training inputs, so that a test sees which inputs each rank
    had.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)
        )
        self.seen = 0.0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen += float(inputs.detach().sum())
        return self.layers(inputs)


def samples() -> torch.utils.data.TensorDataset:
    """Returns the samples of all ranks. Each rank trains on STEPS batches of its share."""
    generator = torch.Generator().manual_seed(2)
    count = RANKS * STEPS * BATCH
    inputs = torch.randn(count, 8, generator=generator)
    return torch.utils.data.TensorDataset(inputs, torch.randn(count, 4, generator=generator))


def part(rank: int) -> torch.utils.data.DataLoader:
    """Returns a rank's batches, for frameworks that leave dividing the samples to the program."""
    whole = samples()
    mine = torch.utils.data.Subset(whole, range(rank, len(whole), RANKS))
    return torch.utils.data.DataLoader(mine, batch_size=BATCH)


def report(model: Model, rank: int, backend: str) -> None:
    """Sends a rank's training results to the test."""
    parameters = [parameter.detach().clone() for parameter in model.parameters()]
    torch.save(
        {"parameters": parameters, "seen": model.seen, "backend": backend},
        pathlib.Path(os.environ[_FOLDER], f"rank{rank}.pt"),
    )


# -- For tests --


def train(
    source: str, launcher: str, arguments: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> list[dict]:
    """Runs a program from its source, and returns the report of each rank.

    Args:
        source: the source of the program.
        launcher: "rondarun", "torchrun", or "python" for a program that starts the ranks.
        arguments: the arguments of the program.
        env: variables that are added to the environment.
    """
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as name:
        folder = pathlib.Path(name)
        command = [*_LAUNCHERS[launcher], program(source), *arguments]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(folder, env or {}),
            start_new_session=True,
        )
        # torchrun's workers have their own sessions, so they end with torchrun only if torchrun
        # gets a signal that it can handle.
        limit = threading.Timer(_LIMIT_S, process.terminate)
        limit.start()
        try:
            finished = finish(process, _LIMIT_S + 60)
        finally:
            limit.cancel()
        if finished.code != 0:
            raise AssertionError(
                f"{command} ended with {finished.code}:\n{finished.out}\n{finished.err}"
            )
        return [torch.load(folder / f"rank{rank}.pt") for rank in range(RANKS)]


_LIMIT_S = 900  # a framework's import takes minutes of this on a busy host

_LAUNCHERS = {
    "rondarun": [str(RONDARUN), "-np", str(RANKS), sys.executable],
    "torchrun": [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--standalone", f"--nproc_per_node={RANKS}"),
    ],
    "python": [sys.executable],
}


def _environment(folder: pathlib.Path, added: Mapping[str, str]) -> dict[str, str]:
    info = folder / "ronda-0.dist-info"
    info.mkdir()
    for name, text in _INSTALLED.items():
        (info / name).write_text(text)
    path = [os.environ["PYTHONPATH"], str(pathlib.Path(__file__).parent), str(folder)]
    return {
        **environment(),
        "PYTHONPATH": os.pathsep.join(path),
        _FOLDER: str(folder),
        "OMP_NUM_THREADS": "1",  # with more threads, sums of one rank could differ between runs
        **added,
    }


def differences(results: Sequence[dict], expected: Sequence[dict]) -> list[str]:
    """Returns the differences between the results of the ranks and the expected results.

    The average on each rank is computed from the sum of the same two numbers, so the averages have
    the same bits.
    """
    wrong = []
    if results[0]["seen"] == results[1]["seen"]:
        wrong.append("both ranks had the same samples")
    for rank, (mine, right) in enumerate(zip(results, expected)):
        if mine["seen"] != right["seen"]:
            wrong.append(f"rank {rank} had other samples: {mine['seen']}, not {right['seen']}")
        for index, (one, other) in enumerate(zip(mine["parameters"], right["parameters"])):
            if not torch.equal(one, results[0]["parameters"][index]):
                wrong.append(f"rank {rank} differs from rank 0 in parameter {index}")
            if not torch.equal(one, other):
                error = float((one - other).abs().max())
                wrong.append(f"rank {rank} has another parameter {index}, by up to {error}")
    return wrong
