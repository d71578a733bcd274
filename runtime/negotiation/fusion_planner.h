// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_NEGOTIATION_FUSION_PLANNER_H_
#define RONDA_RUNTIME_NEGOTIATION_FUSION_PLANNER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/negotiation/messages.h"

namespace ronda {

// A tensor that every rank has submitted, and how the response list refers to it.
struct Agreed {
  std::shared_ptr<const Response> response;
  CacheId cached_as = 0;  // the list has only this id; 0: it has the full response
  std::vector<RankId> joined;
  TensorRequest::Absent absent = TensorRequest::Absent::kNotCounted;
};

// Groups tensors into buckets, each of which the ranks carry out as one collective.
//
// Tensors may share a bucket if their operation can be fused (OperationTraits), they are of the same kind (SameKind),
// and the same joined ranks take no part in them. Two Adasum tensors may also share a bucket, but each of them gets its
// own weights. Tensors of different groups may share a bucket.
//
// A bucket holds at most `threshold` bytes, or a single tensor of any size. A tensor goes into the open bucket of its
// kind, even if tensors of other kinds came in between. The buckets run in the order of their first tensors.
//
// The plan depends only on the arguments of Plan and on the options. Only the coordinator has a planner, and the
// coordinator sends the buckets to the other ranks.
class FusionPlanner {
 public:
  struct Options {
    size_t threshold = size_t{64} << 20;  // bytes of input in a bucket; 0: every tensor for itself
  };

  explicit FusionPlanner(Options options) : options_(options) {}

  // REQUIRES: the sizes of the tensors fit into memory (the codec and the client have checked this).
  std::vector<Bucket> Plan(std::vector<Agreed> agreed) const;

 private:
  const Options options_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_FUSION_PLANNER_H_
