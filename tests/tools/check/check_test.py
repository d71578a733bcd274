# SPDX-License-Identifier: Apache-2.0

"""Tests that each check in tools/check finds violations of its rule, and nothing else."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable, Iterable
from unittest import mock

sys.path.insert(0, "tools/check")

import check  # noqa: E402
import commits  # noqa: E402
import compiled  # noqa: E402
import links  # noqa: E402
import linters  # noqa: E402
import text_rules  # noqa: E402
import type_names  # noqa: E402
from sources import CheckError, Finding, Sources  # noqa: E402

# The folder name is a constant, because the link check also reads this file, and would treat a
# literal path to a page as a link.
_DOCS = "docs"
_LICENSE = "// SPDX-License-Identifier: Apache-2.0\n"


class FilesTest(unittest.TestCase):
    """Creates a folder with files for the checks to read."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def sources(self, **files: str) -> Sources:
        """Writes files. In an argument's name, "__" stands for "/", and "_dot_" for "."."""
        names = {
            name.replace("__", "/").replace("_dot_", "."): text for name, text in files.items()
        }
        for path, text in names.items():
            self.write(path, text)
        return Sources(self.root, tuple(sorted(names)), frozenset(names))

    def findings(
        self, rule: Callable[[Sources], Iterable[Finding]], **files: str
    ) -> list[tuple[str, int]]:
        return [(each.path, each.line) for each in rule(self.sources(**files))]

    def program(self, name: str, script: str) -> str:
        """Writes a program that runs `script` in sh, and returns its path."""
        self.write(f"bin/{name}", f"#!/bin/sh\n{script}\n")
        path = self.root / "bin" / name
        path.chmod(0o755)
        return str(path)


