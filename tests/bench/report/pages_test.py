# SPDX-License-Identifier: Apache-2.0

import html.parser
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import sample_runs
from pages import RESULTS_BEGIN, RESULTS_END, html_of, markdown_of, with_results
from runs import ReportError

_VOID = {"meta"}


class _Checker(html.parser.HTMLParser):
    """Checks that HTML elements are closed, and in the right order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> ends another element"


class PagesTest(unittest.TestCase):
    def test_texts_of_results_are_escaped(self):
        run = sample_runs.run("step", [sample_runs.step("<b>", 1)])
        text = html_of([run], ["<svg>drawing</svg>"], sample_runs.DEFAULT)
        self.assertIn("<td>&lt;b&gt;</td>", text)
        self.assertIn("<svg>drawing</svg>", text)

    def test_noise_is_told_on_every_page(self):
        rows = [{"step_ms_p10": 1, "step_ms_p90": 3}]
        runs = [sample_runs.run("step", rows)]
        markdown = markdown_of(runs, sample_runs.DEFAULT)
        self.assertIn("| spoilt: in 1 of 1 rows", markdown)
        self.assertIn("<p>spoilt: in 1 of 1 rows", html_of(runs, [], sample_runs.DEFAULT))

    def test_a_bar_does_not_end_a_cell_of_markdown(self):
        run = sample_runs.run("step", [sample_runs.step("a|b", 1)])
        self.assertIn("| a\\|b |", markdown_of([run], sample_runs.DEFAULT))

    def test_results_replace_those_of_the_page(self):
        page = f"# Title\n{RESULTS_BEGIN}\nold\n{RESULTS_END}\nrest\n"
        once = with_results(page, "new\n\n")
        self.assertEqual(once, f"# Title\n{RESULTS_BEGIN}\n\nnew\n\n{RESULTS_END}\nrest\n")
        self.assertEqual(with_results(once, "new\n\n"), once)

    def test_a_page_without_lines_for_results_is_refused(self):
        for page in ("# Title\n", RESULTS_BEGIN, f"{RESULTS_END}\n{RESULTS_BEGIN}"):
            with self.assertRaises(ReportError):
                with_results(page, "new")


class ProgramTest(unittest.TestCase):
    """Runs the report program in a separate process."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def report(self, markdown="", speed="", env=None):
        fusion, wire = sample_runs.DEFAULT
        return subprocess.run(
            [sys.executable, sample_runs.SOURCES]
            + [self.folder, markdown, speed, str(fusion), wire],
            capture_output=True,
            text=True,
            env={**os.environ, **(env or {})},
            check=False,
        )

    def test_writes_the_page_the_pictures_and_the_tables(self):
        for name, document in sample_runs.documents().items():
            (self.folder / f"{name}.json").write_text(json.dumps(document))
        markdown, speed = self.folder / "results.md", self.folder / "speed.svg"
        markdown.write_text(f"# Title\n{RESULTS_BEGIN}\n{RESULTS_END}\n")
        result = self.report(markdown, speed)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("index.html: 6 runs, 5 figures\n", result.stdout)
        page = (self.folder / "index.html").read_text()
        checker = _Checker()
        checker.feed(page)
        self.assertEqual(checker.open, [])
        self.assertEqual(page.count("<svg"), 5)
        self.assertIn("AMD &lt;EPYC&gt;, 2 cores, 8 GiB, Linux 6.1.0", page)
        self.assertLess(page.index("fusion x compression"), page.index("<h3>runs</h3>"))
        self.assertIn("ronda fp32", markdown.read_text())
        self.assertIn(">Open MPI v4.1.4</text>", speed.read_text())
        self.assertIn("<svg", (self.folder / "startup-2-ranks-startup.svg").read_text())

    def test_an_error_names_the_file(self):
        self.assertIn("there is no file *.json in this folder", self.report().stderr)
        (self.folder / "step.json").write_text(json.dumps(sample_runs.documents()["step"]))
        page = self.folder / "page.md"
        result = self.report(page)
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"ronda-bench: {page}: No such file or directory", result.stderr)
        page.write_text("# Title\n")
        self.assertIn(f"ronda-bench: {page} has no lines", self.report(page).stderr)
        (self.folder / "broken.json").write_text("{")
        self.assertIn("broken.json: not a result of ronda-bench", self.report().stderr)

    def test_without_matplotlib_it_says_what_to_install(self):
        hidden = self.folder / "matplotlib.py"
        hidden.write_text("raise ModuleNotFoundError('hidden', name='matplotlib')")
        result = self.report(env={"PYTHONPATH": str(self.folder)})
        self.assertEqual(result.returncode, 1)
        self.assertIn(
            "report draws with matplotlib, which Python does not find here: install Debian's "
            "python3-matplotlib, or pip install matplotlib",
            result.stderr,
        )
        self.assertNotIn("Traceback", result.stderr)


if __name__ == "__main__":
    unittest.main()
