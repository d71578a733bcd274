# SPDX-License-Identifier: Apache-2.0

import dataclasses
import unittest

import sample_runs
from figures import figures_of, speed_against_peers
from runs import ReportError


def _run(command, name=None):
    run = sample_runs.run(command, sample_runs.documents()[command]["rows"], name or command)
    return dataclasses.replace(run, peers=["Open MPI v4.1.4"], cpu="AMD <EPYC>", cores=2)


class FiguresTest(unittest.TestCase):
    def test_bandwidth_has_a_line_for_each_implementation(self):
        (chart,) = figures_of([_run("collectives")])
        self.assertEqual(chart.title, "Bandwidth: allreduce, float32, 2 ranks (collectives)")
        self.assertEqual(chart.id, "bandwidth-allreduce-float32-2-ranks-collectives")
        self.assertEqual((chart.x_axis, chart.y_axis), ("bytes", "logarithmic"))
        self.assertEqual(list(chart.series), ["ronda communicator", "openmpi"])
        self.assertEqual(chart.series["openmpi"][0], (1024, 1.024 / 5))

    def test_a_figure_is_of_one_run(self):
        charts = figures_of([_run("collectives"), _run("collectives", "again")])
        self.assertEqual([len(points) for c in charts for points in c.series.values()], [2] * 4)
        self.assertIn("(again)", charts[1].title)

    def test_a_step_is_computation_and_exposed_communication(self):
        (bars,) = figures_of([_run("step")])
        self.assertEqual(bars.parts, ["compute", "exposed communication"])
        self.assertEqual(
            [name for name, _ in bars.bars], ["ronda fp32", "ronda fp16", "openmpi flat"]
        )
        self.assertEqual(bars.bars[2][1], [100, 43.5])

    def test_a_large_sweep_has_no_figure(self):
        rows = [sample_runs.ronda_step("none", 101, fusion=size) for size in range(25)]
        self.assertEqual(figures_of([sample_runs.run("step", rows)]), [])

    def test_latency_is_a_histogram_in_shares(self):
        (chart,) = figures_of([_run("latency")])
        self.assertTrue(chart.is_histogram)
        self.assertEqual(chart.series, {"ronda client": [(4, 10), (5, 70), (6, 15), (8, 5)]})

    def test_advice_has_the_ideal_and_a_line_for_each_format(self):
        (chart,) = figures_of([_run("advise")])
        self.assertEqual(
            chart.series,
            {"ideal": [(1, 1), (2, 2)], "none": [(1, 1), (2, 1)], "fp16": [(1, 1), (2, 1.5)]},
        )

    def test_run_without_rows_has_no_figure(self):
        self.assertEqual(figures_of([]), [])
        for command in ("collectives", "step", "latency", "startup", "advise", "model"):
            self.assertEqual(figures_of([sample_runs.run(command, [])]), [], command)


class SpeedTest(unittest.TestCase):
    def test_ronda_is_first_and_peers_have_their_versions(self):
        chart = speed_against_peers([_run("collectives"), _run("collectives", "again")])
        self.assertEqual(list(chart.series), ["Ronda", "Open MPI v4.1.4"])
        self.assertEqual(chart.series["Ronda"][0], (1024, 0.512))
        self.assertIn("2 ranks, AMD <EPYC>, 2 cores", chart.title)

    def test_lines_are_of_the_run_with_the_most_implementations(self):
        more = _run("collectives", "more")
        gloo = sample_runs.collective("gloo", "peer", 1024, 8)
        more.rows = [type(more.rows[0])({**row, "busbw_gbs": 9}) for row in [*more.rows, gloo]]
        chart = speed_against_peers([_run("collectives"), more])
        self.assertEqual(list(chart.series), ["Ronda", "Open MPI v4.1.4", "gloo"])
        self.assertEqual(chart.series["Ronda"][0], (1024, 9))

    def test_without_allreduces_there_is_no_figure(self):
        for runs in ([], [_run("step")], [sample_runs.run("collectives", [])]):
            with self.assertRaisesRegex(ReportError, "no run of collectives has an allreduce"):
                speed_against_peers(runs)
