// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/harness/arguments.h"
#include "bench/harness/results.h"
#include "bench/report/presentation.h"
#include "bench/report/run_document.h"

namespace ronda::bench {
namespace {

std::string Cell(double number, int digits) { return std::isfinite(number) ? Fixed(number, digits) : ""; }

// Three significant digits or so, without an exponent.
std::string Readable(double number) { return Cell(number, number >= 100 ? 0 : number >= 10 ? 1 : number >= 1 ? 2 : 3); }

std::string SizeCell(const RunRow& row) { return FormatSize(static_cast<size_t>(row.Number("bytes"))); }

std::string Distance(const RunDocument& run) {
  return absl::StrCat(Fixed(run.core_distance_ns[0], 0), " - ", Fixed(run.core_distance_ns[1], 0));
}

// The p10 and p90 of a row's rounds; NaN if it has none. Those of `latency` are of single calls, which differ.
std::pair<double, double> SpreadOf(const RunRow& row) {
  constexpr std::pair<const char*, const char*> kFields[] = {
      {"p10_us", "p90_us"}, {"step_ms_p10", "step_ms_p90"}, {"p10_s", "p90_s"}};
  for (const auto& [low, high] : kFields) {
    if (row.numbers.count(low) + row.numbers.count(high) == 2) return {row.Number(low), row.Number(high)};
  }
  return {std::nan(""), std::nan("")};
}

double MostRanks(const RunDocument& run) {
  double most = 0;
  for (const RunRow& row : run.rows) most = std::fmax(most, row.Number("ranks"));
  return most;
}

// Position of `value` in `values`, where it is put if it is new.
template <typename T>
size_t IndexOf(const T& value, std::vector<T>* values) {
  const auto found = std::find(values->begin(), values->end(), value);
  if (found != values->end()) return static_cast<size_t>(found - values->begin());
  values->push_back(value);
  return values->size() - 1;
}

bool IsPeer(const RunRow& row) { return row.Text("kind") == "peer"; }

// One operation on one dtype: one row per size, one column per implementation, and a comparison of Ronda with the
// fastest peer.
struct CollectivesPivot {
  std::string title;
  std::vector<double> sizes;
  std::vector<std::string> implementations;
  std::vector<std::vector<const RunRow*>> rows;  // of each size, by implementation; null: none

  void Add(const RunRow& row) {
    const size_t size = IndexOf(row.Number("bytes"), &sizes);
    const size_t implementation = IndexOf(ImplementationName(row), &implementations);
    rows.resize(sizes.size());
    rows[size].resize(std::max(rows[size].size(), implementation + 1));
    rows[size][implementation] = &row;
  }

  const RunRow* At(size_t size, size_t implementation) const {
    return implementation < rows[size].size() ? rows[size][implementation] : nullptr;
  }

