# SPDX-License-Identifier: Apache-2.0

"""Runs third-party suites on Ronda and counts the results: docs/suites.md."""

from __future__ import annotations

import argparse
import collections
import pathlib
import re
import sys
from collections.abc import Sequence

import cases
import distributed_suite
import expectations
import horovod_suite
import torch

_SUITES = ("distributed", "distributed_gpu", "horovod")
_OUTPUT_LINES = 40  # of a test that fails unexpectedly


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run_suites.py", description=__doc__)
    parser.add_argument(
        "--suite",
        action="append",
        choices=_SUITES,
        help="a suite to run; may be given again (all by default)",
    )
    parser.add_argument("--horovod", type=pathlib.Path, help="a checkout of Horovod's repository")
    parser.add_argument("--ranks", type=int, default=3, help="ranks of each test (3)")
    parser.add_argument(
        "--backend", default="ronda", help="of torch's suites; gloo, to compare (ronda)"
    )
    parser.add_argument("--filter", default="", help="a regular expression: only tests that match")
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time (1)")
    # torch's longest test takes 80 s on two idle cores; torch itself allows it 400 s.
    parser.add_argument("--deadline", type=float, default=450, help="seconds a test (450)")
    return parser.parse_args(args)


def _cases(suite: str, options: argparse.Namespace, backend: str) -> list[cases.Case]:
    if suite == "horovod":
        if options.horovod is None:
            print("horovod: skipped, as --horovod names no checkout of Horovod's repository")
            return []
        return horovod_suite.cases(options.horovod.absolute(), options.ranks)
    return distributed_suite.cases(backend, options.ranks, of_gpus=suite == "distributed_gpu")


def _report(result: cases.Result) -> None:
    print(f"{result.outcome} {result.case.test} ({result.seconds:.1f} s)", flush=True)


def _run(
    wanted: Sequence[cases.Case],
    options: argparse.Namespace,
    rows: Sequence[expectations.Expectation] = (),
) -> list[cases.Result]:
    """Runs the cases. Many tests have short deadlines, so a case with an unexpected failure runs
    again while no other case runs.
    """
    results = cases.run(wanted, options.jobs, options.deadline, _report)
    again = [result for result in results if _is_news(result, rows)] if options.jobs > 1 else []
    if again:
        print(f"again, alone: {len(again)} tests")
        kept = [result for result in results if result not in again]
        alone = [result.case for result in again]
        results = kept + cases.run(alone, 1, options.deadline, _report)
    return results


def _is_news(result: cases.Result, rows: Sequence[expectations.Expectation]) -> bool:
    """Returns whether the test failed, and is not in the table."""
    row = expectations.expectation(result.case, rows, torch.__version__)
    return result.outcome == "fail" and row is None


def _with_gloo(news: Sequence[cases.Result], options: argparse.Namespace) -> dict[str, str]:
    """Runs the tests that failed on Ronda once more, with gloo, and returns their results."""
    names = {result.case.test for result in news}
    suite = news[0].case.suite
    wanted = [case for case in _cases(suite, options, "gloo") if case.test in names]
    outcomes = _run(wanted, options)
    return {result.case.test: f"; over gloo: {result.outcome}" for result in outcomes}


def _judge(suite: str, options: argparse.Namespace) -> list[str]:
    """Runs a suite, prints its counts, and returns the unexpected results."""
    of_suite = _cases(suite, options, options.backend)
    wanted = [case for case in of_suite if re.search(options.filter, case.test)]
    if not wanted:
        return []
    backend = "ronda" if suite == "horovod" else options.backend
    table = expectations.read(pathlib.Path(__file__).with_name("expected.txt"))
    rows = table if backend == "ronda" else []
    results = _run(wanted, options, rows)
    news = [result for result in results if _is_news(result, rows)]
    is_compared = news and suite != "horovod" and backend == "ronda"
    gloo = _with_gloo(news, options) if is_compared else {}
    for result in sorted(results, key=lambda result: result.case.test):
        if result.outcome != "fail":
            continue
        row = expectations.expectation(result.case, rows, torch.__version__)
        why = row.reason if row else "not listed"
        print(f"fails: {result.case.test}{gloo.get(result.case.test, '')}: {why}")
        if row is None:
            print("\n".join("    " + line for line in result.output.splitlines()[-_OUTPUT_LINES:]))
    counts = collections.Counter(result.outcome for result in results)
    print(
        f"{suite} over {backend}, torch {torch.__version__}, {options.ranks} ranks: "
        f"{counts['pass']} pass, {counts['skip']} skip, {counts['fail']} fail",
        flush=True,
    )
    if backend != "ronda":
        return []
    return expectations.surprises(results, rows, torch.__version__)


def main(args: Sequence[str]) -> int:
    """Returns the exit code, which is 1 if a result differs from expected.txt."""
    options = _arguments(args)
    surprises = [line for suite in options.suite or _SUITES for line in _judge(suite, options)]
    for line in surprises:
        print("not as expected.txt has it:", line)
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
