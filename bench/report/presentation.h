#ifndef RONDA_BENCH_REPORT_PRESENTATION_H_
#define RONDA_BENCH_REPORT_PRESENTATION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/report/figure.h"
#include "bench/report/run_document.h"

namespace ronda::bench {

// The figures of these runs: bandwidth by size for each operation of `collectives`; the parts of a `step`; a histogram
// of `latency`; `startup`. An implementation that took part in several runs has one line per run, labelled with the
// run's name.
std::vector<Figure> FiguresOf(const std::vector<RunDocument>& runs);

// One figure of the runs of `collectives`: bus bandwidth of allreduce by size, float32, in place, for Ronda (its client
// if that was measured) and its peers. Each implementation has one line, from the first run that measured it. Errors:
// NOT_FOUND if no run measured such an allreduce.
absl::StatusOr<Figure> SpeedAgainstPeers(const std::vector<RunDocument>& runs);

// A table of a report, for HTML and Markdown.
struct ReportTable {
  std::string title;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // as many cells as the header
};

// A table of the runs themselves: file, command, date, machine, distance of the cores.
ReportTable TableOfRuns(const std::vector<RunDocument>& runs);

// The results of one run, in the form that suits its command; empty for an unknown command.
std::vector<ReportTable> TablesOf(const RunDocument& run);

// The runs as one self-contained HTML page: figures first, then all tables.
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
