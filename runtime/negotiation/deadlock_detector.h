// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_NEGOTIATION_DEADLOCK_DETECTOR_H_
#define RONDA_RUNTIME_NEGOTIATION_DEADLOCK_DETECTOR_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/pending_tensors.h"

namespace ronda {

// Finds ranks that wait for each other, long before a deadline passes. In a deadlock, the programs of all its ranks
// wait, and each tensor that one of these ranks has submitted lacks the submission of another.
//
// A rank that computes is never part of a deadlock, because it may still submit the missing tensors. In a program with
// several threads, one thread may wait while another thread is about to submit a missing tensor. So a deadlock that is
// found leads only to a warning.
//
// A pure state machine on the coordinator. Thread-compatible.
class DeadlockDetector {
 public:
  explicit DeadlockDetector(int world_size) : waits_(world_size, false) {}

  // Must be called when `rank` has reported that its program waits or runs.
  void Record(RankId rank, RankReport::Program program);

  // Must be called when the coordinator has sent decisions. After that, all ranks count as running until they report
  // again that they wait.
  void RecordDecisions();

  // Describes the deadlock. Returns an empty string if there is no deadlock, or if it is the one that the last call
  // found. `view` shows all tensors that wait.
  std::string Inspect(const WaitingView& view);

 private:
  std::vector<RankId> StuckRanks(absl::Span<const Waiting> tensors) const;

  std::vector<bool> waits_;  // by rank
  int waiting_ = 0;          // how many of these are true
  bool has_news_ = false;    // since the last Inspect
  std::vector<TensorKey> reported_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_DEADLOCK_DETECTOR_H_
