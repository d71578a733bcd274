#ifndef RONDA_RUNTIME_NEGOTIATION_STALL_INSPECTOR_H_
#define RONDA_RUNTIME_NEGOTIATION_STALL_INSPECTOR_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "runtime/negotiation/negotiator.h"

namespace ronda {

// Looks for tensors that some ranks have submitted long ago and others have not, and says who is late and what the late
// rank has submitted instead.
//
// A pure state machine over the negotiator's. Thread-compatible.
class StallInspector {
 public:
  struct Options {
    absl::Duration warning = absl::Seconds(60);   // a tensor that waits for so long is reported, once
    absl::Duration deadline = absl::Minutes(10);  // and after so long it fails; may be infinite
  };

  explicit StallInspector(Options options) : options_(options) {}

  struct Finding {
    std::string name;  // of the tensor; empty: ranks wait for others to shut down
    std::string text;  // names the tensor, its age, and the ranks that are late
    enum class Verdict { kWarn, kFail } verdict;
  };

  // What has come of age since the last call.
  std::vector<Finding> Inspect(const Negotiator& negotiator, absl::Time now);

  // When to look again. A finding is at most an eighth of its limit late.
  absl::Time NextInspection(const Negotiator& negotiator, absl::Time now) const;

 private:
  const Options options_;
  absl::flat_hash_map<std::string, absl::Time> warned_;  // name -> since when the tensor that was reported waits
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_STALL_INSPECTOR_H_
