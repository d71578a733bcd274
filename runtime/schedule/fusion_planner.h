#ifndef RONDA_RUNTIME_SCHEDULE_FUSION_PLANNER_H_
#define RONDA_RUNTIME_SCHEDULE_FUSION_PLANNER_H_

#include <cstddef>
#include <memory>
#include <tuple>
#include <vector>

#include "runtime/negotiation/messages.h"

namespace ronda {

// Whether tensors of this operation fuse with others of their kind.
constexpr bool Fuses(OpType op) { return op == OpType::kAllreduce || op == OpType::kReduceScatter; }

// Whether two tensors whose operations fuse are of one kind.
inline bool SameKind(const TensorRequest& a, const TensorRequest& b) {
  const auto fields = [](const TensorRequest& r) {
    return std::tie(r.process_set, r.op, r.dtype, r.memory, r.reduction, r.wire, r.prescale, r.postscale, r.overflow,
                    r.limits);
  };
  return fields(a) == fields(b);
}

// A tensor that every rank is ready for, and how the response list will say so.
struct Agreed {
  std::shared_ptr<const Response> response;
  CacheId cached_as = 0;  // said by this id; 0: spelled out
  std::vector<RankId> joined;
  TensorRequest::Absent absent = TensorRequest::Absent::kNotCounted;
};

// Groups tensors into buckets, each carried out as one collective.
//
// Only allreduces fuse, and reducescatters among themselves: those of one process set with equal dtype, memory, reduce
// op, wire format, scales, overflow detection and wait limits (a late rank shall try the patience of its own call only)
// and the same joined ranks. Adasum weighs each tensor for itself but travels with its kind. Groups keep nothing apart.
// A bucket holds at most `threshold` bytes, or a single tensor of any size. Tensors join the open bucket of their kind
// even when others stand between them; buckets run in the order of their first tensors.
//
// A pure function of its input, kept on the coordinator rank alone: the others are told the buckets.
class FusionPlanner {
 public:
  struct Options {
    size_t threshold = size_t{64} << 20;  // bytes of input in a bucket; 0: every tensor for itself
  };

  explicit FusionPlanner(Options options) : options_(options) {}

  // REQUIRES: element counts fit in memory (the codec and the client have checked).
  std::vector<Bucket> Plan(std::vector<Agreed> agreed) const;

 private:
  const Options options_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_SCHEDULE_FUSION_PLANNER_H_
