#include "bench/report/pages.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "bench/report/run_tables.h"
#include "bench/report/svg.h"

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

}  // namespace

std::string HtmlOf(const std::vector<RunDocument>& runs, const std::vector<Figure>& figures) {
  std::string page = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>ronda-bench</title>\n<style>",
      kStyle, "</style>\n</head>\n<body>\n<h1>ronda-bench</h1>\n",
      "<p>Contestants of one run took turns in it: compare these, rather than figures of different runs. Ratios are "
      "of ",
      "medians.</p>\n", HtmlTable(TableOfRuns(runs)), "<h2>Figures</h2>\n");
  for (const Figure& figure : figures) absl::StrAppend(&page, SvgOf(figure));
  absl::StrAppend(&page, "<h2>Tables</h2>\n");
  for (const RunDocument& run : runs) {
    absl::StrAppend(&page, "<h2>", Escaped(run.name), "</h2>\n<p><code>", Escaped(run.CommandLine()), "</code></p>\n");
    for (const ReportTable& table : TablesOf(run)) absl::StrAppend(&page, HtmlTable(table));
  }
  return page + "</body>\n</html>\n";
}

std::string MarkdownOf(const std::vector<RunDocument>& runs) {
  std::string text = MarkdownTable(TableOfRuns(runs));
  for (const RunDocument& run : runs) {
    absl::StrAppend(&text, "### ", run.name, "\n\n`", run.CommandLine(), "`\n\n");
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

}  // namespace ronda::bench
