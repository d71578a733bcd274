// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/fusion_planner.h"

#include <algorithm>
#include <utility>

namespace ronda {
namespace {

// A bucket to which more tensors can still be added.
struct OpenBucket {
  std::shared_ptr<const Response> first;  // of its tensors; it stands for their kind
  size_t index;                           // in the plan
  size_t bytes;
};

Execution ExecutionOf(const Agreed& tensor) {
  if (tensor.cached_as != 0) return tensor.cached_as;
  return *tensor.response;
}

}  // namespace

std::vector<Bucket> FusionPlanner::Plan(std::vector<Agreed> agreed) const {
  std::vector<Bucket> plan;
  std::vector<OpenBucket> open;
  for (Agreed& tensor : agreed) {
    const TensorRequest& request = tensor.response->request;
    size_t bytes = 0;
    if (TraitsOf(request.op).fuses) {
      const auto same_kind = [&](const OpenBucket& bucket) {
        return SameKind(bucket.first->request, request) && plan[bucket.index].joined == tensor.joined &&
               plan[bucket.index].absent == tensor.absent;
      };
      bytes = TensorBytes(request);
      const auto found = std::find_if(open.begin(), open.end(), same_kind);
      if (found != open.end() && found->bytes + bytes <= options_.threshold) {
        found->bytes += bytes;
        plan[found->index].executions.push_back(ExecutionOf(tensor));
        continue;
      }
      if (found != open.end()) open.erase(found);
      open.push_back({tensor.response, plan.size(), bytes});
    }
    plan.push_back({{ExecutionOf(tensor)}, std::move(tensor.joined), tensor.absent});
  }
  return plan;
}

}  // namespace ronda
