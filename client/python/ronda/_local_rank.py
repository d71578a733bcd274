# SPDX-License-Identifier: Apache-2.0

"""Handles --local_rank, the argument through which torch.distributed.launch passed a program its
local rank.

Programs for old versions of PyTorch have `parser.add_argument("--local_rank", default=0)`, and
later programs have "--local-rank". Without the argument, every rank uses the program's default: all
ranks on a host then use the same GPU, and each acts as the first rank.
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import re
import sys

_IN_CALL = r"add_argument\(\s*(?:\s*['\"]-[^'\"]*['\"]\s*,)*\s*['\"]"
_SPELLINGS = ("--local_rank", "--local-rank")


def asked_for_by(source: str) -> str | None:
    """Returns the spelling in a program's own add_argument(), or the older spelling if it has
    both.
    """
    for spelling in _SPELLINGS:
        if re.search(_IN_CALL + spelling + r"['\"]", source):
            return spelling
    return None


def spelling_for(program: str) -> str:
    """Returns the spelling of the argument that this program expects.

    Uses the spelling in the program's main file. If that file does not declare the argument, uses
    the spelling of the installed torch.distributed.launch.
    """
    asked = asked_for_by(_text_of(program))
    if asked is not None:
        return asked
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    return _SPELLINGS[0] if version.startswith("1.") else _SPELLINGS[1]


def hand_over(program: str) -> None:
    """Adds the argument to sys.argv if this program's main file declares the argument and sys.argv
    lacks it.
    """
    local_rank = os.environ.get("LOCAL_RANK")
    given = {argument.split("=")[0] for argument in sys.argv[1:]}
    if local_rank is None or given & set(_SPELLINGS):
        return
    asked = asked_for_by(_text_of(program))
    if asked is not None:
        sys.argv.insert(1, f"{asked}={local_rank}")


def _text_of(program: str) -> str:
    try:
        return pathlib.Path(program).read_text(errors="replace")
    except OSError:
        return ""  # no file, for instance a module: no text to search
