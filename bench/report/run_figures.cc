#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
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

// A row, and its run.
struct RunAndRow {
  const RunDocument* run;
  const RunRow* row;
};

// Rows with a common title.
struct RowGroup {
  std::string title;
  std::vector<RunAndRow> rows;
};

// The rows of all runs of `command`, grouped by title(run, row), in the order in which the titles appear. Leaves out
// rows with an empty title.
template <typename Title>
std::vector<RowGroup> GroupRows(const std::vector<RunDocument>& runs, const std::string& command, Title title) {
  std::vector<RowGroup> groups;
  for (const RunDocument& run : runs) {
    if (run.command != command) continue;
    for (const RunRow& row : run.rows) {
      const std::string name = title(run, row);
      if (name.empty()) continue;
      const auto found =
          std::find_if(groups.begin(), groups.end(), [&](const RowGroup& group) { return group.title == name; });
      if (found != groups.end()) {
        found->rows.push_back({&run, &row});
      } else {
        groups.push_back({.title = name, .rows = {{&run, &row}}});
      }
    }
  }
  return groups;
}

std::string Ranks(const RunRow& row) { return absl::StrCat(row.Number("ranks"), " ranks"); }

// The names of implementations, with the run's name if several runs have them.
class SeriesNames {
 public:
  explicit SeriesNames(const std::vector<RunAndRow>& rows) {
    for (const RunAndRow& each : rows) runs_[ImplementationName(*each.row)].insert(each.run->name);
  }

  std::string Of(const RunAndRow& each) const {
    const std::string name = ImplementationName(*each.row);
    return runs_.at(name).size() == 1 ? name : absl::StrCat(name, " (", each.run->name, ")");
  }

 private:
  std::map<std::string, std::set<std::string>> runs_;
};

LineChart::Series* SeriesOf(const std::string& name, LineChart* chart) {
  for (LineChart::Series& series : chart->series) {
    if (series.name == name) return &series;
  }
  chart->series.push_back({.name = name});
  return &chart->series.back();
}

void AddBandwidths(const std::vector<RunDocument>& runs, std::vector<Figure>* figures) {
  const auto title = [](const RunDocument&, const RunRow& row) -> std::string {
    if (!(row.Number("bytes") > 0) || !(row.Number("algbw_gbs") > 0)) return "";
    return absl::StrCat(row.Text("op"), ", ", row.Text("dtype"), ", ", Ranks(row),
                        row.Text("placement") == "out" ? ", out of place" : "");
  };
  for (const auto& [name, rows] : GroupRows(runs, "collectives", title)) {
    LineChart chart = {.id = IdFrom("bandwidth " + name),
                       .title = "Bandwidth: " + name,
                       .x_label = "size",
                       .y_label = "algbw, GB/s",
                       .x_axis = Axis::kLogarithmicBytes,
                       .y_axis = Axis::kLogarithmic};
    const SeriesNames names(rows);
    for (const RunAndRow& each : rows) {
      SeriesOf(names.Of(each), &chart)->points.emplace_back(each.row->Number("bytes"), each.row->Number("algbw_gbs"));
    }
    for (LineChart::Series& series : chart.series) std::sort(series.points.begin(), series.points.end());
    figures->push_back(std::move(chart));
  }
}

void AddLatencies(const std::vector<RunDocument>& runs, std::vector<Figure>* figures) {
  const auto title = [](const RunDocument&, const RunRow& row) -> std::string {
    if (row.Text("measure") != "calls" || row.List("histogram_begin_us").empty()) return "";
    return absl::StrCat("allreduce of ", FormatSize(static_cast<size_t>(row.Number("bytes"))), ", ", Ranks(row));
  };
  for (const auto& [name, rows] : GroupRows(runs, "latency", title)) {
    LineChart chart = {.id = IdFrom("latency " + name),
                       .title = "Latency: blocking " + name,
                       .x_label = "us",
                       .y_label = "% of the calls",
                       .x_axis = Axis::kLogarithmic,
                       .style = LineChart::Style::kSteps};
    const SeriesNames names(rows);
    for (const RunAndRow& each : rows) {
      const std::vector<double> begins = each.row->List("histogram_begin_us");
      const std::vector<double> counts = each.row->List("histogram_count");
      LineChart::Series* const series = SeriesOf(names.Of(each), &chart);
      for (size_t i = 0; i < std::min(begins.size(), counts.size()); ++i) {
        series->points.emplace_back(begins[i], 100 * counts[i] / each.row->Number("calls"));
      }
    }
    figures->push_back(std::move(chart));
  }
}

