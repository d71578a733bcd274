#ifndef RONDA_RUNTIME_NEGOTIATION_STALL_INSPECTOR_H_
#define RONDA_RUNTIME_NEGOTIATION_STALL_INSPECTOR_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "runtime/negotiation/negotiator.h"

namespace ronda {

// Looks for tensors that some ranks have submitted long ago and others have not, and says who is late, what the late
// rank has submitted instead and what it did last. How long is too long is each tensor's own (WaitLimits).
//
// A pure state machine over the negotiator's. Thread-compatible.
class StallInspector {
 public:
  struct Options {
    // "did last, 12.1 s ago: started allreduce 'x'"; empty if nothing is known of the rank. May be left out.
    std::function<std::string(RankId)> last_act;
  };

  explicit StallInspector(Options options) : options_(std::move(options)) {}

  struct Finding {
    TensorKey tensor;  // for Negotiator::Fail; with an empty name: ranks wait for others to shut down
    std::string text;  // names the tensor, its age, and the ranks that are late
    enum class Verdict { kWarn, kFail } verdict;
  };

  // What has come of age since the last call.
  std::vector<Finding> Inspect(const Negotiator& negotiator, absl::Time now);

  // When to look again. A finding is at most an eighth of its limit late.
  absl::Time NextInspection(const Negotiator& negotiator, absl::Time now) const;

 private:
  std::string DescribeLateRank(const Negotiator& negotiator, RankId rank) const;
  std::string DescribeStall(const Negotiator& negotiator, const Waiting& waiting, absl::Time now) const;

  const Options options_;
  absl::flat_hash_map<TensorKey, absl::Time> warned_;  // since when the tensor that was reported waits
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_STALL_INSPECTOR_H_
