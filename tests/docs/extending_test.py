# SPDX-License-Identifier: Apache-2.0

"""Tests that docs/extending.md lists each file that names an existing extension of each kind."""

import dataclasses
import functools
import pathlib
import re
import unittest

_PAGE = pathlib.Path("docs/extending.md")
# The root of the source tree. The test reads the whole tree.
_ROOT = _PAGE.resolve().parent.parent
_SOURCES = ("bench", "client", "kernels", "proto", "runtime")
_CODE = (".bazel", ".c", ".cc", ".cu", ".cuh", ".h", ".hpp", ".proto", ".py", ".pyi")
_NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6}

# An existing extension for each section of the page: a pattern for its name in the code, and one
# for its name in the files that the section lists.
_NAMES = {
    "A backend": (r'"tcp"|//runtime/tcp\b', r"(?i)tcp"),
    "An operation": (r"(?i)reduce_?scatter", r"(?i)reduce_?scatter"),
    "A dtype": (
        r'\bkInt8\b|\bRONDA_INT8\b|\bINT8\b|"int8"|\bBfloat16\b',
        r"\bk?(?:Xla|Tf)?I(?:NT|nt)8\b|INT8",
    ),
    "A launcher flag": (r"\bautotune-log-file\b", r"\bautotune-log-file\b"),
    "A field of a request": (r"\babsent_as_zeros\b", r"\babsent_as_zeros\b"),
    "A metric": (r"\bschedule_rounds\b", r"\bschedule_rounds\b"),
}


@dataclasses.dataclass
class Section:
    """A section of the page, about one kind of extension.

    Attributes:
        count: the number of files in the heading.
        required: the files that every change touches, with the alternatives for each.
        made: the files that `make bindings` generates.
        allowed: files and folders that some changes touch.
    """

    count: int
    required: list[list[str]] = dataclasses.field(default_factory=list)
    made: list[str] = dataclasses.field(default_factory=list)
    allowed: list[str] = dataclasses.field(default_factory=list)

    def listed(self) -> list[str]:
        return [*sum(self.required, []), *self.made, *self.allowed]

    def has(self, path: str) -> bool:
        return any(
            path == entry or (entry.endswith("/") and path.startswith(entry))
            for entry in self.listed()
        )

    def add(self, table: str, files: str, remark: str) -> None:
        """Adds the files of a row. `table` is the second heading of the row's table."""
        if files.endswith("(new)"):
            return
        alternatives = [re.findall(r"`([^`]+)`", part) for part in files.split(" or ")]
        if table == "only if":
            self.allowed += sum(alternatives, [])
        elif "make bindings" in remark:
            self.made += sum(alternatives, [])
        elif len(alternatives) > 1:
            self.required.append(sum(alternatives, []))
        else:
            self.required += [[path] for path in alternatives[0]]


def sections_of(page: str) -> dict[str, Section]:
    """Returns the sections of the page, by the first part of their headings."""
    sections: dict[str, Section] = {}
    section, table = None, ""
    for line in page.splitlines():
        if line.startswith("## "):
            title = re.split(r"[:,]", line[3:])[0]
            count = next((_NUMBERS[word] for word in line.split() if word in _NUMBERS), 0)
            section = sections[title] = Section(count)
        elif section is not None and line.startswith("| "):
            files, remark = (cell.strip() for cell in line.strip("| ").split(" | ", 1))
            if files == "file":
                table = remark
            else:
                section.add(table, files, remark)
    return sections


@functools.cache
def _code(root: pathlib.Path) -> dict[str, str]:
    """Returns the contents of all files with code, by path."""
    return {
        str(path.relative_to(root)): path.read_text(encoding="utf-8")
        for folder in _SOURCES
        for path in sorted((root / folder).rglob("*"))
        if path.suffix in _CODE
    }


def _naming(pattern: str, root: pathlib.Path, folder: str = "") -> list[str]:
    """Returns the files below a folder whose code matches the pattern."""
    return [
        path
        for path, text in _code(root).items()
        if path.startswith(folder) and re.search(pattern, text)
    ]


def _names_it(pattern: str, root: pathlib.Path, path: str) -> bool:
    if path.endswith("/"):
        return bool(_naming(pattern, root, path))
    return re.search(pattern, (root / path).read_text(encoding="utf-8")) is not None


def faults(root: pathlib.Path, title: str, section: Section) -> list[str]:
    """Describes how the lists of a section differ from the files below `root`."""
    named, listed = _NAMES[title]
    found = [
        f"{path} names {named}: list it in '{title}' of docs/extending.md, or derive its part"
        for path in _naming(named, root)
        if not section.has(path)
    ]
    found += [
        f"'{title}' of docs/extending.md lists {path}, which does not exist"
        for path in section.listed()
        if not (root / path).exists()
    ]
    if found:
        return found
    for one_of in [*section.required, *([path] for path in section.made)]:
        if not any(_names_it(listed, root, path) for path in one_of):
            found.append(
                f"'{title}' of docs/extending.md lists {' or '.join(one_of)}, where nothing is"
                f" named {listed}: a change need not touch it"
            )
    if section.count != len(section.required):
        found.append(f"'{title}' says {section.count} files and lists {len(section.required)}")
    return found


class ExtendingTest(unittest.TestCase):
    def test_the_lists_are_the_files_that_name_an_existing_extension(self):
        sections = sections_of(_PAGE.read_text())
        for title in _NAMES:
            with self.subTest(title):
                self.assertEqual(faults(_ROOT, title, sections[title]), [])


class FaultsTest(unittest.TestCase):
    """Tests the comparison itself, with the real sources and with wrong lists."""

    def setUp(self):
        self.page = _PAGE.read_text()

    def faults(self, title, before, after):
        self.assertIn(before, self.page)
        return faults(_ROOT, title, sections_of(self.page.replace(before, after))[title])

    def test_a_file_that_is_not_listed(self):
        row = "| `runtime/engine/operations.cc` |"
        found = self.faults("An operation", row, "| `runtime/engine/operations.h` |")
        self.assertEqual(len(found), 1)
        self.assertIn("runtime/engine/operations.cc names", found[0])

    def test_a_file_that_need_not_be_touched(self):
        row = "| `runtime/engine/operations.cc` |"
        found = self.faults("An operation", row, "| `client/session.cc`, " + row[2:])
        self.assertIn("lists client/session.cc, where nothing is named", found[0])
        self.assertIn("says 5 files and lists 6", found[1])

    def test_a_file_that_is_gone(self):
        found = self.faults("A metric", "`client/ronda.h` |", "`client/ronda.h`, `client/gone.h` |")
        self.assertEqual(
            found, ["'A metric' of docs/extending.md lists client/gone.h, which does not exist"]
        )

    def test_a_folder_without_a_file_that_names_it(self):
        found = self.faults(
            "A metric", "| `runtime/engine/` |", "| `runtime/engine/`, `kernels/` |"
        )
        self.assertIn("lists kernels/, where nothing is named", found[0])


if __name__ == "__main__":
    unittest.main()
