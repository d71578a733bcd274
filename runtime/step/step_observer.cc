// SPDX-License-Identifier: Apache-2.0

#include "runtime/step/step_observer.h"

#include <optional>
#include <utility>

#include "runtime/base/logging.h"

namespace ronda {

StepObserver::StepObserver(const Options& options)
    : detector_(options.identical_steps),
      memory_(static_cast<uint64_t>(options.identical_steps)),
      planning_(options.planning) {}

void StepObserver::Distrust() {
  if (std::exchange(distrusted_, true)) return;
  detector_.Distrust();
  memory_.Distrust();
}

void StepObserver::Release(CacheId id, absl::Time now) {
  detector_.Release(id, now);
  memory_.Release(id);
}

void StepObserver::ReleaseOther() {
  detector_.Break();
  memory_.ReleaseOther();
}

const StepBuckets* StepObserver::EndList(Describe describe) {
  detector_.EndList();
  const StepBuckets* const known = memory_.EndList();
  if (locked_) return nullptr;
  if (known != nullptr || !detector_.complete()) return known;
  std::vector<StepTensor> step = detector_.step();
  describe(step);
  std::optional<StepBuckets> plan = SchedulePlanner(planning_).Plan(step);
  if (!plan) {
    detector_.Break();  // no schedule is possible for this step
    return nullptr;
  }
  planned_ = *std::move(plan);
  return &planned_;
}

Schedule StepObserver::Lock(const StepBuckets& buckets) {
  memory_.Begin(buckets);
  locked_ = true;
  distrusted_ = false;
  return {.number = ++schedules_, .buckets = buckets};
}

void StepObserver::Unlock(const ScheduleProgress& progress) {
  RONDA_CHECK(locked_);
  locked_ = false;
  detector_.Unlocked(progress.rounds);
  memory_.Unlocked(progress);
}

void StepObserver::SetPlanning(const Planning& planning) {
  planning_ = planning;
  memory_.Clear();
}

}  // namespace ronda
