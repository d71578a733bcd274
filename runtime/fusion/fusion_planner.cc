#include "runtime/fusion/fusion_planner.h"

#include <algorithm>
#include <utility>

namespace ronda {
namespace {

// A bucket that can still grow.
struct OpenBucket {
  TensorRequest kind;  // of its tensors; name and shape do not matter
  size_t index;        // in the plan
  size_t bytes;
};

bool SameKind(const TensorRequest& a, const TensorRequest& b) {
  return a.dtype == b.dtype && a.reduction == b.reduction && a.wire == b.wire && a.prescale == b.prescale &&
         a.postscale == b.postscale;
}

}  // namespace

std::vector<Bucket> FusionPlanner::Plan(std::vector<Agreed> agreed) const {
  std::vector<Bucket> plan;
  std::vector<OpenBucket> open;
  for (Agreed& tensor : agreed) {
    const TensorRequest& request = tensor.response.request;
    if (request.op != OpType::kAllreduce) {
      plan.push_back({.executions = {std::move(tensor.execution)}});
      continue;
    }
    const size_t bytes = static_cast<size_t>(ElementCount(request.shape)) * SizeOf(request.dtype);
    const auto fits = std::find_if(open.begin(), open.end(), [&](const OpenBucket& bucket) {
      return SameKind(bucket.kind, request) && bucket.bytes + bytes <= options_.threshold;
    });
    if (fits != open.end()) {
      fits->bytes += bytes;
      plan[fits->index].executions.push_back(std::move(tensor.execution));
      continue;
    }
    std::erase_if(open, [&](const OpenBucket& bucket) { return SameKind(bucket.kind, request); });
    open.push_back({request, plan.size(), bytes});
    plan.push_back({.executions = {std::move(tensor.execution)}});
  }
  return plan;
}

}  // namespace ronda
