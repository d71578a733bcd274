# SPDX-License-Identifier: Apache-2.0

"""Checks that compile the sources with clang."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
from collections.abc import Iterator

from sources import CheckError, Finding, Sources

# Headers that make clang-tidy take minutes: those of gRPC and libtorch.
_SLOW_HEADERS = re.compile(r'#include [<"](grpcpp/|torch/|ronda/torch)')
_CUDA_HEADERS = re.compile(r"#include <(cu|nccl|nvtx)")
_CUDA = pathlib.Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"


def _bazel(sources: Sources, *arguments: str) -> str:
    command = [os.environ.get("BAZEL", "bazel"), *arguments]
    try:
        done = subprocess.run(command, cwd=sources.root, text=True, stdout=subprocess.PIPE)
    except FileNotFoundError:
        remedy = "run third_party/install.sh build"
        raise CheckError(f"{command[0]} is not installed: {remedy}") from None
    if done.returncode != 0:
        raise CheckError(f"{shlex.join(command)} fails, as said above")
    return done.stdout.strip()


def _has_all(sources: Sources) -> bool:
    return sources.selected == frozenset(sources.files)


def check_clang(sources: Sources) -> Iterator[Finding]:
    """clang compiles everything with -Wthread-safety -Werror.

    For a change, only clang-tidy analyses thread safety, because a clang build would compile
    everything that the change depends on.
    """
    if _has_all(sources):
        _bazel(sources, "build", "--config=clang", "--show_progress_rate_limit=60", "//...")
    yield from ()


def _is_tidied(sources: Sources, path: str) -> bool:
    text = sources.text(path)
    return not _SLOW_HEADERS.search(text) and (_CUDA.is_dir() or not _CUDA_HEADERS.search(text))


def check_clang_tidy(sources: Sources) -> Iterator[Finding]:
    """clang-tidy and clang's thread-safety analysis report nothing."""
    # With --all, source files include every header. For a change, headers are checked separately.
    endings = (".cc",) if _has_all(sources) else (".cc", ".h", ".hpp")
    paths = [path for path in sources.chosen(*endings) if _is_tidied(sources, path)]
    if not paths:
        return
    _bazel(sources, "build", "--noshow_progress", "//proto/...")
    generated = _bazel(sources, "info", "bazel-bin")
    flags = ["-xc++", "-std=c++20", "-Wthread-safety", "-I.", f"-I{generated}", "-Iclient"]
    flags += ["-isystem", "/usr/include/eigen3", "-isystem", str(_CUDA)]

    def tidy(path: str) -> tuple[str, subprocess.CompletedProcess[str]]:
        command = ["clang-tidy-14", "--quiet", path, "--", *flags]
        return path, subprocess.run(command, cwd=sources.root, text=True, capture_output=True)

    try:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for path, done in pool.map(tidy, paths):
                if done.returncode != 0:
                    yield Finding(path, 1, "\n" + done.stdout.strip())
    except FileNotFoundError:
        remedy = "run third_party/install.sh lint"
        raise CheckError(f"clang-tidy-14 is not installed: {remedy}") from None
