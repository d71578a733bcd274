// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_REPORT_PRESENTATION_H_
#define RONDA_BENCH_REPORT_PRESENTATION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/report/figure.h"
#include "bench/report/run_document.h"

namespace ronda::bench {

// The figures of these runs: bandwidth over size for each operation of `collectives`; the parts of a `step`; a
// histogram of `latency`; `startup`. A figure is of one run, whose name is in its title.
std::vector<Figure> FiguresOf(const std::vector<RunDocument>& runs);

// One figure of a run of `collectives`: bus bandwidth of allreduce by size, float32, in place, for Ronda (its client
// where that was measured) and its peers. It is the run that has measured the most implementations, the first of these.
// Errors: NOT_FOUND if no run measured such an allreduce.
absl::StatusOr<Figure> SpeedAgainstPeers(const std::vector<RunDocument>& runs);

// A table of a report, for HTML and Markdown.
struct ReportTable {
  std::string title;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // as many cells as the header
};

// Why the figures of this run are not to be trusted; "" if they are: other programs used cores that the ranks needed,
// the distance of the cores has changed by half during the run, or most rows have rounds (or steps) that differ by a
// factor of two.
std::string NoiseIn(const RunDocument& run);

// Of each run of `step` that has varied the fusion threshold or the wire format, for each of its cases: the times of
// all combinations, the best of them, and how many times as fast each is as the default.
std::vector<ReportTable> SweepTables(const std::vector<RunDocument>& runs);

// The runs themselves: file, command, date, versions of all that was measured, machine, distance of the cores, noise.
ReportTable TableOfRuns(const std::vector<RunDocument>& runs);

// The results of one run, in the form that suits its command; empty for an unknown command.
std::vector<ReportTable> TablesOf(const RunDocument& run);

// The runs as one self-contained HTML page: SweepTables, the runs, figures, then all tables.
std::string HtmlOf(const std::vector<RunDocument>& runs, const std::vector<Figure>& figures);

// All tables of the runs, as Markdown.
std::string MarkdownOf(const std::vector<RunDocument>& runs);

// The lines around the results in a page.
inline constexpr char kResultsBegin[] = "<!-- results: written by ronda-bench report -->";
inline constexpr char kResultsEnd[] = "<!-- end of results -->";

// `page` with `results` between the two lines. Errors: INVALID_ARGUMENT if a line is missing.
absl::StatusOr<std::string> WithResults(const std::string& page, const std::string& results);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_REPORT_PRESENTATION_H_
