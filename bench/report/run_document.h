#ifndef RONDA_BENCH_REPORT_RUN_DOCUMENT_H_
#define RONDA_BENCH_REPORT_RUN_DOCUMENT_H_

#include <array>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/machine.h"

namespace ronda::bench {

// A row of a result document (bench/results.h), by the names of its fields.
class RunRow {
 public:
  std::map<std::string, double> numbers;  // without those that are null
  std::map<std::string, std::string> texts;
  std::map<std::string, std::vector<double>> lists;

  bool Has(const std::string& name) const { return numbers.count(name) + texts.count(name) + lists.count(name) > 0; }
  double Number(const std::string& name) const;             // NaN if there is none
  std::string Text(const std::string& name) const;          // "" if there is none
  std::vector<double> List(const std::string& name) const;  // {} if there is none
};

// One run of ronda-bench, as its JSON file has it.
struct RunDocument {
  std::string name;  // of the file, without folder and ".json"
  std::string version;
  std::string command;
  std::vector<std::string> arguments;
  std::string date;
  Machine machine;
  std::array<double, 2> core_distance_ns = {0, 0};  // before and after; 0 if it was not measured
  std::vector<RunRow> rows;

  // "ronda-bench step --preset resnet50"
  std::string CommandLine() const;
};

// Errors: INVALID_ARGUMENT that begins with the file's name: no JSON, or not a result of ronda-bench.
absl::StatusOr<RunDocument> ParseRun(const std::string& json, const std::string& file);

// The runs of all files *.json in `directory`, by name. Errors: as ParseRun; NOT_FOUND if there are none.
absl::StatusOr<std::vector<RunDocument>> ReadRuns(const std::string& directory);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_REPORT_RUN_DOCUMENT_H_
