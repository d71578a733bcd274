#ifndef RONDA_RUNTIME_SCHEDULE_FUSION_PLANNER_H_
#define RONDA_RUNTIME_SCHEDULE_FUSION_PLANNER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/negotiation/messages.h"

namespace ronda {

// A tensor that every rank is ready for, and its form in the response list.
struct Agreed {
  std::shared_ptr<const Response> response;
  CacheId cached_as = 0;  // named by this id; 0: spelled out
  std::vector<RankId> joined;
  TensorRequest::Absent absent = TensorRequest::Absent::kNotCounted;
};

// Groups tensors into buckets, each carried out as one collective.
//
// Tensors fuse if their operation does (OperationTraits), they are of one kind (SameKind) and lack the same joined
// ranks. Adasum weighs each tensor for itself but travels with its kind. Groups keep no tensors apart.
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
