# SPDX-License-Identifier: Apache-2.0

"""Runs or compiles every block of README.md and docs/, unless snippets.py says why not."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import ronda_test
import snippets
from blocks import blocks_of, programs

_TABLES = [
    *snippets.PYTHON,
    *snippets.PYTHON_ALONE,
    *snippets.CPP,
    *snippets.CPP_PROGRAMS,
    *snippets.SHELL,
]


class BlocksTest(unittest.TestCase):
    def test_blocks_of_a_page(self) -> None:
        page = "# A\n```python\nx\n```\n- b\n  ```\n  y\n    z\n  ```\n"
        found = [(each.place, each.language, each.text) for each in blocks_of("p.md", page)]
        self.assertEqual(found, [("p.md:2", "python", "x\n"), ("p.md:6", "", "y\n  z\n")])

    def test_every_block_is_run_or_has_a_reason(self) -> None:
        begins = [*(each.begins for each in _TABLES), *snippets.NOT_RUN]
        for block in programs():
            with self.subTest(block.place):
                found = [words for words in begins if block.begins(words)]
                first = block.text.split("\n")[0]
                remedy = "write one in tests/docs/snippets.py, or a reason in its NOT_RUN"
                text = f"{block.place} ({first}) has {len(found)} entries {found}: {remedy}"
                self.assertEqual(len(found), 1, text)

    def test_every_entry_has_a_block(self) -> None:
        blocks = programs()
        for words in [*(each.begins for each in _TABLES), *snippets.NOT_RUN]:
            with self.subTest(words):
                found = any(block.begins(words) for block in blocks)
                self.assertTrue(found, "no page has this block: remove the entry from snippets.py")


class PythonTest(unittest.TestCase):
    def check(self, snippet: snippets.Snippet, ranks: int) -> None:
        with self.subTest(snippet.begins):
            finished = ronda_test.run(snippet.program(), ranks=ranks)
            self.assertEqual(finished.code, 0, finished.out + finished.err)

    def test_snippets_on_two_ranks(self) -> None:
        for snippet in snippets.PYTHON:
            self.check(snippet, 2)

    def test_snippets_that_start_their_ranks(self) -> None:
        for snippet in snippets.PYTHON_ALONE:
            self.check(snippet, 0)


class FolderTest(unittest.TestCase):
    """Base class of tests that run programs and commands in a new folder."""

    def setUp(self) -> None:
        self.use_new_folder()
        self.library = ronda_test.RONDARUN.parent

    def use_new_folder(self) -> None:
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.addCleanup(shutil.rmtree, self.folder)

    def call(self, *command: str, **variables: str) -> str:
        """Runs a command, which must succeed, and returns its output."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**ronda_test.environment(), "LD_LIBRARY_PATH": str(self.library), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}")
        return done.stdout


class CppTest(FolderTest):
    def compile(self, source: str, *options: str) -> None:
        (self.folder / "snippet.cc").write_text(source)
        client = f"-I{pathlib.Path('client').absolute()}"
        self.call("g++", "-std=c++17", client, "snippet.cc", *options)

    def check_syntax(self, libtorch: bool, *options: str) -> None:
        chosen = [each for each in snippets.CPP if each.libtorch == libtorch]
        includes = dict.fromkeys(line for each in chosen for line in each.includes())
        functions = [each.function(f"snippet{number}") for number, each in enumerate(chosen)]
        # Compiles all snippets as one file, because the headers take most of the compile time.
        self.compile("\n".join([*includes, *functions]), "-fsyntax-only", *options)

    def test_snippets_compile(self) -> None:
        self.check_syntax(False)

    def test_snippets_with_libtorch_compile(self) -> None:
        self.check_syntax(True, "-isystem", "/usr/include/torch/csrc/api/include")

    def test_programs_run(self) -> None:
        for snippet, output in snippets.CPP_PROGRAMS.items():
            with self.subTest(snippet.begins):
                self.compile(snippet.program(), "-o", "train", str(self.library / "libronda.so.0"))
                self.assertIn(output, self.call(str(ronda_test.RONDARUN), "-np", "2", "./train"))


_TRAIN = f"""#!{sys.executable}
import ronda
ronda.init()
assert ronda.allreduce([ronda.rank()], ronda.ReduceOp.SUM)[0] == sum(range(ronda.size()))
"""


class ShellTest(FolderTest):
    def run_snippet(self, snippet: snippets.ShellSnippet) -> None:
        # python3 is a script and not a link, because Python started through a link does not find
        # its virtual environment.
        files = dict.fromkeys(("train", "trainer", "train.py", "hosts.sh"), _TRAIN)
        files["python3"] = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
        for name, text in files.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
        script = snippet.program()
        if snippet.port:
            with socket.create_server(("", 0)) as free:
                script = script.replace(snippet.port, str(free.getsockname()[1]))
        if snippet.dry:
            script = 'rondarun() { command rondarun --dry-run "$@"; }\n' + script
        path = f"{self.library}:{self.folder}:{os.environ['PATH']}"
        self.call("bash", "-euo", "pipefail", "-c", script, PATH=path)

    def test_commands_run(self) -> None:
        for snippet in snippets.SHELL:
            with self.subTest(snippet.begins):
                self.use_new_folder()
                self.run_snippet(snippet)
