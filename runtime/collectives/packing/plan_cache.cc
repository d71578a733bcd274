// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/packing/plan_cache.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

namespace ronda {
namespace {

enum class Match { kNone, kSizes, kAll };

Match Compare(const ReductionPlan& plan, const ReduceCall& call) {
  if (plan.segments.size() != call.segments.size() || plan.dtype != call.dtype || plan.format != call.wire) {
    return Match::kNone;
  }
  static_assert(std::has_unique_object_representations_v<Segment>);
  if (std::memcmp(plan.segments.data(), call.segments.data(), call.segments.size() * sizeof(Segment)) == 0) {
    return Match::kAll;
  }
  const bool has_sizes = std::equal(plan.segments.begin(), plan.segments.end(), call.segments.begin(),
                                    [](const Segment& known, const Segment& now) { return known.count == now.count; });
  return has_sizes ? Match::kSizes : Match::kNone;
}

}  // namespace

ReductionPlan& PlanCache::Find(const ReduceCall& call) {
  std::optional<size_t> same_sizes;
  for (size_t tried = 0; tried < plans_.size(); ++tried) {
    const size_t i = (next_ + tried) % plans_.size();
    const Match match = Compare(*plans_[i], call);
    if (match == Match::kAll) return Use(i);
    if (match == Match::kSizes && !same_sizes.has_value()) same_sizes = i;
  }
  const bool is_full = plans_.size() == kMostPlans;
  if (is_full && same_sizes.has_value()) {
    ReductionPlan& plan = Use(*same_sizes);
    plan.segments.assign(call.segments.begin(), call.segments.end());
    for (ReductionPlan::Tables& tables : plan.chunks) tables.has_packed = tables.has_unpacked = false;
    return plan;
  }
  if (!is_full) plans_.push_back(std::make_unique<ReductionPlan>());
  ReductionPlan& plan = Use(is_full ? next_ : plans_.size() - 1);
  plan.wire.Lay(call, chunk_bytes_);
  plan.chunks.assign(plan.wire.chunks(), {});
  plan.segments.assign(call.segments.begin(), call.segments.end());
  plan.dtype = call.dtype;
  plan.format = call.wire;
  return plan;
}

ReductionPlan& PlanCache::Use(size_t i) {
  next_ = (i + 1) % plans_.size();
  return *plans_[i];
}

}  // namespace ronda
