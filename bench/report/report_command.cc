// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "bench/harness/arguments.h"
#include "bench/harness/command.h"
#include "bench/harness/job.h"
#include "bench/report/figure.h"
#include "bench/report/presentation.h"
#include "bench/report/run_document.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace ronda::bench {
namespace {

constexpr char kStyle[] =
    "body{font-family:sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}"
    "svg{max-width:100%;height:auto;display:block;margin:1em 0}"
    "table{border-collapse:collapse;font-size:13px;margin:.5em 0 1.5em}"
    "th,td{border-bottom:1px solid #ddd;padding:3px 10px;text-align:left;vertical-align:top}"
    "th{background:#f4f4f4}code{font-size:12px}h3{margin-bottom:.2em;font-size:1em}";

std::string HtmlRow(const std::vector<std::string>& cells, const char* tag) {
  std::string row = "<tr>";
  for (const std::string& cell : cells) absl::StrAppend(&row, "<", tag, ">", Escaped(cell), "</", tag, ">");
  return row + "</tr>\n";
}

std::string HtmlTable(const ReportTable& table) {
  std::string text = absl::StrCat("<h3>", Escaped(table.title), "</h3>\n<table>\n", HtmlRow(table.header, "th"));
  for (const std::vector<std::string>& row : table.rows) absl::StrAppend(&text, HtmlRow(row, "td"));
  return text + "</table>\n";
}

std::string MarkdownRow(const std::vector<std::string>& cells) {
  return absl::StrCat("| ",
                      absl::StrJoin(cells, " | ",
                                    [](std::string* out, const std::string& cell) {
                                      out->append(absl::StrReplaceAll(cell, {{"|", "\\|"}}));
                                    }),
                      " |\n");
}

std::string MarkdownTable(const ReportTable& table) {
  std::string text = absl::StrCat("**", table.title, "**\n\n", MarkdownRow(table.header), "|");
  for (size_t i = 0; i < table.header.size(); ++i) text += "---|";
  text += "\n";
  for (const std::vector<std::string>& row : table.rows) absl::StrAppend(&text, MarkdownRow(row));
  return text + "\n";
}

constexpr char kDescription[] =
    "Makes one self-contained page, DIR/index.html, with plots and tables, of the JSON files in DIR, which other "
    "commands\n"
    "write with --json. Each plot is also a file of its own, DIR/NAME.svg.";

struct ReportOptions {
  std::vector<std::string> directories;
  std::string markdown;  // a page whose results are replaced; empty: none
  std::string speed;     // a file for the plot of the speed against peers; empty: none
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
  for (const Figure& figure : figures) {
    RONDA_RETURN_IF_ERROR(WriteFile(absl::StrCat(directory, "/", IdOf(figure), ".svg"), SvgOf(figure)));
  }
  if (!options.speed.empty()) {
    RONDA_ASSIGN_OR_RETURN(const Figure speed, SpeedAgainstPeers(runs));
    RONDA_RETURN_IF_ERROR(WriteFile(options.speed, SvgOf(speed)));
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
  flags.Add({.names = {"--speed"},
             .value = "FILE",
             .help = "Also draw one picture into FILE, an SVG: the bus bandwidth of allreduce by size, of\n"
                     "Ronda and its peers, from the runs of collectives in DIR."},
            Text(&options.speed));
  int exit_code = 0;
  if (!ParseOrExplain(&flags, words, &exit_code)) return exit_code;
  if (options.directories.size() != 1) {
    return Explain(
        absl::InvalidArgumentError(absl::StrCat("report needs one folder with JSON files\n", flags.Usage())));
  }
  const absl::Status status = Report(options);
  return status.ok() ? 0 : Explain(status);
}

}  // namespace

std::string HtmlOf(const std::vector<RunDocument>& runs, const std::vector<Figure>& figures) {
  std::string page = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>ronda-bench</title>\n<style>",
      kStyle, "</style>\n</head>\n<body>\n<h1>ronda-bench</h1>\n",
      "<p>Implementations of one run are measured interleaved: compare these, rather than figures of different runs. "
      "Ratios are of medians.</p>\n");
  for (const ReportTable& table : SweepTables(runs)) absl::StrAppend(&page, HtmlTable(table));
  absl::StrAppend(&page, HtmlTable(TableOfRuns(runs)), "<h2>Figures</h2>\n");
  for (const Figure& figure : figures) absl::StrAppend(&page, SvgOf(figure));
  absl::StrAppend(&page, "<h2>Tables</h2>\n");
  for (const RunDocument& run : runs) {
    absl::StrAppend(&page, "<h2>", Escaped(run.name), "</h2>\n<p><code>", Escaped(run.CommandLine()), "</code></p>\n");
    if (const std::string noise = NoiseIn(run); !noise.empty()) absl::StrAppend(&page, "<p>", Escaped(noise), "</p>\n");
    for (const ReportTable& table : TablesOf(run)) absl::StrAppend(&page, HtmlTable(table));
  }
  return page + "</body>\n</html>\n";
}

std::string MarkdownOf(const std::vector<RunDocument>& runs) {
  std::string text;
  for (const ReportTable& table : SweepTables(runs)) absl::StrAppend(&text, MarkdownTable(table));
  absl::StrAppend(&text, MarkdownTable(TableOfRuns(runs)));
  for (const RunDocument& run : runs) {
    absl::StrAppend(&text, "### ", run.name, "\n\n`", run.CommandLine(), "`\n\n");
    if (const std::string noise = NoiseIn(run); !noise.empty()) absl::StrAppend(&text, noise, "\n\n");
    for (const ReportTable& table : TablesOf(run)) absl::StrAppend(&text, MarkdownTable(table));
  }
  return text;
}

absl::StatusOr<std::string> WithResults(const std::string& page, const std::string& results) {
  const size_t begin = page.find(kResultsBegin);
  const size_t end = page.find(kResultsEnd);
  if (begin == std::string::npos || end == std::string::npos || end < begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("has no lines \"", kResultsBegin, "\" and \"", kResultsEnd, "\" between which results could go"));
  }
  return absl::StrCat(page.substr(0, begin), kResultsBegin, "\n\n", results, page.substr(end));
}

Command ReportCommand() {
  return {
      .name = "report", .summary = "a page with plots and tables of the results of other commands", .run = RunReport};
}

}  // namespace ronda::bench
