# SPDX-License-Identifier: Apache-2.0

"""Tests which changes of a C header tools/bindings/abi_changes.py reports."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
import unittest

_PROGRAM = str(pathlib.Path("tools/bindings/abi_changes.py").resolve())
_HEADER = """\
#ifndef RONDA_H_
#define RONDA_H_
extern "C" {
#define RONDA_MAX_NDIM 64
typedef enum ronda_dtype {
  RONDA_UINT8 = 0,
  RONDA_BOOL = 1
} ronda_dtype;
typedef int64_t ronda_handle; /* not 0; */
typedef struct ronda_part {
  void* data;
} ronda_part;
typedef struct ronda_args {
  size_t struct_size;
  int root;
  char address[RONDA_MAX_NDIM + 1];
} ronda_args;
#define RONDA_ARGS_INIT \\
  { sizeof(ronda_args), 0, "" }
typedef void (*ronda_callback)(void* context, int status);
int ronda_run(const ronda_args* args, void (*body)(void* context), size_t count);
}
#include "ronda/more.h"
#endif
"""
_MORE = '#include "../ronda.h"\nvoid ronda_stop(void);\n'


class AbiChangesTest(unittest.TestCase):
    def setUp(self) -> None:
        root = tempfile.TemporaryDirectory()
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)

    def write(self, folder: str, header: str, more: str) -> str:
        path = self.root / folder / "ronda.h"
        (path.parent / "ronda").mkdir(parents=True, exist_ok=True)
        path.write_text(header)
        (path.parent / "ronda/more.h").write_text(more)
        return str(path)

    def changes(self, header: str, more: str = _MORE) -> list[str]:
        """Returns the lines about the changes from _HEADER and _MORE to these texts."""
        old, new = self.write("old", _HEADER, _MORE), self.write("new", header, more)
        command = [sys.executable, "-B", _PROGRAM, old, new]
        done = subprocess.run(command, capture_output=True, text=True)
        lines = done.stderr.splitlines()
        self.assertEqual(done.returncode, 1 if lines else 0, done.stderr)
        if lines:
            self.assertEqual(lines.pop(), f"abi_changes: programs that were built with {old} break")
        return [line.removeprefix("abi_changes: ") for line in lines]

    def test_change_that_an_old_program_notices_is_reported(self) -> None:
        for old, new, line in (
            ("BOOL = 1", "BOOL = 2", "ronda_dtype: RONDA_BOOL was 1, and is '2'"),
            ("RONDA_UINT8 = 0,", "", "ronda_dtype: RONDA_UINT8 was 0, and is gone"),
            ("  int root;\n", "", "ronda_args: field 1 was 'int root', and is 'char address"),
            ("int root", "long root", "ronda_args: field 1 was 'int root', and is 'long root'"),
            ("  size_t struct_size;\n", "", "ronda_args: field 0 was 'size_t struct_size', and is"),
            ("void* data;", "void* data;\n  int more;", "ronda_part: it has grown by 'int more'"),
            ("NDIM 64", "NDIM 65", "RONDA_MAX_NDIM was '64', and is '65'"),
            ("int64_t", "int32_t", "ronda_handle was 'typedef int64_t ronda_handle', and is"),
            ("int status", "long status", "ronda_callback was 'typedef void (*ronda_callback)(v"),
            ("size_t count", "int count", "ronda_run was 'int ronda_run(const ronda_args*, void"),
            ("int ronda_run", "void ronda_run", "ronda_run was 'int ronda_run("),
            (", size_t count", "", "ronda_run was 'int ronda_run("),
        ):
            with self.subTest(new=new):
                self.assertEqual(_HEADER.count(old), 1)
                changes = self.changes(_HEADER.replace(old, new))
                self.assertEqual(len(changes), 1, changes)
                self.assertTrue(changes[0].startswith(line), changes[0])

    def test_change_in_an_included_header_is_reported(self) -> None:
        self.assertEqual(
            self.changes(_HEADER, _MORE.replace("stop", "halt")),
            ["ronda_stop was 'void ronda_stop(void)', and is gone"],
        )

    def test_additions_and_names_of_parameters_are_no_changes(self) -> None:
        for old, new in (
            ("RONDA_BOOL = 1", "RONDA_BOOL = 1,\n  RONDA_INT8 = 2"),
            ("NDIM + 1];", "NDIM + 1];\n  int more;"),
            ('0, ""', '0, "", 0'),
            ("size_t count", "size_t number"),
            ("typedef int64_t", "int ronda_more(int count);\ntypedef int64_t"),
            ("not 0;", "not 0; or -1"),
        ):
            with self.subTest(new=new):
                self.assertEqual(_HEADER.count(old), 1)
                self.assertEqual(self.changes(_HEADER.replace(old, new)), [])

    def test_header_of_an_unknown_form_is_refused(self) -> None:
        self.assertIn("unknown form", self.changes(_HEADER + "struct ronda_more { int i; };\n")[0])


if __name__ == "__main__":
    unittest.main()
