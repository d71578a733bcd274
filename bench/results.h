// What a run of ronda-bench has measured, as files that other tools read.
#ifndef RONDA_BENCH_RESULTS_H_
#define RONDA_BENCH_RESULTS_H_

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "bench/machine.h"

namespace ronda::bench {

using Value = std::variant<int64_t, double, std::string, std::vector<double>>;

// One measurement: names and values, in the order in which they are written.
using ResultRow = std::vector<std::pair<std::string, Value>>;

// The document of one run:
//
//   {"tool":"ronda-bench","version":"0.3.0","command":"collectives","date":"2026-11-21T19:30:00Z",
//    "machine":{"cpu":"AMD EPYC","cores":2,"memory_gib":7.8,"kernel":"Linux 6.1.0"},
//    "core_distance_ns":[55,57],"arguments":["--peer","mpi"],
//    "rows":[{"op":"allreduce","bytes":4,"median_us":2.5}]}
//
// In JSON numbers that are not finite are null. In CSV the columns are those of all rows, in the order in which they
// first appear, and lists are joined by semicolons. Thread-compatible.
class Results {
 public:
  Results(std::string command, std::vector<std::string> arguments)
      : command_(std::move(command)), arguments_(std::move(arguments)) {}

  void Add(ResultRow row) { rows_.push_back(std::move(row)); }
  // As CoreDistanceNanoseconds() was before and after the measurements.
  void SetCoreDistance(double before, double after) { core_distance_ = {before, after}; }

  const std::vector<ResultRow>& rows() const { return rows_; }
  const std::array<double, 2>& core_distance() const { return core_distance_; }

  std::string ToJson(const Machine& machine, const std::string& date) const;
  std::string ToCsv() const;

  // Where the user wants them; empty: not at all.
  struct Files {
    std::string json;
    std::string csv;
  };
  // Errors: names the file that cannot be written, and why.
  absl::Status Write(const Files& files) const;

 private:
  const std::string command_;
  const std::vector<std::string> arguments_;
  std::array<double, 2> core_distance_ = {0, 0};
  std::vector<ResultRow> rows_;
};

// `text` as a JSON string, with its quotes. Bytes that are no UTF-8 are left as they are.
std::string JsonString(const std::string& text);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_RESULTS_H_
