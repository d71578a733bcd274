# SPDX-License-Identifier: Apache-2.0

import dataclasses
import unittest

import sample_runs
from tables import noise_in, sweep_tables, tables_of


class NoiseTest(unittest.TestCase):
    def setUp(self):
        self.run_of_two_ranks = dataclasses.replace(
            sample_runs.run("collectives", [sample_runs.collective("openmpi", "peer", 4, 1)]),
            cores=2,
        )

    def noise(self, **changes):
        return noise_in(dataclasses.replace(self.run_of_two_ranks, **changes))

    def test_a_run_whose_cores_have_moved_is_spoilt(self):
        self.assertEqual(self.noise(core_distance_ns=[55.2, 57]), "")
        self.assertEqual(
            self.noise(core_distance_ns=[55, 83]),
            "spoilt: the distance of the cores has changed from 55 to 83 ns; run it again",
        )
        self.assertIn("from 240 to 55 ns", self.noise(core_distance_ns=[240, 55]))
        self.assertEqual(self.noise(core_distance_ns=[0, 0]), "", "not measured")

    def test_a_run_beside_other_programs_is_spoilt(self):
        self.assertEqual(
            self.noise(busy_cores=[0.1, 0.9]),
            "spoilt: other programs kept 0.9 of 2 cores busy before or after the run; run it again",
        )
        self.assertEqual(self.noise(busy_cores=[0.1, 0.9], cores=4), "")
        self.assertIn("2.5 of 4 cores", self.noise(busy_cores=[2.5, 0], cores=4))

    def test_a_run_whose_rounds_differ_is_spoilt(self):
        rows = [{"step_ms_p10": 100, "step_ms_p90": p90} for p90 in (190, 300, 201)]
        self.assertEqual(noise_in(sample_runs.run("step", rows[:2])), "", "half of the rows")
        self.assertIn(
            "spoilt: in 2 of 3 rows the slow rounds took more than twice as long",
            noise_in(sample_runs.run("step", rows)),
        )


def _sweep_row(fusion, wire, step_ms, lock="on"):
    return {
        **sample_runs.ronda_step(wire, step_ms, fusion, lock),
        "compute_ms": 0,
        "step_ms_p90": step_ms,
    }


class SweepTest(unittest.TestCase):
    def tables(self, rows, **changes):
        run = dataclasses.replace(sample_runs.run("step", rows, "sweep"), **changes)
        return sweep_tables([run], sample_runs.DEFAULT)

    def test_shows_the_best_and_its_ratio_to_the_default(self):
        rows = [
            _sweep_row(64 << 20, "none", 12),
            _sweep_row(64 << 20, "fp16", 10),
            _sweep_row(0, "none", 24),
            _sweep_row(0, "fp16", 8),
            _sweep_row(64 << 20, "fp16", 1, lock="off"),
            {"preset": "resnet50", "contestant": "openmpi flat"},
        ]
        (table,) = self.tables(rows, cores=2)
        self.assertEqual(
            table.title,
            "fusion x compression, resnet50, 2 ranks, no computation (sweep): ms of a step; "
            "best: no fusion, fp16, 1.50x the speed of the default",
        )
        self.assertEqual(table.header, ["", "fp32", "fp16"])
        self.assertEqual(
            table.rows,
            [
                ["no fusion", "24.00, 0.50x", "8.00, 1.50x, best"],
                ["fusion 64 MiB", "12.00, 1.00x, default", "10.00, 1.20x"],
            ],
        )
        (spoilt,) = self.tables(rows, core_distance_ns=[50, 250])
        self.assertIn("(sweep, spoilt by noise)", spoilt.title)

    def test_without_the_default_there_is_no_ratio(self):
        rows = [_sweep_row(0, "none", 24), _sweep_row(0, "fp16", 8)]
        (table,) = self.tables(rows)
        self.assertIn("fp16, the run has not measured the default", table.title)
        self.assertEqual(table.rows, [["no fusion", "24.00", "8.00, best"]])
        self.assertEqual(self.tables(rows[:1]), [], "there is nothing to choose")


class TablesTest(unittest.TestCase):
    def cells(self, command, *, table=0):
        rows = sample_runs.documents()[command]["rows"]
        return tables_of(sample_runs.run(command, rows))[table].rows

    def test_collectives_are_compared_with_the_fastest_peer(self):
        self.assertEqual(
            self.cells("collectives"),
            [
                ["1 KiB", "2.00 us, 0.512 GB/s, 2.50x", "5.00 us, 0.205 GB/s"],
                ["1 MiB", "60.0 us, 17.5 GB/s, 2.00x", "120 us, 8.74 GB/s"],
            ],
        )

    def test_a_step_has_the_ratio_to_the_fastest_form_of_a_peer(self):
        cells = self.cells("step")
        ronda = ["ronda fp32", "102", "101 - 104", "2.50", "0.976", "102", "0.0", "1.25"]
        self.assertEqual(cells[1], ronda)
        peer = ["openmpi flat", "144", "142 - 145", "43.5", "0.697", "", "", ""]
        self.assertEqual(cells[3], peer)

    def test_an_idle_job_has_a_table(self):
        calls = ["ronda client", "2", "4 B", "3.00", "5.25", "9.00", "20.0", "300"]
        self.assertEqual(self.cells("latency"), [calls])
        self.assertEqual(self.cells("latency", table=1), [["2", "3", "51.0", "1"]])

    def test_startup_and_negotiation(self):
        startup = ["ronda", "2", "0.081", "0.080 - 0.090", "0.110"]
        self.assertEqual(self.cells("startup"), [startup])
        negotiation = ["64", "locked", "0.000", "1.50", "0", "0", "0", "0", "0"]
        self.assertEqual(self.cells("negotiation"), [negotiation])

    def test_other_commands_have_no_tables(self):
        self.assertEqual(tables_of(sample_runs.run("model", [])), [])
