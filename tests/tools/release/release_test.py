# SPDX-License-Identifier: Apache-2.0

"""Tests tools/release/release.py in a small project, whose `make wheel deb` is instant."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

_RELEASE = str(pathlib.Path("tools/release/release.py").resolve())
_DEBS = ("ronda", "libronda0", "libronda-dev", "python3-ronda")
_CHANGELOG = """\
# Changelog

## [Unreleased]

## [0.2.0] - 2026-11-30

### Added

- A wire of 4 bits.

## [0.1.0] - 2026-01-01

- All of it.
"""
_PACKAGE_PROGRAM = """\
import pathlib, subprocess, sys, zipfile
version = sys.argv[1]
pathlib.Path("dist").mkdir()
with zipfile.ZipFile(f"dist/ronda-0.2.0-any.whl", "w") as wheel:
    wheel.writestr(f"ronda-{version}.dist-info/METADATA", f"Name: ronda\\nVersion: {version}\\n")
for name in "ronda", "libronda0", "libronda-dev", "python3-ronda":
    control = pathlib.Path("dist", "tree", name, "DEBIAN", "control")
    control.parent.mkdir(parents=True)
    control.write_text(
        f"Package: {name}\\nVersion: {version}\\nArchitecture: all\\nMaintainer: m <m@x>\\n"
        "Description: d\\n"
    )
    deb = f"dist/{name}_0.2.0_all.deb"
    subprocess.run(["dpkg-deb", "--build", control.parents[1], deb], check=True)
