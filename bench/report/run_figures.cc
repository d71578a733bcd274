// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "bench/harness/arguments.h"
#include "bench/harness/peers.h"
#include "bench/report/presentation.h"
#include "bench/report/run_document.h"

namespace ronda::bench {
namespace {

// A file name made of a text: characters other than letters and digits become a dash, but not at the end.
std::string IdFrom(const std::string& text) {
  std::string id;
  for (const char c : text) {
    if (absl::ascii_isalnum(c)) {
      id.push_back(absl::ascii_tolower(c));
    } else if (!id.empty() && id.back() != '-') {
      id.push_back('-');
    }
  }
  if (!id.empty() && id.back() == '-') id.pop_back();
  return id;
}

// Rows of one run with a title of their own.
struct RowGroup {
  std::string title;
  std::vector<const RunRow*> rows;
};

// The rows of a run, grouped by title(row), in the order in which they appear. Rows with an empty title are left out.
template <typename Title>
std::vector<RowGroup> GroupRows(const RunDocument& run, Title title) {
  std::vector<RowGroup> groups;
  for (const RunRow& row : run.rows) {
    const std::string name = title(row);
    if (name.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const RowGroup& each) { return each.title == name; });
    if (group == groups.end()) group = groups.insert(group, {.title = name});
    group->rows.push_back(&row);
  }
  return groups;
}

// Figures of different runs are not to be compared.
std::string InRun(const std::string& name, const RunDocument& run) { return absl::StrCat(name, " (", run.name, ")"); }

std::string Ranks(const RunRow& row) { return absl::StrCat(row.Number("ranks"), " ranks"); }

LineChart::Series* SeriesOf(const std::string& name, LineChart* chart) {
  for (LineChart::Series& series : chart->series) {
    if (series.name == name) return &series;
  }
  chart->series.push_back({.name = name});
  return &chart->series.back();
}

void AddBandwidths(const RunDocument& run, std::vector<Figure>* figures) {
  const auto title = [](const RunRow& row) -> std::string {
    if (!(row.Number("bytes") > 0) || !(row.Number("algbw_gbs") > 0)) return "";
    return absl::StrCat(row.Text("op"), ", ", row.Text("dtype"), ", ", Ranks(row),
                        row.Text("placement") == "out" ? ", out of place" : "");
  };
  for (const auto& [name, rows] : GroupRows(run, title)) {
    LineChart chart = {.id = IdFrom("bandwidth " + InRun(name, run)),
                       .title = "Bandwidth: " + InRun(name, run),
                       .x_label = "size",
                       .y_label = "algbw, GB/s",
                       .x_axis = Axis::kLogarithmicBytes,
                       .y_axis = Axis::kLogarithmic};
    for (const RunRow* row : rows) {
      SeriesOf(ImplementationName(*row), &chart)->points.emplace_back(row->Number("bytes"), row->Number("algbw_gbs"));
    }
    for (LineChart::Series& series : chart.series) std::sort(series.points.begin(), series.points.end());
    figures->push_back(std::move(chart));
  }
}

void AddLatencies(const RunDocument& run, std::vector<Figure>* figures) {
  const auto title = [](const RunRow& row) -> std::string {
    if (row.Text("measure") != "calls" || row.List("histogram_begin_us").empty()) return "";
    return absl::StrCat("allreduce of ", FormatSize(static_cast<size_t>(row.Number("bytes"))), ", ", Ranks(row));
  };
  for (const auto& [name, rows] : GroupRows(run, title)) {
    LineChart chart = {.id = IdFrom("latency " + InRun(name, run)),
                       .title = "Latency: blocking " + InRun(name, run),
                       .x_label = "us",
                       .y_label = "% of the calls",
                       .x_axis = Axis::kLogarithmic,
                       .style = LineChart::Style::kSteps};
    for (const RunRow* row : rows) {
      const std::vector<double> begins = row->List("histogram_begin_us");
      const std::vector<double> counts = row->List("histogram_count");
      LineChart::Series* const series = SeriesOf(ImplementationName(*row), &chart);
      for (size_t i = 0; i < std::min(begins.size(), counts.size()); ++i) {
        series->points.emplace_back(begins[i], 100 * counts[i] / row->Number("calls"));
      }
    }
    figures->push_back(std::move(chart));
  }
}

void AddBreakdowns(const RunDocument& run, std::vector<Figure>* figures) {
  constexpr size_t kMostBars = 24;  // a larger sweep has its table
  for (const auto& [name, rows] : GroupRows(run, CaseLabel)) {
    if (rows.size() > kMostBars) continue;
    StackedBars bars = {.id = IdFrom("step " + InRun(name, run)),
                        .title = "Step: " + InRun(name, run),
                        .value_label = "ms",
                        .part_names = {"compute", "exposed communication"}};
    const ImplementationLabels labels(run.rows);
    for (const RunRow* row : rows) {
      if (row->Text("contestant") == "compute only") continue;
      bars.bars.push_back(
          {.name = labels.Of(*row), .parts = {row->Number("compute_only_ms"), row->Number("exposed_ms")}});
    }
    figures->push_back(std::move(bars));
  }
}

void AddStartups(const RunDocument& run, std::vector<Figure>* figures) {
  for (const auto& [name, rows] : GroupRows(run, Ranks)) {
    StackedBars bars = {.id = IdFrom("startup " + InRun(name, run)),
                        .title = "From the launcher to the end of the first allreduce: " + InRun(name, run),
                        .value_label = "s",
                        .part_names = {"median"}};
    for (const RunRow* row : rows) {
      bars.bars.push_back({.name = ImplementationName(*row), .parts = {row->Number("median_s")}});
    }
    figures->push_back(std::move(bars));
  }
}

// The label of a row of `collectives` in SpeedAgainstPeers; "" if the row does not belong there.
std::string SpeedLine(const RunRow& row, const std::string& ronda_layer) {
  const bool is_plain = row.Text("op") == "allreduce" && row.Text("dtype") == "float32" &&
                        row.Text("placement") == "in" && row.Text("wire") == "none";
  if (!is_plain) return "";
  if (row.Text("kind") != "ronda") return row.Text("contestant");
  return row.Text("contestant") == ronda_layer ? "Ronda" : "";
}

bool HasLayer(const RunDocument& run, const std::string& layer) {
  return std::any_of(run.rows.begin(), run.rows.end(), [&](const RunRow& row) {
    return !SpeedLine(row, layer).empty() && row.Text("contestant") == layer;
  });
}

// The lines of SpeedAgainstPeers, were it of this run.
std::vector<RowGroup> SpeedLines(const RunDocument& run) {
  if (run.command != "collectives") return {};
  const std::string layer = HasLayer(run, "client") ? "client" : "communicator";
  return GroupRows(run, [&](const RunRow& row) { return SpeedLine(row, layer); });
}

// As people write it.
std::string PeerTitle(const std::string& name) {
  const PeerInfo* const peer = FindPeer(name);
  return peer == nullptr ? name : peer->title;
}

}  // namespace

