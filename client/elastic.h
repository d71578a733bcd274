// A process as a member of an elastic job: its place in each epoch, which its launcher gives; the steps that its state
// has seen; and who holds the newest state when the ranks have met.
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

// How far the state of this process has come: how many steps it has seen, and whether it is complete, or torn because
// it is being changed. A process that has just started has no state that counts.
//
// One thread changes the marks; any may look. A mark costs a load and a store.
class StepMarks {
 public:
  void BeginUpdate() { word_.store(word_.load(std::memory_order_relaxed) | kTorn, std::memory_order_release); }

  // The state has seen one step more; after BringTo(), the step that it says.
  void EndUpdate();

  // The next EndUpdate() makes the state that of `step`, which the caller is about to take from another rank; nullopt:
  // it takes none.
  void BringTo(std::optional<int64_t> step) { target_.store(step.value_or(-1), std::memory_order_relaxed); }

  // The state that the process began with is that of step 0.
  void Begin() { word_.store(0, std::memory_order_release); }

  bool has_state() const { return word() != kNone; }
  bool is_torn() const { return has_state() && (word() & kTorn) != 0; }
  // Complete steps; -1 without a state.
  int64_t steps() const { return has_state() ? word() >> 1 : -1; }

 private:
  static constexpr int64_t kTorn = 1;
  static constexpr int64_t kNone = -1;  // whatever is begun

  int64_t word() const { return word_.load(std::memory_order_acquire); }

  std::atomic<int64_t> word_{kNone};  // twice the number of steps, and kTorn
  std::atomic<int64_t> target_{-1};
};

// What one rank knows about its state, as numbers of which the ranks take the maximum, each for itself: so all know the
// same. See DecideSource().
using StateFacts = std::array<int64_t, 4>;

// `snapshot_step`: of the newest complete copy of its state that the rank keeps; negative: there is none.
// Errors: INVALID_ARGUMENT for a step beyond 2^40.
absl::StatusOr<StateFacts> FactsOf(const StepMarks& marks, int64_t snapshot_step, RankId rank);

// Whose state all ranks go on with.
struct StateSource {
  int64_t step = 0;
  RankId rank = 0;
  bool is_snapshot = false;  // which also the source has to go back to
  bool any_behind = false;   // whether there is a rank that needs it
};

// The lowest rank of those whose complete state has seen the most steps; if all of these are torn, or older, of those
// that keep the newest snapshot; in a job where no rank has a state yet, rank 0. Pure: the same on all ranks.
// Errors: DATA_LOSS if all ranks that have a state are torn, and none has a snapshot.
absl::StatusOr<StateSource> DecideSource(const StateFacts& maxima, int size);

// Thread-safe; one thread at a time waits for a place, and one looks for changes.
class ElasticMember {
 public:
  // Whether this process is a member of an elastic job. Errors: INVALID_ARGUMENT that names the variable.
  absl::StatusOr<bool> IsMember(const EnvironmentReader& environment);

  // Whether IsMember() has answered true. Costs a load.
  bool is_known_member() const { return is_known_member_.load(std::memory_order_relaxed); }

  // Waits for the place in the next epoch; `reason` is the failure that ended the last one, or empty. See
  // MemberChannel::Join for the errors; ALREADY_EXISTS if another thread is in it.
  // REQUIRES: IsMember() has answered true.
  absl::StatusOr<EpochPlace> Join(int64_t step, const std::string& reason, absl::Duration timeout);
  absl::Status TellMet(int64_t epoch);
  // kNone also where another thread waits for a place.
  absl::StatusOr<MemberChannel::Request> Look();
  absl::Status Leave();

 private:
  // The channel, which one thread at a time has, and which is used without the lock.
  class Use;

  std::atomic<bool> is_known_member_{false};
  Mutex mu_;
  std::optional<bool> is_member_ ABSL_GUARDED_BY(mu_);           // nullopt: nobody has looked
  std::unique_ptr<MemberChannel> channel_ ABSL_GUARDED_BY(mu_);  // null: a thread uses it
  int64_t last_epoch_ ABSL_GUARDED_BY(mu_) = -1;
};

}  // namespace ronda

#endif  // RONDA_CLIENT_ELASTIC_H_
