// SPDX-License-Identifier: Apache-2.0

// A process as a member of an elastic job. The launcher gives the member a rank in each epoch. The member counts the
// steps applied to its state. Once all ranks of an epoch have joined, they choose the rank with the newest state.
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

// The progress of this process's training state: how many steps have been applied to it, and whether an update is under
// way, which makes the state incomplete. A process that has just started has no state.
//
// Only one thread may write the marks; any thread may read them. A write costs a load and a store.
class StepMarks {
 public:
  void BeginUpdate() { word_.store(word_.load(std::memory_order_relaxed) | kInconsistent, std::memory_order_release); }

  // Ends an update. Increments the number of steps, or sets it to the step passed to BringTo().
  void EndUpdate();

  // Must be called before this rank receives the state of `step` from another rank. The next EndUpdate() then sets the
  // number of steps to `step`. If `step` is nullopt, the rank receives no state.
  void BringTo(std::optional<int64_t> step) { target_.store(step.value_or(-1), std::memory_order_relaxed); }

  // Records that the process has a state, to which 0 steps have been applied.
  void Begin() { word_.store(0, std::memory_order_release); }

  bool has_state() const { return word() != kNone; }
  bool is_inconsistent() const { return has_state() && (word() & kInconsistent) != 0; }
  // Returns the number of complete steps, or -1 if there is no state.
  int64_t steps() const { return has_state() ? word() >> 1 : -1; }

 private:
  static constexpr int64_t kInconsistent = 1;
  static constexpr int64_t kNone = -1;  // no state; BeginUpdate() does not change it

  int64_t word() const { return word_.load(std::memory_order_acquire); }

  std::atomic<int64_t> word_{kNone};  // twice the number of steps, and kInconsistent
  std::atomic<int64_t> target_{-1};
};

// The numbers that describe a rank's state to the other ranks. The ranks take the maximum of each number, so all ranks
// end up with the same numbers. See DecideSource().
using StateFacts = std::array<int64_t, 4>;

// Returns this rank's StateFacts. `snapshot_step` is the step of the newest snapshot (a complete copy of the state) on
// this rank, or negative if there is none.
// Errors: INVALID_ARGUMENT for a step beyond 2^40.
absl::StatusOr<StateFacts> FactsOf(const StepMarks& marks, int64_t snapshot_step, RankId rank);

// The state with which all ranks continue.
struct StateSource {
  int64_t step = 0;
  RankId rank = 0;
  bool is_snapshot = false;  // the source itself also goes back to the snapshot
  bool any_behind = false;   // at least one rank needs the state
};

// Chooses the source of the state. The source is the lowest rank among those whose complete state has the most steps.
// If no rank has a complete state, or a snapshot is newer, the source is the lowest rank with the newest snapshot. If
// no rank has a state yet, the source is rank 0. Pure, so the result is the same on all ranks.
// Errors: DATA_LOSS if every state is incomplete, and no rank has a snapshot.
absl::StatusOr<StateSource> DecideSource(const StateFacts& maxima, int size);

// This process as a member of an elastic job. Thread-safe, but only one thread at a time may use the channel to the
// launcher.
class ElasticMember {
 public:
  // Returns whether this process is a member of an elastic job. Errors: INVALID_ARGUMENT that names a variable with a
  // wrong value.
  absl::StatusOr<bool> IsMember(const EnvironmentReader& environment);

  // Returns whether IsMember() has returned true. Costs a load.
  bool is_known_member() const { return is_known_member_.load(std::memory_order_relaxed); }

  // Waits until the launcher gives this process its rank in the next epoch. `reason` is the failure that ended the
  // previous epoch, or empty. Errors: the errors of MemberChannel::Join(); ALREADY_EXISTS if another thread is using
  // the channel.
  // REQUIRES: IsMember() has returned true.
  absl::StatusOr<EpochPlace> Join(int64_t step, const std::string& reason, absl::Duration timeout);
  absl::Status TellMet(int64_t epoch);
  // Returns the launcher's request to this member. Also returns kNone if another thread is waiting in Join().
  absl::StatusOr<MemberChannel::Request> Look();
  absl::Status Leave();

 private:
  // Exclusive use of the channel by one thread, which uses the channel without holding the lock.
  class Use;

  std::atomic<bool> is_known_member_{false};
  Mutex mu_;
  std::optional<bool> is_member_ ABSL_GUARDED_BY(mu_);           // nullopt: not checked yet
  std::unique_ptr<MemberChannel> channel_ ABSL_GUARDED_BY(mu_);  // null: a thread uses it
  int64_t last_epoch_ ABSL_GUARDED_BY(mu_) = -1;
};

}  // namespace ronda

#endif  // RONDA_CLIENT_ELASTIC_H_