  // The least time of the peers; NaN without peers.
  double FastestPeer(size_t size) const {
    double least = std::numeric_limits<double>::quiet_NaN();
    for (const RunRow* row : rows[size]) {
      if (row != nullptr && IsPeer(*row)) least = std::fmin(least, row->Number("median_us"));
    }
    return least;
  }
};

std::string CollectivesCell(const RunRow& row, double fastest_peer) {
  std::string cell = absl::StrCat(Readable(row.Number("median_us")), " us");
  const double bandwidth = row.Number("algbw_gbs");
  if (bandwidth > 0) absl::StrAppend(&cell, ", ", Readable(bandwidth), " GB/s");
  if (!IsPeer(row) && std::isfinite(fastest_peer)) {
    absl::StrAppend(&cell, ", ", Cell(fastest_peer / row.Number("median_us"), 2), "x");
  }
  return cell;
}

ReportTable TableOf(const CollectivesPivot& pivot) {
  ReportTable table = {.title = pivot.title, .header = {"size"}};
  table.header.insert(table.header.end(), pivot.implementations.begin(), pivot.implementations.end());
  for (size_t size = 0; size < pivot.sizes.size(); ++size) {
    std::vector<std::string>& cells = table.rows.emplace_back();
    cells.push_back(FormatSize(static_cast<size_t>(pivot.sizes[size])));
    for (size_t implementation = 0; implementation < pivot.implementations.size(); ++implementation) {
      const RunRow* const row = pivot.At(size, implementation);
      cells.push_back(row == nullptr ? "" : CollectivesCell(*row, pivot.FastestPeer(size)));
    }
  }
  return table;
}

std::vector<ReportTable> CollectivesTables(const RunDocument& run) {
  std::vector<std::string> titles;
  std::vector<CollectivesPivot> pivots;
  for (const RunRow& row : run.rows) {
    const std::string title =
        absl::StrCat(row.Text("op"), ", ", row.Text("dtype"), row.Text("placement") == "out" ? ", out of place" : "",
                     ", ", row.Number("ranks"), " ranks: time, algbw, and how many times faster than the fastest peer");
    const size_t index = IndexOf(title, &titles);
    if (index == pivots.size()) pivots.push_back({.title = title});
    pivots[index].Add(row);
  }
  std::vector<ReportTable> tables;
  for (const CollectivesPivot& pivot : pivots) tables.push_back(TableOf(pivot));
  return tables;
}

// The time of the fastest form of a peer divided by this one: the smallest of the fields ratio_*.
std::string RatioCell(const RunRow& row) {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [name, value] : row.numbers) {
    if (name.rfind("ratio_", 0) == 0) least = std::min(least, value);
  }
  return Cell(least, 2);
}

std::vector<ReportTable> StepTables(const RunDocument& run) {
  std::vector<std::string> cases;
  std::vector<ReportTable> tables;
  const ImplementationLabels labels(run.rows);
  for (const RunRow& row : run.rows) {
    const std::string title = CaseLabel(row);
    const size_t index = IndexOf(title, &cases);
    if (index == tables.size()) {
      tables.push_back({.title = title,
                        .header = {"implementation", "step, ms", "p10 - p90", "exposed, ms", "efficiency", "wire, MB",
                                   "control messages a step", "times faster than the fastest peer"}});
    }
    tables[index].rows.push_back(
        {labels.Of(row), Readable(row.Number("step_ms")),
         absl::StrCat(Readable(row.Number("step_ms_p10")), " - ", Readable(row.Number("step_ms_p90"))),
         Readable(row.Number("exposed_ms")), Cell(row.Number("efficiency"), 3),
         Readable(row.Number("wire_bytes") * 1e-6), Cell(row.Number("control_messages"), 1), RatioCell(row)});
  }
  return tables;
}

std::vector<ReportTable> LatencyTables(const RunDocument& run) {
  ReportTable calls = {.title = "blocking allreduce, us",
                       .header = {"implementation", "ranks", "size", "min", "median", "p90", "p99", "max"}};
  ReportTable idle = {.title = "idle job, of one rank",
                      .header = {"ranks", "seconds", "CPU of all threads, us", "context switches"}};
  for (const RunRow& row : run.rows) {
    if (row.Text("measure") == "idle") {
      idle.rows.push_back({Cell(row.Number("ranks"), 0), Cell(row.Number("seconds"), 0), Readable(row.Number("cpu_us")),
                           Cell(row.Number("context_switches"), 0)});
      continue;
    }
    std::vector<std::string>& cells = calls.rows.emplace_back();
    cells = {ImplementationName(row), Cell(row.Number("ranks"), 0), SizeCell(row)};
    for (const char* field : {"min_us", "median_us", "p90_us", "p99_us", "max_us"}) {
      cells.push_back(Readable(row.Number(field)));
    }
  }
  std::vector<ReportTable> tables = {std::move(calls)};
  if (!idle.rows.empty()) tables.push_back(std::move(idle));
  return tables;
}

std::vector<ReportTable> StartupTables(const RunDocument& run) {
  ReportTable table = {.title = "from the launcher to the end of the first allreduce, s",
                       .header = {"implementation", "ranks", "median", "p10 - p90", "until the job has ended"}};
  for (const RunRow& row : run.rows) {
    table.rows.push_back({row.Text("contestant"), Cell(row.Number("ranks"), 0), Cell(row.Number("median_s"), 3),
                          absl::StrCat(Cell(row.Number("p10_s"), 3), " - ", Cell(row.Number("p90_s"), 3)),
                          Cell(row.Number("total_median_s"), 3)});
  }
  return {table};
}

std::vector<ReportTable> NegotiationTables(const RunDocument& run) {
  ReportTable table = {.title = "agreeing on a step, simulated ranks",
                       .header = {"ranks", "step", "rank 0, us of CPU", "another rank, us", "messages of a rank",
                                  "report, bytes", "list, bytes", "rank 0 receives, bytes", "rank 0 sends, bytes"}};
  for (const RunRow& row : run.rows) {
    std::vector<std::string>& cells = table.rows.emplace_back();
    cells = {Cell(row.Number("ranks"), 0), row.Text("step"), Readable(row.Number("coordinator_us")),
             Readable(row.Number("other_us"))};
    for (const char* field : {"messages", "report_bytes", "list_bytes", "received_bytes", "sent_bytes"}) {
      cells.push_back(Cell(row.Number(field), 0));
    }
  }
  return {table};
}

}  // namespace

