# SPDX-License-Identifier: Apache-2.0

"""Tests the table of expected failures, and its comparison with results."""

import pathlib
import tempfile
import unittest

import cases
import expectations

TABLE = """
# a comment
horovod     | test_torch.A.test_race | *        | *  | may fail | a race of its own
distributed | test_profiler*         | 2.6+     | 3  | fails    | no such event
distributed | test_old               | 1.13-2.6 | *  | fails    | an old fault
"""


def _read(text: str) -> list[expectations.Expectation]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "expected.txt"
        path.write_text(text)
        return expectations.read(path)


def _result(test: str, outcome: str, suite: str = "distributed", ranks: int = 3) -> cases.Result:
    return cases.Result(cases.Case(suite, test, ranks, lambda: None), outcome, 0.0, "")


class ExpectationsTest(unittest.TestCase):
    def _surprises(self, result: cases.Result, torch: str) -> list[str]:
        return expectations.surprises([result], _read(TABLE), torch)

    def test_a_failure_that_is_listed_is_no_surprise(self) -> None:
        self.assertEqual(self._surprises(_result("test_profiler_send", "fail"), "2.15.0+cpu"), [])

    def test_a_failure_that_is_not_listed_is_a_surprise(self) -> None:
        self.assertEqual(
            self._surprises(_result("test_barrier", "fail"), "2.15.0"),
            ["test_barrier fails and is not listed"],
        )

    def test_a_listed_test_that_passes_or_is_skipped_is_a_surprise(self) -> None:
        for outcome, verb in (("pass", "passes"), ("skip", "is skipped")):
            self.assertEqual(
                self._surprises(_result("test_old", outcome), "1.13.1"),
                [f"test_old {verb}, and is listed: an old fault"],
            )

    def test_a_race_may_end_either_way(self) -> None:
        for outcome in ("pass", "fail"):
            result = _result("test_torch.A.test_race", outcome, suite="horovod", ranks=2)
            self.assertEqual(self._surprises(result, "2.6.0"), [])

    def test_a_row_holds_for_its_suite_ranks_and_versions_only(self) -> None:
        listed = _result("test_profiler_send", "fail")
        for result, torch in (
            (listed, "2.5.1"),
            (_result("test_profiler_send", "fail", ranks=2), "2.6.0"),
            (_result("test_profiler_send", "fail", suite="distributed_gpu"), "2.6.0"),
            (_result("test_old", "fail"), "2.10.0"),
        ):
            self.assertEqual(len(self._surprises(result, torch)), 1, (result.case, torch))

    def test_a_line_that_is_no_row_is_named(self) -> None:
        for line in ("distributed | test_x | * | * | fails", "a | b | * | * | breaks | reason"):
            with self.assertRaisesRegex(ValueError, r"expected\.txt:1: want suite \| test"):
                _read(line)

    def test_the_project_s_own_table_can_be_read(self) -> None:
        rows = expectations.read(pathlib.Path(expectations.__file__).with_name("expected.txt"))
        self.assertEqual(len(rows), len({(r.suite, r.test, r.torch, r.ranks) for r in rows}))


if __name__ == "__main__":
    unittest.main()
