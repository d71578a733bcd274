# SPDX-License-Identifier: Apache-2.0

import math
import re
import unittest
from xml.etree import ElementTree

import sample_runs  # noqa: F401
from drawing import short, svg_of
from figures import LineChart, StackedBars


def _lines(count=2, **more):
    points = [(1024, 1.0), (4096, 10.0)]
    series = {f"it's {index}": points for index in range(count)}
    return LineChart("lines", "Peers & <Ronda>", "size", "GB/s", "bytes", series=series, **more)


def _texts(svg):
    ElementTree.fromstring(svg)  # it is well-formed
    return re.findall(r">([^<>]+)</text>", svg)


class DrawingTest(unittest.TestCase):
    def test_numbers_have_three_significant_digits(self):
        numbers = [0.0012345, 12.345, 12345, 12345678]
        self.assertEqual(
            [short(each) for each in numbers], ["0.00123", "12.3", "12345", "1.23e+07"]
        )

    def test_a_line_chart_names_its_series_and_powers_of_its_axes(self):
        texts = _texts(svg_of(_lines()))
        for text in ("Peers &amp; &lt;Ronda&gt;", "it's 0", "it's 1", "1 KiB", "4 KiB", "10"):
            self.assertIn(text, texts)

    def test_the_faster_line_ends_higher_up(self):
        chart = _lines(0)
        chart.series = {"fast": [(1024, 1), (4096, 100)], "slow": [(1024, 1), (4096, 10)]}
        svg = svg_of(chart)
        # Matches the line of each series. The last group is the height at which the line ends.
        paths = re.findall(
            r'd="M (\S+) (\S+) \nL (\S+) (\S+) \n" clip-path[^>]*stroke-width: 1.5', svg
        )
        heights = [float(path[3]) for path in paths]
        self.assertEqual(len(heights), 2)
        self.assertLess(heights[0], heights[1])

    def test_bars_show_their_total(self):
        bars = [("ronda", [100, -0.5]), ("peer", [100, 50])]
        texts = _texts(svg_of(StackedBars("bars", "step", "ms", ["compute", "exposed"], bars)))
        for text in ("ronda", "peer", "compute", "exposed"):
            self.assertIn(text, texts)
        self.assertEqual(
            [text.strip() for text in texts if text.strip() in ("100", "150")][-2:], ["100", "150"]
        )

    def test_lines_of_the_same_color_differ_by_their_dashes(self):
        dashes = [svg_of(_lines(count)).count("stroke-dasharray") for count in (7, 9)]
        self.assertEqual(dashes, [0, 2 * 2])  # in the chart and in its legend

    def test_a_figure_without_numbers_is_still_drawn(self):
        for points in ([], [(0, 0)], [(7, 7)], [(math.nan, math.nan)]):
            for axis in ("linear", "logarithmic", "bytes"):
                chart = LineChart("empty", "none", "x", "y", axis, axis, series={"a": points})
                self.assertIn("none", _texts(svg_of(chart)))
        for bars in ([], [("a", [math.nan])]):
            self.assertIn("ms", _texts(svg_of(StackedBars("empty", "none", "ms", ["part"], bars))))

    def test_the_same_figure_has_the_same_bytes(self):
        self.assertEqual(svg_of(_lines()), svg_of(_lines()))
