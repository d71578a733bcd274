#ifndef RONDA_BENCH_REPORT_PAGES_H_
#define RONDA_BENCH_REPORT_PAGES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/report/figure.h"
#include "bench/report/run_document.h"

namespace ronda::bench {

// The runs as one HTML page that needs nothing else: figures first, then all tables.
std::string HtmlOf(const std::vector<RunDocument>& runs, const std::vector<Figure>& figures);

// All tables of the runs, as Markdown.
std::string MarkdownOf(const std::vector<RunDocument>& runs);

// Between these two lines of a page stand the results of the last report.
inline constexpr char kResultsBegin[] = "<!-- results: written by ronda-bench report -->";
inline constexpr char kResultsEnd[] = "<!-- end of results -->";

// `page` with what stands between the two lines replaced by `results`. Errors: INVALID_ARGUMENT if a line is missing.
absl::StatusOr<std::string> WithResults(const std::string& page, const std::string& results);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_REPORT_PAGES_H_
