"""Jobs of two ranks that train one small model by a framework, and what their ranks have learnt.

A program of such a job imports this module for the model and the samples. A test starts it with
each backend, by each launcher, and compares.
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
RATE = 0.05  # of SGD, which shows a sum that was taken for an average

_FOLDER = "TRAINED"  # variable with the folder of the results

# The entry point by which torch finds the backend, as pip would have installed it.
_INSTALLED = {
    "METADATA": "Metadata-Version: 2.1\nName: ronda\nVersion: 0\n",
    "entry_points.txt": "[torch.backends]\nronda = ronda._torch_backend:register\n",
}


# -- For programs --


class Model(torch.nn.Module):
    """Adds up the inputs that it is trained with, so that a test sees whether ranks had others."""

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
    """Of all ranks: each trains STEPS batches of its part."""
    generator = torch.Generator().manual_seed(2)
    count = RANKS * STEPS * BATCH
    inputs = torch.randn(count, 8, generator=generator)
    return torch.utils.data.TensorDataset(inputs, torch.randn(count, 4, generator=generator))


def part(rank: int) -> torch.utils.data.DataLoader:
    """The batches of a rank, for frameworks that leave this to the program."""
    whole = samples()
    mine = torch.utils.data.Subset(whole, range(rank, len(whole), RANKS))
    return torch.utils.data.DataLoader(mine, batch_size=BATCH)


def report(model: Model, rank: int, backend: str) -> None:
    """Hands what a rank has learnt to the test."""
    parameters = [parameter.detach().clone() for parameter in model.parameters()]
    torch.save(
        {"parameters": parameters, "seen": model.seen, "backend": backend},
        pathlib.Path(os.environ[_FOLDER], f"rank{rank}.pt"),
    )


# -- For tests --


def train(
    source: str, launcher: str, arguments: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> list[dict]:
    """What each rank of a program, given as its source, has reported.

    Args:
        source: of the program.
        launcher: "rondarun", "torchrun", or "python" for a program that starts the ranks.
        arguments: of the program.
        env: added to the environment.
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
        # torchrun's workers have sessions of their own, and end with it only if it is told to end.
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


_LIMIT_S = 900  # of which the import of a framework takes minutes where the host is busy

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
        "OMP_NUM_THREADS": "1",  # with others sums of one rank could differ between runs
        **added,
    }


def differences(results: Sequence[dict], expected: Sequence[dict]) -> list[str]:
    """What is wrong with what ranks have learnt, besides what is expected of them.

    Both ranks' averages are sums of the same two numbers, so that all have the same bits.
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
