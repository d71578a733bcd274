// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_STEP_SCHEDULE_PLANNER_H_
#define RONDA_RUNTIME_STEP_SCHEDULE_PLANNER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/types.h"
#include "runtime/step/step.h"

namespace ronda {

// A tensor of a step that repeats.
struct StepTensor {
  CacheId id = 0;
  absl::Duration ready;  // mean time from the beginning of the step until all ranks had submitted it
  // Two tensors were seen together if their `batches` are equal at any index: in that step each rank submitted both
  // before it could know that either was complete.
  std::vector<uint64_t> batches;

  // The rest comes from the tensor's request.
  size_t bytes = 0;
  std::optional<int> kind;  // tensors of the same kind can share a bucket; nullopt: with no other one
  Memory memory = Memory::kHost;
  std::string group;  // empty: in none
};

// Divides the tensors of a step into the buckets of a schedule (locked_schedule.h).
//
// Buckets follow the order in which tensors become ready, and hold tensors of one kind. A bucket ends when it
// has `threshold` bytes. A bucket with at least `min_bucket_bytes` also ends if the next tensor becomes ready more than
// `hold` after the previous one. This leaves little work for the end of a step. On a GPU a bucket costs launches and
// events, and the program runs ahead of the device. There each bucket needs kDeviceFactor times as many bytes before it
// may end, except the first one of tensors that were seen together.
//
// Tensors share a bucket only if all tensors from the first to the last of it have been seen together. If they have
// not, one tensor might wait for another, and a bucket with both would never be ready. If tensors have not been seen
// together, their order is safe: a tensor that waits for another becomes ready after it in every step, and so also on
// average. If they have been seen together, their buckets run in the order in which the buckets become ready. So a
// bucket of a rare kind, which fills up only at the end of the step, delays no other bucket.
//
// A group of tensors runs completely or not at all, so it is never divided.
//
// A pure function of its input, only on the coordinator.
class SchedulePlanner {
 public:
  static constexpr size_t kDeviceFactor = 25;  // 25 MiB, as DistributedDataParallel has it

  struct Options {
    size_t threshold = size_t{64} << 20;        // bytes of input in a bucket; 0: every tensor for itself
    size_t min_bucket_bytes = size_t{1} << 20;  // a smaller bucket waits for more tensors
    absl::Duration hold = absl::Microseconds(100);
  };

  explicit SchedulePlanner(const Options& options) : options_(options) {}

  // `step` is in the order of its last run; all `batches` have the same length. Returns nullopt if a group would be
  // divided.
  std::optional<StepBuckets> Plan(const std::vector<StepTensor>& step) const;

 private:
  const Options options_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_STEP_SCHEDULE_PLANNER_H_