absl::StatusOr<Figure> SpeedAgainstPeers(const std::vector<RunDocument>& runs) {
  const RunDocument* chosen = nullptr;
  std::vector<RowGroup> lines;
  for (const RunDocument& run : runs) {
    std::vector<RowGroup> own = SpeedLines(run);
    if (own.size() <= lines.size()) continue;
    chosen = &run;
    lines = std::move(own);
  }
  if (chosen == nullptr) return absl::NotFoundError("no run of collectives has an allreduce of float32 in place");
  const RunRow& first = *lines.front().rows.front();
  LineChart chart = {.id = "speed",
                     .title = absl::StrCat("Allreduce of float32, ", Ranks(first), ", ", chosen->machine.cpu, ", ",
                                           chosen->machine.cores, " cores"),
                     .x_label = "message size",
                     .y_label = "bus bandwidth, GB/s",
                     .x_axis = Axis::kLogarithmicBytes,
                     .y_axis = Axis::kLogarithmic};
  for (const RowGroup& line : lines) {
    LineChart::Series series = {.name = PeerTitle(line.title)};
    for (const RunRow* row : line.rows) {
      if (row->Number("ranks") != first.Number("ranks")) continue;
      series.points.emplace_back(row->Number("bytes"), row->Number("busbw_gbs"));
    }
    std::sort(series.points.begin(), series.points.end());
    chart.series.push_back(std::move(series));
  }
  std::stable_partition(chart.series.begin(), chart.series.end(),
                        [](const LineChart::Series& series) { return series.name == "Ronda"; });
  return chart;
}

std::vector<Figure> FiguresOf(const std::vector<RunDocument>& runs) {
  constexpr std::pair<const char*, void (*)(const RunDocument&, std::vector<Figure>*)> kKinds[] = {
      {"collectives", AddBandwidths}, {"step", AddBreakdowns}, {"latency", AddLatencies}, {"startup", AddStartups}};
  std::vector<Figure> figures;
  for (const auto& [command, add] : kKinds) {
    for (const RunDocument& run : runs) {
      if (run.command == command) add(run, &figures);
    }
  }
  return figures;
}

}  // namespace ronda::bench
