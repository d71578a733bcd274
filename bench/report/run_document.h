// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_REPORT_RUN_DOCUMENT_H_
#define RONDA_BENCH_REPORT_RUN_DOCUMENT_H_

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/harness/machine.h"

namespace ronda::bench {

// A row of a result document (bench/harness/results.h), by the names of its fields.
struct RunRow {
  std::map<std::string, double> numbers;  // without those that are null
  std::map<std::string, std::string> texts;
  std::map<std::string, std::vector<double>> lists;

  double Number(const std::string& name) const;             // NaN if there is none
  std::string Text(const std::string& name) const;          // "" if there is none
  std::vector<double> List(const std::string& name) const;  // {} if there is none
};

// One run of ronda-bench, read from its JSON file.
struct RunDocument {
  std::string name;  // of the file, without folder and ".json"
  std::string version;
  std::string command;
  std::vector<std::string> arguments;
  std::string date;
  Machine machine;
  std::vector<std::string> peers;                   // with their versions
  std::array<double, 2> busy_cores = {0, 0};        // by other programs, before and after
  std::array<double, 2> core_distance_ns = {0, 0};  // before and after; 0 if it was not measured
  std::vector<RunRow> rows;

  // "ronda-bench step --preset resnet50"
  std::string CommandLine() const;
};

// Errors: INVALID_ARGUMENT that begins with the file's name: no JSON, or not a result of ronda-bench.
absl::StatusOr<RunDocument> ParseRun(const std::string& json, const std::string& file);

// The runs of all files *.json in `directory`, by name. Errors: as ParseRun; NOT_FOUND if there are none.
absl::StatusOr<std::vector<RunDocument>> ReadRuns(const std::string& directory);

// The implementation of a row of `collectives`, `latency` or `startup`, and the wire format unless it is fp32: "ronda
// client, fp16", "openmpi".
std::string ImplementationName(const RunRow& row);

// The case of a row of `step`: "resnet50, 2 ranks, 100 ms of backward (spin)".
std::string CaseLabel(const RunRow& row);

// Labels for the implementations of one run of `step`: their names, and those settings that the run varies ("ronda
// fp16, lock off"). Immutable.
class ImplementationLabels {
 public:
  explicit ImplementationLabels(const std::vector<RunRow>& rows);

  std::string Of(const RunRow& row) const;

 private:
  std::map<std::string, std::set<std::string>> values_;  // of each setting
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_REPORT_RUN_DOCUMENT_H_