std::string NoiseIn(const RunDocument& run) {
  constexpr double kMostBusy = 0.3;    // of the cores that the ranks need
  constexpr double kMostChange = 1.5;  // of the distance of the cores, which changes by a factor of five
  constexpr double kMostSpread = 2;    // from the p10 to the p90
  const double busy = std::max(run.busy_cores[0], run.busy_cores[1]);
  if (busy > std::max(0.0, run.machine.cores - MostRanks(run)) + kMostBusy) {
    return absl::StrCat("spoilt: other programs kept ", Fixed(busy, 1), " of ", run.machine.cores,
                        " cores busy before or after the run; run it again");
  }
  const auto [nearest, farthest] = std::minmax(run.core_distance_ns[0], run.core_distance_ns[1]);
  if (nearest > 0 && farthest > kMostChange * nearest) {
    return absl::StrCat("spoilt: the distance of the cores has changed from ", Fixed(run.core_distance_ns[0], 0),
                        " to ", Fixed(run.core_distance_ns[1], 0), " ns; run it again");
  }
  int rows = 0, wide = 0;
  for (const RunRow& row : run.rows) {
    const auto [p10, p90] = SpreadOf(row);
    if (!std::isfinite(p90 / p10)) continue;
    ++rows;
    if (p90 > kMostSpread * p10) ++wide;
  }
  if (2 * wide <= rows) return "";
  return absl::StrCat("spoilt: in ", wide, " of ", rows, " rows the slow rounds took more than twice as long as the ",
                      "quick ones; run it again");
}

ReportTable TableOfRuns(const std::vector<RunDocument>& runs) {
  ReportTable table = {
      .title = "runs",
      .header = {"run", "command", "date", "measured", "machine", "cache line between cores, ns", "noise"}};
  for (const RunDocument& run : runs) {
    table.rows.push_back(
        {run.name, run.CommandLine(), run.date,
         absl::StrCat("Ronda ", run.version, run.peers.empty() ? "" : ", ", absl::StrJoin(run.peers, ", ")),
         absl::StrCat(run.machine.cpu, ", ", run.machine.cores, " cores, ", Fixed(run.machine.memory_gib, 0), " GiB, ",
                      run.machine.kernel),
         Distance(run), NoiseIn(run)});
  }
  return table;
}

std::vector<ReportTable> TablesOf(const RunDocument& run) {
  if (run.command == "collectives") return CollectivesTables(run);
  if (run.command == "step") return StepTables(run);
  if (run.command == "latency") return LatencyTables(run);
  if (run.command == "startup") return StartupTables(run);
  if (run.command == "negotiation") return NegotiationTables(run);
  return {};
}

}  // namespace ronda::bench