"""


_HEADER = """\
#define RONDA_ABI_VERSION 1
/* The version of the library, "0.2.0". */
const char* ronda_version(void);
#include "ronda/operations.h"
"""
_OPERATIONS = """\
typedef struct ronda_args {
  size_t struct_size; /* of the struct */
} ronda_args;
ronda_status ronda_run(const ronda_args* args);
"""


class ReleaseTest(unittest.TestCase):
    """A project that is ready for the release of version 0.2.0."""

    def setUp(self) -> None:
        root = tempfile.TemporaryDirectory()
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.write("runtime/base/version.h", 'inline constexpr char kVersion[] = "0.2.0";\n')
        for folder in "client", "tests/client/abi_v1_0_10":
            self.write(f"{folder}/ronda.h", _HEADER)
            self.write(f"{folder}/ronda/operations.h", _OPERATIONS)
        for folder in "tests/client/abi_v1", "tests/client/abi_v1_0_9":
            self.write(f"{folder}/ronda.h", "#define RONDA_ABI_VERSION 1\n")
        self.write("CHANGELOG.md", _CHANGELOG)
        self.write(".gitignore", "dist/\n")
        self.write("packages.py", _PACKAGE_PROGRAM)
        self.write("Makefile", f"wheel:\n\t@{sys.executable} packages.py 0.2.0\ndeb:\n")
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit()

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def run_in_project(self, *command: str) -> subprocess.CompletedProcess[str]:
        person = {"NAME": "somebody", "EMAIL": "somebody@example.org"}
        names = {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in person.items()
        }
        environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": "/dev/null"}
        return subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True
        )

    def git(self, *arguments: str) -> str:
        result = self.run_in_project("git", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=A change")

    def release(self, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run_in_project(sys.executable, _RELEASE, *options)

    def assert_refused(self, *problems: str, options: tuple[str, ...] = ()) -> None:
        """Expects, for each problem, an output line that begins with it, and expects no release."""
        result = self.release(*options)
        self.assertEqual(result.returncode, 1, result.stdout)
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), len(problems), result.stderr)
        for line, problem in zip(lines, problems):
            self.assertTrue(line.startswith(f"release: {problem}"), line)
        self.assertFalse((self.root / "dist").exists())

    def test_dry_run_tells_the_plan_and_makes_nothing(self) -> None:
        result = self.release()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"^Ronda 0\.2\.0 can be released, from \w+ A change\.\n")
        self.assertIn("make the annotated tag v0.2.0", result.stdout)
        self.assertIn("    - A wire of 4 bits.\n", result.stdout)
        self.assertNotIn("All of it", result.stdout)
        self.assertEqual(self.git("tag"), "")
        self.assertFalse((self.root / "dist").exists())

    def test_published_release_has_packages_checksums_and_a_tag(self) -> None:
        result = self.release("--publish")
        self.assertEqual(result.returncode, 0, result.stderr)
        sums = (self.root / "dist/ronda-0.2.0.sha256").read_text().splitlines()
        self.assertEqual(
            [line.split()[1] for line in sums],
            ["ronda-0.2.0-any.whl", *(f"{name}_0.2.0_all.deb" for name in _DEBS)],
        )
        check = "cd dist && sha256sum --check --strict ronda-0.2.0.sha256"
        self.assertEqual(self.run_in_project("sh", "-c", check).returncode, 0)
        self.assertEqual(self.git("cat-file", "-t", "v0.2.0"), "tag\n")
        self.assertEqual(
            self.git("tag", "--list", "--format=%(contents)", "v0.2.0").strip(),
            "Ronda 0.2.0\n\n### Added\n\n- A wire of 4 bits.",
        )
        self.assertEqual(self.git("rev-parse", "v0.2.0^{commit}"), self.git("rev-parse", "HEAD"))

    def test_tree_with_changes_is_refused(self) -> None:
        self.write("new.txt", "")
        for options in (), ("--publish",):
            self.assert_refused("the tree has changes (new.txt): ", options=options)

    def test_branch_and_tag_are_checked(self) -> None:
        self.git("tag", "v0.2.0")
        self.git("switch", "--quiet", "--create", "other")
        self.assert_refused("this is the branch other: ", "the tag v0.2.0 exists: ")

    def test_version_is_the_same_in_all_files(self) -> None:
        self.write("runtime/base/version.h", 'inline constexpr char kVersion[] = "0.3.0";\n')
        self.commit()
        self.assert_refused(
            'CHANGELOG.md: the newest version\'s heading is "[0.2.0] - 2026-11-30"',
            "client/ronda.h: its comment says version 0.2.0, and runtime/base/version.h has 0.3.0",
        )

    def test_version_has_three_numbers(self) -> None:
        self.write("runtime/base/version.h", 'inline constexpr char kVersion[] = "0.3";\n')
        self.commit()
        self.assert_refused("runtime/base/version.h: kVersion is '0.3', and not MAJOR.MINOR.PATCH")

    def test_changelog_needs_an_entry_with_a_date(self) -> None:
        for old, new, problem in (
            ("2026-11-30", "2026-11-31", "the newest version's heading is"),
            (" - 2026-11-30", "", "the newest version's heading is"),
            ("- A wire of 4 bits.\n", "", "the section [0.2.0] has no entry"),
            ("[Unreleased]\n", "[Unreleased]\n\n- More.\n", '"Unreleased" has entries'),
        ):
            with self.subTest(new=new):
                self.assertIn(old, _CHANGELOG)
                self.write("CHANGELOG.md", _CHANGELOG.replace(old, new, 1))
                self.commit()
                self.assert_refused(f"CHANGELOG.md: {problem}")

    def test_abi_of_the_header_has_a_test(self) -> None:
        self.write("client/ronda.h", _HEADER.replace("VERSION 1", "VERSION 2"))
        self.commit()
        self.assert_refused("client/ronda.h: it has ABI 2, and there is no tests/client/abi_v2")

    def test_declarations_are_those_of_the_newest_header_in_the_tests(self) -> None:
        for path, old, new, name in (
            ("ronda.h", "const char*", "int", "ronda_version"),
            ("ronda.h", "(void);\n", "(void);\nint ronda_size(void);\n", "ronda_size"),
            ("ronda/operations.h", "} ronda_args", "  int root;\n} ronda_args", "ronda_args"),
        ):
            with self.subTest(name):
                text = (self.root / "client" / path).read_text()
                self.write(f"client/{path}", text.replace(old, new))
                self.commit()
                self.assert_refused(
                    "client/ronda.h: it differs from tests/client/abi_v1_0_10/ronda.h in"
                    f" {name}: add the headers and a program of this release"
                )
                self.write(f"client/{path}", text)

    def test_comments_of_the_header_may_differ_from_the_tests(self) -> None:
        self.write("client/ronda/operations.h", _OPERATIONS.replace("of the", "of this"))
        self.commit()
        self.assertEqual(self.release().returncode, 0)

    def test_header_of_an_unknown_form_is_refused(self) -> None:
        self.write("client/ronda.h", _HEADER + "union ronda_value { int number; };\n")
        self.commit()
        self.assert_refused("'union ronda_value { int number' has an unknown form")

    def test_package_of_another_version_gets_no_tag(self) -> None:
        self.write("Makefile", f"wheel:\n\t@{sys.executable} packages.py 0.1.9\ndeb:\n")
        self.commit()
        result = self.release("--publish")
        self.assertEqual(result.returncode, 1)
        self.assertIn("says that its version is 0.1.9, and not 0.2.0", result.stderr)
        self.assertEqual(self.git("tag"), "")

    def test_missing_package_gets_no_tag(self) -> None:
        self.write("Makefile", "wheel deb:\n")
        self.commit()
        result = self.release("--publish")
        self.assertEqual(result.returncode, 1)
        self.assertIn("dist has 0 files ronda-0.2.0-*.whl, and not one", result.stderr)
        self.assertEqual(self.git("tag"), "")

    def test_failed_build_gets_no_tag(self) -> None:
        self.write("Makefile", "wheel deb:\n\t@false\n")
        self.commit()
        result = self.release("--publish")
        self.assertEqual(result.returncode, 1)
        self.assertIn("release: make wheel deb: it has failed", result.stderr)
        self.assertEqual(self.git("tag"), "")
