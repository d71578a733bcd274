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
  // If the `batches` of two tensors are equal at any index, the tensors were seen together: in the step of that index,
  // each rank submitted both tensors before it could know that one of them was complete.
  std::vector<uint64_t> batches;

  // The following fields come from the tensor's request.
  size_t bytes = 0;
  std::optional<int> kind;  // tensors of the same kind can share a bucket; nullopt: with no other one
  Memory memory = Memory::kHost;
  std::string group;  // empty: in none
};

// Divides the tensors of a step into the buckets of a schedule (locked_schedule.h).
//
// Buckets follow the order in which tensors become ready, and hold tensors of one kind. A bucket has at most
// `threshold` bytes, unless a single tensor or group has more. A bucket with at least `min_bucket_bytes` ends early if
// the next tensor becomes ready more than `hold` after the last one. A bucket that ends early leaves less data to
// reduce at the end of a step. But on a GPU each bucket costs launches and events, and the program runs ahead of the
// device. So there, a bucket ends early only if it has kDeviceFactor times `min_bucket_bytes`. This does not apply to
// the first bucket of tensors that were seen together.
//
// Tensors share a bucket only if all tensors from the bucket's first to its last were seen together. Otherwise the
// program may be waiting for one of them before it submits another, and the bucket would never be ready. Tensors that
// were not seen together run in the order of their average ready times. This order is safe: if the program submits
// tensor b only after tensor a is complete, b is ready later than a in every step, and so on average. The buckets of
// tensors that were seen together run in the order in which the buckets become ready. So a bucket for a rare kind of
// tensor, which fills up only at the end of a step, delays no other bucket.
//
// Either all tensors of a group run, or none of them, so a group is never divided.
//
// The plan depends only on `step` and the options. Only the coordinator makes plans.
class SchedulePlanner {
 public:
  static constexpr size_t kDeviceFactor = 25;  // 25 MiB, as DistributedDataParallel has it

  struct Options {
    size_t threshold = size_t{64} << 20;        // bytes of input in a bucket; 0: every tensor for itself
    size_t min_bucket_bytes = size_t{1} << 20;  // a smaller bucket waits for more tensors
    absl::Duration hold = absl::Microseconds(100);
  };

  explicit SchedulePlanner(const Options& options) : options_(options) {}

  // The tensors in `step` are in the order of the last step. All `batches` have the same length. Returns nullopt if a
  // group would be divided.
  std::optional<StepBuckets> Plan(const std::vector<StepTensor>& step) const;

 private:
  const Options options_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_STEP_SCHEDULE_PLANNER_H_