void AddBreakdowns(const std::vector<RunDocument>& runs, std::vector<Figure>* figures) {
  constexpr size_t kMostBars = 24;  // a larger sweep has only its table
  const auto title = [](const RunDocument& run, const RunRow& row) {
    return absl::StrCat(CaseLabel(row), " (", run.name, ")");
  };
  for (const auto& [name, rows] : GroupRows(runs, "step", title)) {
    if (rows.size() > kMostBars) continue;
    StackedBars bars = {.id = IdFrom("step " + name),
                        .title = "Step: " + name,
                        .value_label = "ms",
                        .part_names = {"compute", "exposed communication"}};
    const ImplementationLabels labels(rows.front().run->rows);
    for (const RunAndRow& each : rows) {
      if (each.row->Text("contestant") == "compute only") continue;
      bars.bars.push_back({.name = labels.Of(*each.row),
                           .parts = {each.row->Number("compute_only_ms"), each.row->Number("exposed_ms")}});
    }
    figures->push_back(std::move(bars));
  }
}

void AddStartups(const std::vector<RunDocument>& runs, std::vector<Figure>* figures) {
  const auto title = [](const RunDocument&, const RunRow& row) { return Ranks(row); };
  for (const auto& [name, rows] : GroupRows(runs, "startup", title)) {
    StackedBars bars = {.id = IdFrom("startup " + name),
                        .title = "From the launcher to the end of the first allreduce: " + name,
                        .value_label = "s",
                        .part_names = {"median"}};
    const SeriesNames names(rows);
    for (const RunAndRow& each : rows) {
      bars.bars.push_back({.name = names.Of(each), .parts = {each.row->Number("median_s")}});
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

bool HasLayer(const std::vector<RunDocument>& runs, const std::string& layer) {
  return std::any_of(runs.begin(), runs.end(), [&](const RunDocument& run) {
    return std::any_of(run.rows.begin(), run.rows.end(), [&](const RunRow& row) {
      return !SpeedLine(row, layer).empty() && row.Text("contestant") == layer;
    });
  });
}

// In the form that people write.
std::string PeerTitle(const std::string& name) {
  const PeerInfo* const peer = FindPeer(name);
  return peer == nullptr ? name : peer->title;
}

}  // namespace

absl::StatusOr<Figure> SpeedAgainstPeers(const std::vector<RunDocument>& runs) {
  const std::string layer = HasLayer(runs, "client") ? "client" : "communicator";
  const auto line = [&](const RunDocument&, const RunRow& row) { return SpeedLine(row, layer); };
  LineChart chart = {.id = "speed",
                     .x_label = "message size",
                     .y_label = "bus bandwidth, GB/s",
                     .x_axis = Axis::kLogarithmicBytes,
                     .y_axis = Axis::kLogarithmic};
  for (const RowGroup& group : GroupRows(runs, "collectives", line)) {
    const RunAndRow& first = group.rows.front();
    if (chart.title.empty()) {
      chart.title = absl::StrCat("Allreduce of float32, ", Ranks(*first.row), ", ", first.run->machine.cpu, ", ",
                                 first.run->machine.cores, " cores");
    }
    LineChart::Series series = {.name = PeerTitle(group.title)};
    for (const RunAndRow& each : group.rows) {
      if (each.run != first.run || each.row->Number("ranks") != first.row->Number("ranks")) continue;
      series.points.emplace_back(each.row->Number("bytes"), each.row->Number("busbw_gbs"));
    }
    std::sort(series.points.begin(), series.points.end());
    chart.series.push_back(std::move(series));
  }
  if (chart.series.empty()) return absl::NotFoundError("no run of collectives has an allreduce of float32 in place");
  std::stable_partition(chart.series.begin(), chart.series.end(),
                        [](const LineChart::Series& series) { return series.name == "Ronda"; });
  return chart;
}

std::vector<Figure> FiguresOf(const std::vector<RunDocument>& runs) {
  std::vector<Figure> figures;
  AddBandwidths(runs, &figures);
  AddBreakdowns(runs, &figures);
  AddLatencies(runs, &figures);
  AddStartups(runs, &figures);
  return figures;
}

}  // namespace ronda::bench
