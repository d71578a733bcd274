// SPDX-License-Identifier: Apache-2.0

#include "client/call_order.h"

#include <algorithm>

namespace ronda {

void CallOrder::Add(uint64_t signature) {
  const uint64_t call = count_++;
  signatures_[call % kRemembered] = signature;
  names_[call % kRemembered] = next_name_;
  Follow(call);
}

void CallOrder::Follow(uint64_t call) {
  if (step_ > 0 && SignatureOf(call) != SignatureOf(call - step_)) {
    step_ = 0;
    // A step that has repeated for at least kMostInStep calls was not part of a longer step, so the required evidence
    // is reset.
    evidence_ = lasted_ >= kMostInStep ? kEvidence : std::min(2 * evidence_, kMostEvidence);
  }
  if (step_ > 0) {
    ++lasted_;
    runs_hold_ = false;
    position_ = (position_ + 1) % step_;
    next_name_ = (step_name_ + position_) % kNames;
    return;
  }
  next_name_ = (next_name_ + 1) % kNames;
  step_ = FindStep(call);
  step_name_ = next_name_;
  position_ = 0;
  lasted_ = 0;
}

uint64_t CallOrder::RunOf(uint64_t call, uint64_t distance) const {
  const uint64_t oldest = std::max(first_, count_ - std::min(count_, kRemembered));
  uint64_t run = 0;
  while (call - run >= oldest + distance && SignatureOf(call - run) == SignatureOf(call - run - distance)) ++run;
  return run;
}

uint64_t CallOrder::FindStep(uint64_t call) {
  uint64_t found = 0;
  for (uint64_t distance = 1; distance <= std::min(call - first_, kMostInStep); ++distance) {
    uint64_t& run = runs_[distance];
    if (!runs_hold_) {
      run = RunOf(call, distance);
    } else {
      run = SignatureOf(call) == SignatureOf(call - distance) ? run + 1 : 0;
    }
    if (found == 0 && run >= std::max(distance, evidence_)) found = distance;
  }
  runs_hold_ = true;
  return found;
}

void CallOrder::RestartAfter(uint64_t call) {
  if (call < first_) return;
  call = std::max(call, count_ - std::min(count_, kRemembered));
  first_ = call + 1;
  step_ = 0;
  evidence_ = kEvidence;
  std::fill(runs_.begin(), runs_.end(), 0);
  runs_hold_ = true;
  next_name_ = (NameOf(call) + 1) % kNames;
  for (uint64_t later = first_; later < count_; ++later) Follow(later);
}

}  // namespace ronda
