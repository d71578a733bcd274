#ifndef RONDA_RUNTIME_FUSION_SCHEDULE_PLANNER_H_
#define RONDA_RUNTIME_FUSION_SCHEDULE_PLANNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// A tensor of a step that repeats itself, and what was seen of it.
struct StepTensor {
  CacheId id = 0;
  absl::Duration ready;  // mean time from the beginning of the step until all ranks had submitted it
  // Tensors that are equal in any place of this have been seen together: in that step all ranks submitted each of them
  // before they could know that any of the others was complete.
  std::vector<uint64_t> batches;
  std::shared_ptr<const Response> response;
};

// Puts the tensors of a step into the buckets of a schedule (schedule_lock.h).
//
// Buckets follow the order in which tensors become ready, and hold what fuses (tensor_kind.h). A bucket ends at
// `threshold` bytes; or, once it has `min_bucket_bytes`, before a tensor that comes more than `hold` after the one
// before it, so that what is left at the end of a step is small.
//
// Tensors share a bucket only if all that stand between the first and the last of it have been seen together. Otherwise
// one might wait for another: a bucket with both would never be ready. The order of what has not been seen together is
// safe because what waits for another tensor becomes ready after it in every step, so also on average. Among what has
// been, buckets run as they become ready: a bucket of a rare kind that takes the whole step to fill holds up no other.
//
// A group of tensors runs as a whole or not at all: it is never divided.
//
// A pure function of its input, kept on the coordinator rank alone.
class SchedulePlanner {
 public:
  struct Options {
    size_t threshold = size_t{64} << 20;        // bytes of input in a bucket; 0: every tensor for itself
    size_t min_bucket_bytes = size_t{1} << 20;  // what is worth waiting for
    absl::Duration hold = absl::Microseconds(100);
  };

  explicit SchedulePlanner(const Options& options) : options_(options) {}

  // `step` is in the order of its last run; all `batches` have the same length. nullopt if a group would be divided.
  std::optional<std::vector<std::vector<CacheId>>> Plan(const std::vector<StepTensor>& step) const;

 private:
  const Options options_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_FUSION_SCHEDULE_PLANNER_H_
