#include "bench/report/run_figures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "bench/arguments.h"
#include "bench/report/row_labels.h"

namespace ronda::bench {
namespace {

// A name of a file: what is not a letter or a digit becomes a dash, but none at the end.
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

// A row and the run that it is of.
struct RunAndRow {
  const RunDocument* run;
  const RunRow* row;
};

// The rows of all runs of `command`, by what `title` makes of them, in the order in which they appear.
template <typename Title>
std::vector<std::pair<std::string, std::vector<RunAndRow>>> GroupRows(const std::vector<RunDocument>& runs,
                                                                      const std::string& command, Title title) {
  std::vector<std::pair<std::string, std::vector<RunAndRow>>> groups;
  for (const RunDocument& run : runs) {
    if (run.command != command) continue;
    for (const RunRow& row : run.rows) {
      const std::string name = title(run, row);
      if (name.empty()) continue;
      const auto found =
          std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == name; });
      if (found != groups.end()) {
        found->second.push_back({&run, &row});
      } else {
        groups.push_back({name, {{&run, &row}}});
      }
    }
  }
  return groups;
}

std::string Ranks(const RunRow& row) { return absl::StrCat(row.Number("ranks"), " ranks"); }

// Contestants' names, with the run's where several runs have them.
class SeriesNames {
 public:
  explicit SeriesNames(const std::vector<RunAndRow>& rows) {
    for (const RunAndRow& each : rows) runs_[ContestantName(*each.row)].insert(each.run->name);
  }

  std::string Of(const RunAndRow& each) const {
    const std::string name = ContestantName(*each.row);
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
    if (!(row.Number("bytes") > 0) || !row.Has("algbw_gbs")) return "";
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

// The distinct values of a field of some rows, in the order in which they appear.
template <typename Read>
auto Distinct(const std::vector<RunAndRow>& rows, Read read) {
  std::vector<decltype(read(*rows.front().row))> values;
  for (const RunAndRow& each : rows) {
    const auto value = read(*each.row);
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return values;
}

double Fusion(const RunRow& row) { return row.Number("fusion_threshold"); }
std::string Wire(const RunRow& row) { return row.Text("wire"); }

void AddHeatMaps(const std::vector<RunDocument>& runs, std::vector<Figure>* figures) {
  const auto title = [](const RunDocument&, const RunRow& row) -> std::string {
    if (!row.Has("fusion_threshold")) return "";
    return absl::StrCat(CaseLabel(row), ", cycle time ", row.Number("cycle_time_us"), " us, ", row.Text("backend"),
                        ", lock ", row.Text("lock"));
  };
  for (const auto& [name, rows] : GroupRows(runs, "step", title)) {
    std::vector<double> thresholds = Distinct(rows, Fusion);
    const std::vector<std::string> wires = Distinct(rows, Wire);
    if (thresholds.size() < 2 || wires.size() < 2) continue;
    std::sort(thresholds.begin(), thresholds.end());
    HeatMap map = {.id = IdFrom("sweep " + name),
                   .title = "Step time, ms: " + name,
                   .x_label = "wire format",
                   .y_label = "fusion threshold",
                   .x_names = wires};
    map.values.assign(thresholds.size(), std::vector<double>(wires.size(), std::numeric_limits<double>::quiet_NaN()));
    for (double threshold : thresholds) map.y_names.push_back(FusionLabel(threshold));
    for (const RunAndRow& each : rows) {
      const auto y = std::find(thresholds.begin(), thresholds.end(), Fusion(*each.row)) - thresholds.begin();
      const auto x = std::find(wires.begin(), wires.end(), Wire(*each.row)) - wires.begin();
      map.values[static_cast<size_t>(y)][static_cast<size_t>(x)] = each.row->Number("step_ms");
    }
    figures->push_back(std::move(map));
  }
}

void AddBreakdowns(const std::vector<RunDocument>& runs, std::vector<Figure>* figures) {
  constexpr size_t kMostBars = 14;  // a sweep has heat maps
  const auto title = [](const RunDocument& run, const RunRow& row) {
    return absl::StrCat(CaseLabel(row), " (", run.name, ")");
  };
  for (const auto& [name, rows] : GroupRows(runs, "step", title)) {
    if (rows.size() > kMostBars) continue;
    StackedBars bars = {.id = IdFrom("step " + name),
                        .title = "Step: " + name,
                        .value_label = "ms",
                        .part_names = {"compute", "exposed communication"}};
    const ContestantLabels labels(rows.front().run->rows);
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

}  // namespace

std::vector<Figure> FiguresOf(const std::vector<RunDocument>& runs) {
  std::vector<Figure> figures;
  AddBandwidths(runs, &figures);
  AddBreakdowns(runs, &figures);
  AddHeatMaps(runs, &figures);
  AddLatencies(runs, &figures);
  AddStartups(runs, &figures);
  return figures;
}

}  // namespace ronda::bench
