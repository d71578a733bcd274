#ifndef RONDA_BENCH_REPORT_ROW_LABELS_H_
#define RONDA_BENCH_REPORT_ROW_LABELS_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "bench/report/run_document.h"

namespace ronda::bench {

// The contestant of a row of `collectives`, `latency` or `startup`, and the wire format unless it is fp32: "ronda
// client, fp16", "openmpi".
std::string ContestantName(const RunRow& row);

// "resnet50, 2 ranks, 100 ms of backward": what a row of `step` is about.
std::string CaseLabel(const RunRow& row);

// "64 MiB", or "no fusion".
std::string FusionLabel(double threshold);

// What to call the contestants of one run of `step`: by their name, and by those of their settings that the run has
// varied ("ronda fp16, lock off"). Immutable.
class ContestantLabels {
 public:
  explicit ContestantLabels(const std::vector<RunRow>& rows);

  std::string Of(const RunRow& row) const;

 private:
  bool Varies(const std::string& field) const;

  std::map<std::string, std::set<std::string>> values_;  // of each setting
};

}  // namespace ronda::bench

#endif  // RONDA_BENCH_REPORT_ROW_LABELS_H_
