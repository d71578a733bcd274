# SPDX-License-Identifier: Apache-2.0

"""`python -m ronda.launch` is rondarun with the options of `python -m torch.distributed.launch`.

    python -m ronda.launch --nproc_per_node 4 train.py --epochs 3

starts `train.py --local_rank=N --epochs 3` on each rank; with --use_env the program reads
LOCAL_RANK instead. rondarun's manual describes the options.

With RONDA_REPLACE_BACKEND=nccl,gloo in the environment, programs that name one of these backends
run on Ronda unchanged, as with `python -m ronda.torch.c10d`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence

from ronda import _local_rank
from ronda.run import launcher

# Options of torch.distributed.launch, in any version, that rondarun has under the same name.
_WITH_VALUE = (
    "--nnodes",
    "--nproc-per-node",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--rdzv-id",
    "--rdzv-conf",
    "--max-restarts",
    "--monitor-interval",
    "--start-method",
    "--event-log-handler",
    "--role",
    "--log-dir",
    "--redirects",
    "--tee",
    "--local-addr",
    "--local-ranks-filter",
    "--logs-specs",
    "--log-line-prefix-template",
    "--numa-binding",
    "--signals-to-handle",
    "--shutdown-timeout",
)
_OTHER_NAMES = {"--log-dir": ["--logdir"], "--redirects": ["-r"], "--tee": ["-t"]}
# Defaults for options that the user does not pass. rondarun has no default for the number of ranks.
_DEFAULTS = {"--nproc-per-node": "1"}
# A placeholder in the command line, which each rank replaces with its own `--local_rank=N`.
_PLACEHOLDER = "--local_rank=?"
# A Python program that runs on each rank, inserts the local rank, and then becomes the user's
# program. rondarun cannot insert it, because it runs the same command line on all ranks.
_HAND_OVER = (
    "import os, sys; asked, words = sys.argv[1], sys.argv[2:]; "
    f"words[words.index({_PLACEHOLDER!r})] = asked + '=' + os.environ['LOCAL_RANK']; "
    "os.execvp(words[0], words)"
)


def _both_ways(name: str) -> list[str]:
    """Returns an option's name with hyphens and with underscores, because torch accepts both."""
    underscored = "--" + name[2:].replace("-", "_")
    return [name] if underscored == name else [name, underscored]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ronda.launch",
        description="Starts a Python program on the ranks of a job, with rondarun; takes the "
        "options of python -m torch.distributed.launch. `rondarun --help` explains them.",
    )
    for name in _WITH_VALUE:
        names = [*_both_ways(name), *_OTHER_NAMES.get(name, [])]
        parser.add_argument(*names, dest=name, metavar="VALUE", default=_DEFAULTS.get(name))
    parser.add_argument("--standalone", action="store_true", help="this node alone")
    parser.add_argument(
        *_both_ways("--use-env"),
        dest="use_env",
        action="store_true",
        help="do not hand --local_rank=N to the program, which reads LOCAL_RANK",
    )
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module")
    parser.add_argument(
        *_both_ways("--no-python"),
        dest="no_python",
        action="store_true",
        help="the program is none of Python; needs --use_env",
    )
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS")
    return parser


def _options_of(given: argparse.Namespace) -> list[str]:
    """Returns rondarun's options for the options that the user has passed."""
    options = []
    for name in _WITH_VALUE:
        value = getattr(given, name)
        if value is None:
            continue
        least, _, most = value.partition(":")
        if name == "--nnodes" and least == most:
            value = least  # torch's way to write a fixed number
        options += [name, value]
    if given.standalone:
        options.append("--standalone")
    return options


def _python_of(program: str, is_module: bool) -> list[str]:
    """Returns the part of the command line before the program's own arguments."""
    words = [sys.executable, "-u"]
    if os.environ.get("RONDA_REPLACE_BACKEND"):
        words += ["-m", "ronda.torch.c10d"]
    return [*words, "-m", program] if is_module else [*words, program]


def _file_of(program: str, is_module: bool) -> str:
    """Returns the path of the program's file, or "" if it is not found."""
    if not is_module:
        return program
    try:
        found = importlib.util.find_spec(program)
    except ImportError:
        return ""  # the ranks report that the module is missing
    return (found.origin or "") if found else ""


def command(arguments: Sequence[str]) -> list[str]:
    """Returns rondarun's command line for the arguments of torch.distributed.launch.

    Raises:
        SystemExit: the arguments are wrong or ask for help. The function has already printed the
            error or the help.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.no_python and (given.module or not given.use_env):
        parser.error("--no_python: the program is none of Python: give --use_env too, and no -m")
    program = [given.program] if given.no_python else _python_of(given.program, given.module)
    if given.use_env:
        return [launcher(), *_options_of(given), "--", *program, *given.arguments]
    spelling = _local_rank.spelling_for(_file_of(given.program, given.module))
    hand_over = [sys.executable, "-I", "-S", "-c", _HAND_OVER, spelling]
    ranks = [*hand_over, *program, _PLACEHOLDER, *given.arguments]
    return [launcher(), *_options_of(given), "--", *ranks]


def main() -> None:
    """Replaces this process with rondarun."""
    words = command(sys.argv[1:])
    os.execv(words[0], words)


if __name__ == "__main__":
    main()
