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

// One measurement: the names and values of its fields, in output order.
using ResultRow = std::vector<std::pair<std::string, Value>>;

// A text table whose rows can be printed one by one. A column is as wide as its title or its `width`, whichever is
// more; a longer cell shifts the rest of its line to the right. Header lines start with '#', so that plotting tools
// skip them. Immutable.
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

  // REQUIRES: one cell per column.
  std::string Row(const std::vector<std::string>& cells) const;

  // Returns a line with those fields of `row` that the columns name. A cell is blank if the row has no such field.
  std::string RowOf(const ResultRow& row) const;

 private:
  std::string GroupLine() const;

  const std::vector<Column> columns_;
};

// Formats a number for a cell, with `digits` digits after the decimal point.
std::string Fixed(double number, int digits);

// Formats a number with three significant digits: "0.00123", "12.3", "1.23e+06". Between 1,000 and a million, keeps all
// digits before the decimal point.
std::string Short(double number);

// Encodes a row as one line of JSON for the process that started the ranks. That process writes the files. Finite
// numbers are encoded exactly. Infinities become NaN, because the files do not distinguish between them.
std::string EncodeRow(const ResultRow& row);

// Errors: INVALID_ARGUMENT, with a text that quotes the line, if `line` is not an encoded row.
absl::StatusOr<ResultRow> DecodeRow(const std::string& line);

// The results of one run, written as JSON:
//
//   {"tool":"ronda-bench","version":"0.3.0","command":"collectives","date":"2026-11-21T19:30:00Z",
//    "machine":{"cpu":"AMD EPYC","cores":2,"memory_gib":7.8,"kernel":"Linux 6.1.0"},
//    "peers":["Open MPI v4.1.4"],"core_distance_ns":[55.0,57.5],"busy_cores":[0.0,0.1],"arguments":["--peer","mpi"],
//    "rows":[{"op":"allreduce","bytes":4,"median_us":2.5}]}
//
// Numbers that are not finite are null in JSON. CSV has the columns of all rows, in the order of their first
// appearance, and separates the elements of a list by semicolons. Thread-compatible.
class Results {
 public:
  Results(std::string command, std::vector<std::string> arguments)
      : command_(std::move(command)), arguments_(std::move(arguments)) {}

  void Add(ResultRow row) { rows_.push_back(std::move(row)); }
  // Adds a peer that took part, by name and version. Does nothing if the peer has already been added.
  void AddPeer(const std::string& description);
  // Records the results of CoreDistanceNanoseconds() from before and after the measurements.
  void SetCoreDistance(double before, double after) { core_distance_ = {before, after}; }

  // Records the load that other programs caused: the results of BusyCoresNow() from before the ranks started and after
  // they ended.
  void SetBusyCores(double before, double after) { busy_cores_ = {before, after}; }

  const std::vector<ResultRow>& rows() const { return rows_; }
  const std::vector<std::string>& peers() const { return peers_; }
  const std::array<double, 2>& core_distance() const { return core_distance_; }

  std::string ToJson(const Machine& machine, const std::string& date) const;
  std::string ToCsv() const;

  // The names of the files to write. An empty name means that the file is not written.
  struct Files {
    std::string json;
    std::string csv;
  };
  // Errors: UNAVAILABLE, with a text that names the file and the reason.
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
