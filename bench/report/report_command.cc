#include "bench/report/report_command.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/arguments.h"
#include "bench/files.h"
#include "bench/job.h"
#include "bench/report/figure.h"
#include "bench/report/gnuplot.h"
#include "bench/report/pages.h"
#include "bench/report/run_document.h"
#include "bench/report/run_figures.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

constexpr char kDescription[] =
    "Turns the JSON files in DIR, which other commands write with --json, into one self-contained page, "
    "DIR/index.html,\n"
    "with plots and tables. The plots are also drawn as PNG files if gnuplot is installed.";

constexpr int kFailure = 1;
constexpr int kUsageError = 2;

struct ReportOptions {
  std::vector<std::string> directories;
  std::string markdown;  // a page whose results are replaced; empty: none
};

absl::Status UpdateMarkdown(const std::string& path, const std::vector<RunDocument>& runs) {
  RONDA_ASSIGN_OR_RETURN(const std::string page, ReadFile(path));
  const absl::StatusOr<std::string> updated = WithResults(page, MarkdownOf(runs));
  if (!updated.ok()) return absl::InvalidArgumentError(absl::StrCat(path, " ", updated.status().message()));
  return WriteFile(path, *updated);
}

absl::Status Report(const ReportOptions& options) {
  const std::string& directory = options.directories.front();
  RONDA_ASSIGN_OR_RETURN(const std::vector<RunDocument> runs, ReadRuns(directory));
  const std::vector<Figure> figures = FiguresOf(runs);
  const std::string page = directory + "/index.html";
  RONDA_RETURN_IF_ERROR(WriteFile(page, HtmlOf(runs, figures)));
  std::printf("%s: %zu runs, %zu figures\n", page.c_str(), runs.size(), figures.size());
  const absl::Status drawn = DrawPngs(figures, directory);
  if (absl::IsNotFound(drawn)) {
    std::printf("%s\n", std::string(drawn.message()).c_str());
  } else {
    RONDA_RETURN_IF_ERROR(drawn);
  }
  return options.markdown.empty() ? absl::OkStatus() : UpdateMarkdown(options.markdown, runs);
}

int RunReport(const std::vector<std::string>& words) {
  ReportOptions options;
  Flags flags("report", kDescription);
  flags.AllowOperands("DIR", &options.directories);
  flags.Add({.names = {"--markdown"},
             .value = "FILE",
             .help = "Also put the tables into FILE, a page of Markdown, between the lines\n"
                     "<!-- results: written by ronda-bench report --> and <!-- end of results -->."},
            Text(&options.markdown));
  int exit_code = 0;
  if (!ParseOrExplain(&flags, words, &exit_code)) return exit_code;
  if (options.directories.size() != 1) {
    std::fprintf(stderr, "ronda-bench: report needs one folder with JSON files\n%s\n", flags.Usage().c_str());
    return kUsageError;
  }
  const absl::Status status = Report(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "ronda-bench: %s\n", std::string(status.message()).c_str());
  return kFailure;
}

}  // namespace

Command ReportCommand() {
  return {.name = "report",
          .summary = "a page with plots and tables of what other commands have measured",
          .run = RunReport};
}

}  // namespace ronda::bench
