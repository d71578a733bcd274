# SPDX-License-Identifier: Apache-2.0

import json
import math
import pathlib
import tempfile
import unittest

import sample_runs
from runs import (
    ReportError,
    Row,
    case_label,
    format_size,
    implementation_labels,
    implementation_name,
    parse_run,
    read_runs,
)


class ParseTest(unittest.TestCase):
    def test_a_run_has_the_contents_of_its_file(self):
        text = json.dumps(sample_runs.documents()["latency"])
        run = parse_run(text, "folder/latency-2.json")
        self.assertEqual((run.name, run.command), ("latency-2", "latency"))
        self.assertEqual(run.command_line(), "ronda-bench latency")
        self.assertEqual((run.cpu, run.cores), ("AMD <EPYC>", 2))
        self.assertEqual(run.core_distance_ns, [55.2, 57])
        self.assertEqual(run.peers, ["Open MPI v4.1.4"])
        self.assertEqual(run.rows[0].number("median_us"), 5.25)
        self.assertEqual(run.rows[0].numbers("histogram_begin_us"), [4, 5, 6, 8])

    def test_files_of_earlier_versions_lack_peers_and_busy_cores(self):
        document = sample_runs.documents()["latency"]
        del document["peers"], document["busy_cores"]
        run = parse_run(json.dumps(document), "old.json")
        self.assertEqual((run.peers, run.busy_cores), ([], [0, 0]))

    def test_an_absent_field_is_no_number(self):
        row = Row({"ratio": None, "list": [1, None]})
        self.assertTrue(math.isnan(row.number("bytes")) and math.isnan(row.number("ratio")))
        self.assertEqual((row.text("op"), row.numbers("rounds")), ("", []))
        self.assertTrue(math.isnan(row.numbers("list")[1]))

    def test_other_files_are_refused_by_name(self):
        short = {**sample_runs.documents()["step"], "core_distance_ns": [1]}
        texts = ["", "[1]", '{"tool":', '{"tool":"other"}', "{}", json.dumps(short)]
        texts += ['{"tool":"ronda-bench"}', '{"tool":"ronda-bench","machine":{},"version":3}']
        for text in texts:
            with self.assertRaisesRegex(ReportError, "^broken.json: not a result of ronda-bench"):
                parse_run(text, "broken.json")

    def test_the_json_files_of_a_folder_are_read_by_name(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            with self.assertRaisesRegex(ReportError, "there is no file"):
                read_runs(folder)
            documents = sample_runs.documents()
            (folder / "b.json").write_text(json.dumps(documents["step"]))
            (folder / "a.json").write_text(json.dumps(documents["latency"]))
            (folder / "notes.txt").write_text("no JSON")
            self.assertEqual([run.name for run in read_runs(folder)], ["a", "b"])
            (folder / "c.json").write_text("{")
            with self.assertRaisesRegex(ReportError, "c.json: not a result"):
                read_runs(folder)
            with self.assertRaises(FileNotFoundError):
                read_runs(folder / "absent")


class NamesTest(unittest.TestCase):
    def test_sizes(self):
        sizes = [4, 1536, 1 << 20, 5 << 40, 5 << 50]
        texts = ["4 B", "1.5 KiB", "1 MiB", "5 TiB", "5120 TiB"]
        self.assertEqual([format_size(size) for size in sizes], texts)

    def test_a_label_names_only_what_the_run_has_varied(self):
        rows = [
            Row(sample_runs.ronda_step("none", 1, fusion=0)),
            Row(sample_runs.ronda_step("fp16", 1, fusion=1 << 20)),
            Row(sample_runs.step("gloo flat", 1)),
        ]
        labels = ["ronda no fusion, fp32", "ronda fusion 1 MiB, fp16", "gloo flat"]
        self.assertEqual(implementation_labels(rows), labels)
        self.assertEqual(implementation_labels(rows[:1]), ["ronda"])

    def test_locks_are_named_as_such(self):
        rows = [Row(sample_runs.ronda_step("none", 1, lock=lock)) for lock in ("on", "off")]
        self.assertEqual(implementation_labels(rows), ["ronda lock on", "ronda lock off"])

    def test_layers_are_rondas(self):
        def name(**fields):
            return implementation_name(Row(fields))

        self.assertEqual(name(contestant="client", kind="ronda", wire="fp16"), "ronda client, fp16")
        self.assertEqual(name(contestant="openmpi", kind="peer", wire="none"), "openmpi")
        self.assertEqual(name(contestant="ronda"), "ronda")

    def test_a_case_is_model_ranks_and_computation(self):
        row = Row(preset="gpt2", ranks=4, compute_ms=12.5, compute_kind="burn")
        self.assertEqual(case_label(row), "gpt2, 4 ranks, 12.5 ms of backward (burn)")
        row["compute_ms"] = 0
        self.assertEqual(case_label(row), "gpt2, 4 ranks, no computation")
