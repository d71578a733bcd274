// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_HARNESS_RESULTS_H_
#define RONDA_BENCH_HARNESS_RESULTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/harness/machine.h"

namespace ronda::bench {

using Value = std::variant<int64_t, double, std::string, std::vector<double>>;

// One measurement, with the names and values of its fields in the order in which they are written.
using ResultRow = std::vector<std::pair<std::string, Value>>;

// A text table whose rows can be printed one by one. Columns are as wide as their title or their `width`, whichever is
// more, and longer cells push the rest of their line to the right. Lines of the header begin with '#', so that plotting
// tools skip them. Immutable.
//
//   Table table({{.title = "size"}, {.title = "us", .width = 10}});
//   std::fputs(table.Header().c_str(), stdout);
//   std::fputs(table.Row({"4", "1.25"}).c_str(), stdout);
class Table {
 public:
  struct Column {
    enum class Align { kLeft, kRight };
    std::string title;
    size_t width = 0;  // of the widest expected cell
    Align align = Align::kRight;
    std::string group = "";  // printed once above neighbouring columns of the same group
    std::string field = "";  // of a ResultRow
    int digits = 2;          // after the point of such a number
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Returns the table's header: one line, or two lines if any column has a group.
  std::string Header() const;

  // REQUIRES: as many cells as columns.
  std::string Row(const std::vector<std::string>& cells) const;

  // Returns a line with the columns' fields of `row`. A cell is blank if the row has no such field.
  std::string RowOf(const ResultRow& row) const;

 private:
  std::string GroupLine() const;

  const std::vector<Column> columns_;
};

// Returns a number as the text of a cell, with `digits` digits after the decimal point.
std::string Fixed(double number, int digits);

// Returns a number with three significant digits: "0.00123", "12.3", "1.23e+06". Between 1,000 and a million, returns
// all digits before the decimal point.
std::string Short(double number);

// Encodes a row as one line of JSON, for the process that started the ranks and writes the files. Finite numbers keep
// every bit. A number that is not finite becomes NaN, because JSON and CSV have no separate infinities.
std::string EncodeRow(const ResultRow& row);

// Errors: INVALID_ARGUMENT that quotes a line that is not a row.
absl::StatusOr<ResultRow> DecodeRow(const std::string& line);

// The document of one run:
//
//   {"tool":"ronda-bench","version":"0.3.0","command":"collectives","date":"2026-11-21T19:30:00Z",
//    "machine":{"cpu":"AMD EPYC","cores":2,"memory_gib":7.8,"kernel":"Linux 6.1.0"},
//    "peers":["Open MPI v4.1.4"],"core_distance_ns":[55.0,57.5],"busy_cores":[0.0,0.1],"arguments":["--peer","mpi"],
//    "rows":[{"op":"allreduce","bytes":4,"median_us":2.5}]}
//
// In JSON, numbers that are not finite are null. CSV has the columns of all rows, in the order in which they first
// appear, and joins lists by semicolons. Thread-compatible.
class Results {
 public:
  Results(std::string command, std::vector<std::string> arguments)
      : command_(std::move(command)), arguments_(std::move(arguments)) {}

  void Add(ResultRow row) { rows_.push_back(std::move(row)); }
  // Adds a peer that took part, with its version. Adding the peer again changes nothing.
  void AddPeer(const std::string& description);
  // Sets the results of CoreDistanceNanoseconds() before and after the measurements.
  void SetCoreDistance(double before, double after) { core_distance_ = {before, after}; }

  // Sets the load of other programs: the results of BusyCoresNow() before the ranks were started and after they have
  // ended.
  void SetBusyCores(double before, double after) { busy_cores_ = {before, after}; }

  const std::vector<ResultRow>& rows() const { return rows_; }
  const std::vector<std::string>& peers() const { return peers_; }
  const std::array<double, 2>& core_distance() const { return core_distance_; }

  std::string ToJson(const Machine& machine, const std::string& date) const;
  std::string ToCsv() const;

  // The names of the files that the user wants. If a name is empty, no file is written.
  struct Files {
    std::string json;
    std::string csv;
  };
  // Errors: UNAVAILABLE that names the file and the reason.
  absl::Status Write(const Files& files) const;

 private:
  const std::string command_;
  const std::vector<std::string> arguments_;
  std::array<double, 2> core_distance_ = {0, 0};
  std::array<double, 2> busy_cores_ = {0, 0};
  std::vector<std::string> peers_;
  std::vector<ResultRow> rows_;
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_RESULTS_H_
