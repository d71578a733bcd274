# SPDX-License-Identifier: Apache-2.0

"""Tests the documentation site, and the reference pages generated from headers and docstrings."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

_TOOLS = pathlib.Path("tools/docs/build_site.py").resolve().parent
_ROOT = _TOOLS.parent.parent
sys.path.insert(0, str(_TOOLS))

import build_site  # noqa: E402
import comment_text  # noqa: E402
import cpp_reference  # noqa: E402
import python_reference  # noqa: E402
import step_chart  # noqa: E402


def _text(source: str) -> str:
    return textwrap.dedent(source).lstrip()


_HEADER = _text("""
    // SPDX-License-Identifier: Apache-2.0

    // Counts things.
    //
    //   Counter counter(3);
    #ifndef COUNTER_H_
    #define COUNTER_H_
    #include <string>

    namespace ronda {
    namespace detail {
    inline int helper() { return 1; }
    }  // namespace detail

    #define LIMITS \\
      { 1, 2 }

    // A counter.
    // Thread-safety: none.
    template <class T>
    class Counter : public Base<T> {
     public:
      explicit Counter(int start) : start_{start}, name_(std::string("{")) { Count(); }

      // The next number.
      int Next() const { return start_ + 1; }  // never less

     private:
      void Count();
      int start_;
    };

    inline int twice(int n = 2) { return 2 * n; }
    inline long twice(long n) {
      if (n > 1) { return 2 * n; }
      return n;
    }

    // Where.
    enum class Place { here, there };
    }  // namespace ronda
    #endif
    """)


class CppReferenceTest(unittest.TestCase):
    def test_bodies_and_private_parts_are_left_out(self) -> None:
        counter = cpp_reference.Item(
            "// A counter.\n// Thread-safety: none.",
            _text("""
                template <class T>
                class Counter : public Base<T> {
                 public:
                  explicit Counter(int start);

                  // The next number.
                  int Next() const;  // never less
                };""").rstrip(),
        )
        functions = "inline int twice(int n = 2);\ninline long twice(long n);"
        self.assertEqual(
            cpp_reference.declarations(_HEADER),
            [
                cpp_reference.Item("", "#define LIMITS \\\n  { 1, 2 }"),
                counter,
                cpp_reference.Item("", functions),
                cpp_reference.Item("// Where.", "enum class Place { here, there };"),
            ],
        )

    def test_a_page_begins_with_the_comment_of_the_header(self) -> None:
        name, page = cpp_reference.pages({"ronda/counter.h": _HEADER})["ronda/counter.h"]
        self.assertEqual(name, "ronda_counter_h.md")
        start = "# `ronda/counter.h`\n\nCounts things.\n\n```cpp\nCounter counter(3);\n```\n"
        self.assertEqual(page[: len(start)], start)
        self.assertEqual(
            re.findall(r"(?m)^## (.*)", page), ["`LIMITS`", "`Counter`", "`twice`", "`Place`"]
        )

    def test_the_reference_has_every_function_of_the_abi(self) -> None:
        client = _ROOT / "client"
        for header in ("ronda.h", "ronda/operations.h", "ronda/groups.h", "ronda/lanes.h"):
            text = (client / header).read_text()
            functions = re.findall(r"(?m)^\w[\w *]*?\b(ronda_\w+)\(", text)
            items = cpp_reference.declarations(text)
            names = {name for item in items for name in item.names()}
            self.assertGreater(len(functions), 0, header)
            self.assertLessEqual(set(functions), names, header)


class PythonReferenceTest(unittest.TestCase):
    def test_names_are_followed_through_imports(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder) / "pack"
            package.mkdir()
            (package / "__init__.py").write_text(
                '"""A package."""\nfrom pack._inner import add as plus\n__all__ = ["plus"]\n'
            )
            (package / "_inner.py").write_text(
                _text('''
                    import not_installed

                    def add(a: int, b: int = 1) -> int:
                        """Adds.

                        Args:
                            a: a number.

                        Raises:
                            ValueError: never,
                                so far.
                        """
                        return a + b
                    ''')
            )
            pages = python_reference.pages(package)
        self.assertEqual(sorted(pages), ["index.md", "pack.md"])
        self.assertIn("def plus(a: int, b: int = 1) -> int", pages["pack.md"])
        self.assertIn("**Args**\n\n- `a`: a number.\n", pages["pack.md"])
        self.assertIn("- `ValueError`: never, so far.\n", pages["pack.md"])

    def test_every_public_name_of_the_package_is_there(self) -> None:
        package = python_reference.Package(_ROOT / "client/python/ronda")
        modules = package.public_modules()
        self.assertGreater(len(modules), 9)
        for module in modules:
            for name in package.names(module):
                is_module = package.get(f"{module.name}.{name}") is not None
                self.assertTrue(is_module or package.find(module, name), f"{module.name}.{name}")


class CommentTextTest(unittest.TestCase):
    def test_marks_of_markdown_are_plain_characters(self) -> None:
        text = comment_text.markdown("*stop is `*p` of ronda_x<T>\n- an item", "c")
        self.assertEqual(text, "\\*stop is `*p` of ronda\\_x&lt;T>\n- an item\n")

    def test_an_example_with_an_empty_line_is_one_block(self) -> None:
        text = comment_text.markdown("Text:\n\n  a\n\n    b\n\nEnd.", "c")
        self.assertEqual(text, "Text:\n\n```c\na\n\nb\n```\n\n\nEnd.\n")


class StepChartTest(unittest.TestCase):
    def test_the_picture_of_the_readme_shows_the_table(self) -> None:
        table = _ROOT / "bench/results/2026-11-28/steps.csv"
        with tempfile.TemporaryDirectory() as folder:
            picture = pathlib.Path(folder) / "step.svg"
            step_chart.main(str(table), str(picture))
            drawn = picture.read_text()
        self.assertEqual(
            (_ROOT / "docs/step.svg").read_text(),
            drawn,
            f"run tools/docs/step_chart.py {table.relative_to(_ROOT)} docs/step.svg",
        )

    def test_a_bar_has_the_time_beyond_the_step_alone(self) -> None:
        row = {"model": "a<b", "way": "Ronda", "without communication": "40", "step": "55"}
        drawn = step_chart.chart([row])
        self.assertIn(">a&lt;b</text>", drawn)
        self.assertIn(">+ 15 ms</text>", drawn)
        widths = re.findall(r'width="([\d.]+)" height="20"', drawn)
        self.assertEqual(widths, ["320.0", "120.0"])


class SiteTest(unittest.TestCase):
    def test_a_link_to_a_missing_heading_is_found(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pages = pathlib.Path(folder)
            (pages / "a.html").write_text('<a href="b.html#is">x</a> <a href="b.html#not">y</a>')
            (pages / "b.html").write_text('<h2 id="is">Is</h2> <a href="https://x.org/#y">z</a>')
            broken = build_site.broken_anchors(pages)
        self.assertEqual(broken, ["a.html links to b.html#not, but there is no such heading"])

    def test_a_page_without_a_place_is_found(self) -> None:
        navigation = "nav:\n  - Home: index.md\n  - Part:\n      - A title: a.md\n"
        self.assertEqual(
            build_site.without_a_place(["index.md", "a.md", "b.md"], navigation), ["b.md"]
        )

    def test_the_reference_has_its_pages_in_the_navigation(self) -> None:
        navigation = "  - Part:\n      - API: ref/index.md\n      - Other: other.md\n"
        self.assertEqual(
            build_site.with_reference(navigation, "ref", {"b.md": "b.hpp", "a.md": "a.h"}),
            "  - Part:\n      - API:\n          - ref/index.md\n"
            '          - "a.h": ref/a.md\n          - "b.hpp": ref/b.md\n      - Other: other.md\n',
        )

    def test_the_site_builds_without_a_warning(self) -> None:
        if shutil.which("mkdocs") is None:
            self.skipTest("MkDocs is not here: third_party/install.sh docs")
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(_TOOLS / "build_site.py"), folder]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            home = (pathlib.Path(folder) / "html/index.html").read_text()
        for part in ("Get started", "How to", "Reference", "How it works"):
            self.assertIn(part, home)
