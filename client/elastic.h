// SPDX-License-Identifier: Apache-2.0

// A process as a member of an elastic job. Its launcher gives it a place in each epoch. It counts the steps that its
// state has seen. When the ranks have met, they choose the rank with the newest state.
#ifndef RONDA_CLIENT_ELASTIC_H_
#define RONDA_CLIENT_ELASTIC_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/ronda.h"
#include "runtime/base/environment.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/elastic/member_channel.h"

namespace ronda {

// The progress of this process's state: the number of steps that it has seen, and whether it is complete, or incomplete
// because it is being changed. A process that has just started has no state.
//
// One thread changes the marks; any thread may read them. A mark costs a load and a store.
class StepMarks {
 public:
  void BeginUpdate() { word_.store(word_.load(std::memory_order_relaxed) | kInconsistent, std::memory_order_release); }

  // The state has seen one more step; after BringTo(), it has seen the steps that BringTo() gives.
  void EndUpdate();

  // After the next EndUpdate() the state is the state of `step`. The caller is about to receive the state of `step`
  // from another rank. nullopt: the caller receives no state.
  void BringTo(std::optional<int64_t> step) { target_.store(step.value_or(-1), std::memory_order_relaxed); }

  // The state with which the process began is the state of step 0.
  void Begin() { word_.store(0, std::memory_order_release); }

  bool has_state() const { return word() != kNone; }
  bool is_inconsistent() const { return has_state() && (word() & kInconsistent) != 0; }
  // Complete steps; -1 without a state.
  int64_t steps() const { return has_state() ? word() >> 1 : -1; }

 private:
  static constexpr int64_t kInconsistent = 1;
  static constexpr int64_t kNone = -1;  // no state; BeginUpdate() does not change it

  int64_t word() const { return word_.load(std::memory_order_acquire); }

  std::atomic<int64_t> word_{kNone};  // twice the number of steps, and kInconsistent
  std::atomic<int64_t> target_{-1};
};

// A rank's facts about its state, as numbers. The ranks take the maximum of each number, so all ranks have the same
// numbers. See DecideSource().
using StateFacts = std::array<int64_t, 4>;

// `snapshot_step` is the step of the newest complete copy of its state that the rank keeps, or negative if it keeps
// none.
// Errors: INVALID_ARGUMENT for a step beyond 2^40.
absl::StatusOr<StateFacts> FactsOf(const StepMarks& marks, int64_t snapshot_step, RankId rank);

// The state with which all ranks go on.
struct StateSource {
  int64_t step = 0;
  RankId rank = 0;
  bool is_snapshot = false;  // the source itself also goes back to the snapshot
  bool any_behind = false;   // at least one rank needs the state
};

// The source is the lowest of the ranks whose complete state has seen the most steps. If no rank has a complete state,
// or a snapshot is newer, the source is the lowest rank with the newest snapshot. If no rank has a state yet, it is
// rank 0. Pure: the same on all ranks.
// Errors: DATA_LOSS if the state of all ranks that have one is incomplete, and no rank has a snapshot.
absl::StatusOr<StateSource> DecideSource(const StateFacts& maxima, int size);

// Thread-safe. Only one thread at a time waits for a place, and only one looks for changes.
class ElasticMember {
 public:
  // Whether this process is a member of an elastic job. Errors: INVALID_ARGUMENT that names the variable.
  absl::StatusOr<bool> IsMember(const EnvironmentReader& environment);

  // Returns whether IsMember() has returned true. Costs a load.
  bool is_known_member() const { return is_known_member_.load(std::memory_order_relaxed); }

  // Waits for the place in the next epoch. `reason` is the failure that ended the previous epoch, or empty. See
  // MemberChannel::Join for the errors; ALREADY_EXISTS if another thread is using the channel.
  // REQUIRES: IsMember() has answered true.
  absl::StatusOr<EpochPlace> Join(int64_t step, const std::string& reason, absl::Duration timeout);
  absl::Status TellMet(int64_t epoch);
  // kNone also if another thread is waiting for a place.
  absl::StatusOr<MemberChannel::Request> Look();
  absl::Status Leave();

 private:
  // The right to use the channel, which one thread at a time has. The channel is used without the lock.
  class Use;

  std::atomic<bool> is_known_member_{false};
  Mutex mu_;
  std::optional<bool> is_member_ ABSL_GUARDED_BY(mu_);           // nullopt: not checked yet
  std::unique_ptr<MemberChannel> channel_ ABSL_GUARDED_BY(mu_);  // null: a thread uses it
  int64_t last_epoch_ ABSL_GUARDED_BY(mu_) = -1;
};

}  // namespace ronda

#endif  // RONDA_CLIENT_ELASTIC_H_