class SourcesTest(FilesTest):
    def git(self, *arguments: str) -> None:
        config = {
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            **{f"GIT_{who}_NAME": "a" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": "a@b.c" for who in ("AUTHOR", "COMMITTER")},
        }
        subprocess.run(["git", *arguments], cwd=self.root, check=True, env={**os.environ, **config})

    def commit(self, path: str, text: str, message: str = "A change") -> None:
        self.write(path, text)
        self.git("add", path)
        self.git("commit", "--quiet", "--message", message)

    def setUp(self) -> None:
        super().setUp()
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit("old.cc", "old\n")

    def selected(self, everything: bool = False) -> set[str]:
        return set(Sources.of(self.root, everything).selected)

    def test_first_commit_selects_every_file(self) -> None:
        self.assertEqual(self.selected(), {"old.cc"})

    def test_branch_selects_its_changes_and_new_files(self) -> None:
        self.commit("main.cc", "main\n")
        self.git("checkout", "--quiet", "-b", "branch")
        self.commit("committed.cc", "committed\n")
        self.write("main.cc", "edited\n")
        self.write("untracked.cc", "untracked\n")
        self.write(".git/info/exclude", "ignored.cc\n")
        self.write("ignored.cc", "ignored\n")
        self.assertEqual(self.selected(), {"main.cc", "committed.cc", "untracked.cc"})
        self.assertEqual(self.selected(everything=True), {*self.selected(), "old.cc"})

    def test_main_selects_its_last_commit(self) -> None:
        self.commit("main.cc", "main\n")
        self.assertEqual(self.selected(), {"main.cc"})

    def test_removed_file_is_not_selected(self) -> None:
        self.commit("main.cc", "main\n")
        (self.root / "old.cc").unlink()
        self.assertEqual(set(Sources.of(self.root, True).files), {"main.cc"})

    def test_folder_without_git_is_an_error_that_names_it(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(CheckError, folder):
                Sources.of(pathlib.Path(folder), True)

    def test_commit_messages(self) -> None:
        self.commit("a", "", "s" * 73)
        self.assertEqual(list(commits.check_commits(Sources.of(self.root, False))), [])
        self.git("checkout", "--quiet", "-b", "branch")
        for path, message in (
            ("b", "s" * 72 + "\n\nWhy."),
            ("c", "s" * 73),
            ("d", "It ends."),
        ):
            self.commit(path, "", message)
        texts = [each.text for each in commits.check_commits(Sources.of(self.root, False))]
        self.assertEqual(len(texts), 2, texts)
        self.assertIn("full stop", texts[0])
        self.assertIn("73 characters", texts[1])


class TextRulesTest(FilesTest):
    def test_file_without_license_is_found(self) -> None:
        found = self.findings(
            text_rules.check_license_lines,
            right_dot_cc=_LICENSE,
            script_dot_sh=f"#!/bin/sh\n{_LICENSE}",
            wrong_dot_cc="int x;\n",
            page_dot_md="text\n",
            empty_dot_py="",
        )
        self.assertEqual(found, [("wrong.cc", 1)])

    def test_file_of_601_lines_is_found(self) -> None:
        found = self.findings(
            text_rules.check_file_length, long_dot_py="x\n" * 601, right_dot_py="x\n" * 600
        )
        self.assertEqual(found, [("long.py", 601)])

    def test_page_of_201_lines_is_found(self) -> None:
        found = self.findings(
            text_rules.check_file_length,
            docs__long_dot_md="x\n" * 201,
            docs__right_dot_md="x\n" * 200,
            CHANGELOG_dot_md="x\n" * 201,
        )
        self.assertEqual(found, [(f"{_DOCS}/long.md", 201)])

    def test_header_guard_that_is_not_its_path_is_found(self) -> None:
        found = self.findings(
            text_rules.check_header_guards,
            runtime__wrong_dot_h="#ifndef RONDA_OTHER_H_\n#define RONDA_OTHER_H_\n",
            runtime__right_dot_h="#ifndef RONDA_RUNTIME_RIGHT_H_\n",
            client__ronda_dot_h="#ifndef RONDA_H_\n",
        )
        self.assertEqual(found, [("runtime/wrong.h", 1)])

    def test_wrong_white_space_is_found(self) -> None:
        found = self.findings(
            text_rules.check_white_space,
            space_dot_cc="a\nb \n",
            tab_dot_md="\ta\n",
            end_dot_h="a\nb",
            right_dot_py="a\n\nb\n",
            Makefile="\ta\n",
        )
        self.assertEqual(found, [("end.h", 2), ("space.cc", 2), ("tab.md", 1)])

    def test_banned_word_in_an_identifier_is_found(self) -> None:
        found = self.findings(
            text_rules.check_words,
            a_dot_cc='int kFarewellTimeout;\nint discard, cards_;\n// a stranger\nF x("soul");\n',
            b_dot_py='"""A stranger.\n\nGround.\n"""\ndef parcel_of():  # tally\n    pass\n',
            c_dot_sh="stranger=1\n",
        )
        self.assertEqual(found, [("a.cc", 1), ("a.cc", 2), ("b.py", 5)])

    def test_banned_word_of_two_words_is_found_in_both_spellings(self) -> None:
        found = self.findings(
            text_rules.check_words,
            a_dot_cc="int last_word_;\nvoid TellLastWords();\nint last_words[2];\n",
            b_dot_cc="int last_used_word;\nint blast_word;\nvoid Snap(int keys, int bellows);\n",
        )
        self.assertEqual(found, [("a.cc", 1), ("a.cc", 2), ("a.cc", 3)])

    def test_banned_word_is_allowed_only_where_others_have_chosen_it(self) -> None:
        found = self.findings(
            text_rules.check_words,
            client__ronda__training__learning_rate_dot_hpp="int patience = 10;\nint seat;\n",
            client__ronda__elastic_dot_hpp="int patience = 10;\n",
        )
        self.assertEqual(
            found,
            [("client/ronda/elastic.hpp", 1), ("client/ronda/training/learning_rate.hpp", 2)],
        )

    def test_name_of_a_test_without_a_subject_is_found(self) -> None:
        found = self.findings(
            text_rules.check_test_names,
            a_dot_cc="TEST(A, WhoWaits) {}\nTEST_F(A,\n       NothingIsLeft) {}\n"
            "TEST_P(A, Those) {}\nTEST(A, WholeStepsRepeat) {}\n"
            "TEST(A, RankKnowsWhatIsLate) {}\nint WhatIsIt();\n",
            b_dot_py="def test_what_is_late():\n    pass\n\n\n"
            "def test_a_nobody_test():\n    pass\n\n\n"
            "def test_whole_steps():\n    pass\n\n\n"
            "def test_rank_that_nobody_awaits():\n    pass\n",
        )
        self.assertEqual(found, [("a.cc", 1), ("a.cc", 3), ("a.cc", 4), ("b.py", 1), ("b.py", 5)])

    def test_harmful_call_is_found_where_it_does_harm(self) -> None:
        found = self.findings(
            text_rules.check_calls,
            runtime__a_dot_cc="auto now = absl::Now();\n",
            runtime__b_dot_cc="\nflat_hash_map<int, int> m;\n",
            tests__b_dot_cc="flat_hash_map<int, int> m;\n",
            runtime__base__clock_dot_h="absl::Now()\n",
        )
        self.assertEqual(found, [("runtime/a.cc", 1), ("runtime/b.cc", 2)])


class TypeNamesTest(FilesTest):
    def found(self, first: str, second: str) -> list[tuple[str, int]]:
        return self.findings(type_names.check_type_names, a_dot_h=first, b_dot_cc=second)

    def test_second_definition_is_found(self) -> None:
        definition = "namespace ronda {{\n{} {{\n}};\n}}  // namespace ronda\n"
        first = definition.format("class Name final : public Base")
        for kind in ("class Name", "struct ABSL_LOCKABLE Name", "enum class Name : int"):
            self.assertEqual(self.found(first, "\n" + definition.format(kind)), [("b.cc", 3)], kind)

    def test_other_types_may_have_the_name(self) -> None:
        first = "namespace ronda {\nclass Name {\n};\n}  // namespace ronda\n"
        for second in (
            "namespace other {\nclass Name {\n};\n}  // namespace other\n",
            "namespace {\nclass Name {\n};\n}  // namespace\n",
            "class Name;\nstruct Name::Part {\n};\n",
            "class Names {\n  struct Name {\n  };\n};\n",
        ):
            second = f"namespace ronda {{\n{second}}}  // namespace ronda\n"
            self.assertEqual(self.found(first, second), [], second)


class LinksTest(FilesTest):
    def test_links_that_lead_somewhere(self) -> None:
        page = "# Several hosts: `-H`, two_words\n\n## Twice\n\n## Twice\n"
        links_to = f"[a]({_DOCS}/b.md#several-hosts--h-two_words) [`b`]({_DOCS}/b.md#twice-1)\n"
        links_to += f"[c]({_DOCS}) [d](#me)\n"
        rest = "# Me\n[x](https://x.y/z)\n```\n[y](nowhere.md)\n```\n`[z](nowhere.md)`\n"
        self.assertEqual(
            self.findings(links.check_links, a_dot_md=links_to + rest, docs__b_dot_md=page), []
        )

    def test_links_that_lead_nowhere_are_found(self) -> None:
        found = self.findings(
            links.check_links,
            a_dot_md="# A\n\n```\n# No\n```\n[x](#no)\n"
            f"[two\nlines]({_DOCS}/c.md)\n![i]({_DOCS}/i.svg)\n",
            docs__b_dot_md="[up](a.md) [up](../a.md#a)\n",
            c_dot_cc=f"// {_DOCS}/b.md, {_DOCS}/gone.md\n// {_DOCS}/b.md#gone\n",
        )
        expected = [("a.md", 6), ("a.md", 7), ("a.md", 9), (f"{_DOCS}/b.md", 1)]
        self.assertEqual(found, [*expected, ("c.cc", 1), ("c.cc", 2)])


class ProgramsTest(FilesTest):
    def test_missing_program_is_an_error_with_a_remedy(self) -> None:
        with mock.patch.dict(os.environ, PATH=str(self.root)):
            with self.assertRaisesRegex(CheckError, "clang-format-14 .*run third_party/install.sh"):
                list(linters.check_clang_format(self.sources(a_dot_cc="")))

    def test_line_that_clang_format_changes_is_found(self) -> None:
        script = 'for path in "$@"; do echo "$path:7:3: error: code should be formatted" >&2; done'
        path = self.program("clang-format-14", script)
        with mock.patch.dict(os.environ, PATH=f"{os.path.dirname(path)}:{os.environ['PATH']}"):
            found = self.findings(
                linters.check_clang_format, a_dot_cu="", b_dot_proto="", c_dot_c="", d_dot_py=""
            )
        self.assertEqual(
            [each for each in found if "." in each[0]], [("a.cu", 7), ("b.proto", 7), ("c.c", 7)]
        )

    def test_complaint_of_clang_tidy_is_told(self) -> None:
        self.program("clang-tidy-14", 'case $2 in bad*) echo "$2 is bad"; exit 1; esac')
        bazel = self.program("bazel", "echo generated")
        variables = {"BAZEL": bazel, "PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        with mock.patch.dict(os.environ, variables):
            sources = self.sources(
                bad_dot_cc="int x;\n",
                good_dot_cc="",
                bad_grpc_dot_cc="#include <grpcpp/grpcpp.h>\n",
            )
            found = list(compiled.check_clang_tidy(sources))
        self.assertEqual([str(each) for each in found], ["bad.cc:1: \nbad.cc is bad"])

    def test_failed_build_is_an_error(self) -> None:
        bazel = self.program("bazel", "exit 1")
        with mock.patch.dict(os.environ, BAZEL=bazel):
            with self.assertRaisesRegex(CheckError, "bazel build .* fails"):
                list(compiled.check_clang_tidy(self.sources(a_dot_cc="")))

    def test_complaint_of_ruff_is_told(self) -> None:
        python = self.program("python", 'echo "$* is bad"; exit 1')
        with mock.patch.object(sys, "executable", python):
            found = list(linters.check_ruff(self.sources(a_dot_py="", b_dot_cc="")))
        self.assertEqual(len(found), 2)
        self.assertIn("ruff check --quiet a.py is bad", str(found[0]))

    def test_function_of_61_lines_is_found(self) -> None:
        rows = [f'{lines},1,1,1,1,"x","{lines}.cc","f","f()",5,70' for lines in (60, 61)]
        python = self.program("python", "cat <<'END'\n" + "\n".join(rows) + "\nEND")
        with mock.patch.object(sys, "executable", python):
            found = self.findings(linters.check_function_length, a_dot_cc="")
        self.assertEqual(found, [("61.cc", 5)])


class RunChecksTest(FilesTest):
    def run_checks(self, *rules: Callable[[Sources], Iterable[Finding]]) -> tuple[int, str]:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            checks = {f"rule {number}": rule for number, rule in enumerate(rules)}
            code = check.run_checks(self.sources(a_dot_cc=""), checks)
        return code, output.getvalue()

    def test_success_tells_the_number_of_files(self) -> None:
        code, output = self.run_checks(lambda sources: [])
        self.assertEqual((code, output), (0, "check: 1 of 1 files, 1 checks, no complaints\n"))

    def test_failed_check_does_not_hide_those_after_it(self) -> None:
        def fails(sources: Sources) -> Iterable[Finding]:
            raise CheckError("no tool: install it")

        code, output = self.run_checks(fails, lambda sources: [Finding("a.cc", 3, "mend it")])
        self.assertEqual(code, 1)
        self.assertIn("no tool: install it", output)
        self.assertIn("a.cc:3: mend it\n", output)
        self.assertIn("these checks failed: rule 0, rule 1\n", output)


if __name__ == "__main__":
    unittest.main()
