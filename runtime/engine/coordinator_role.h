// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_COORDINATOR_ROLE_H_
#define RONDA_RUNTIME_ENGINE_COORDINATOR_ROLE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/config.h"
#include "runtime/base/types.h"
#include "runtime/control/control_plane.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/negotiation/deadlock_detector.h"
#include "runtime/negotiation/negotiator.h"
#include "runtime/negotiation/pending_tensors.h"
#include "runtime/negotiation/recording.h"
#include "runtime/tuning/tuning_role.h"

namespace ronda {

// The work of the coordinator, which rank 0 does besides its own work as a rank. The coordinator turns the ranks'
// reports into response lists. It also looks for tensors that a rank does not submit, and for ranks that wait for each
// other. CoordinatorRole connects the negotiator, the stall inspector, the deadlock detector, autotune and the codec.
// It does no I/O except that it writes the log and, on request, a recording of the negotiation and a log of autotune.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class CoordinatorRole {
 public:
  // The flight recorders in `flights` contain the last activity of each rank, for the reports about late ranks. `log`
  // records which rank is ready for which tensor. The caller keeps the ownership of `log`, which may be nullptr.
  CoordinatorRole(const Tunables& tunables, int world_size, std::shared_ptr<FlightBoard> flights, TensorLog* log);

  // Must be called first. Opens the files that the tunables request.
  // Errors: the operating system's error, with the path.
  absl::Status Start();

  // Processes the reports that have arrived.
  // Errors: INVALID_ARGUMENT that names the rank, if a report is damaged.
  absl::Status Receive(const std::vector<ControlMessage>& reports, absl::Time now);

  // Reports stalls that have lasted long enough. Warnings go to the log, and tensors that have reached their deadline
  // fail.
  // Errors: DEADLINE_EXCEEDED if ranks wait in shutdown for ranks that do not shut down.
  absl::Status Inspect(absl::Time now);

  // Whether a schedule that the coordinator has sent is locked. The schedule stays locked until all ranks have unlocked
  // it. Until this time the coordinator need not process reports.
  bool locked() const { return negotiator_.locked(); }

  // Returns the encoded list of all decisions since the last call; empty if nothing was decided. The first list is
  // never empty, because it carries the job's settings.
  std::string TakeBroadcast(absl::Time now);

  // Must be called when the ranks have carried out one more round of the locked schedule.
  void EndRound(absl::Time now);

  // Whether the caller must unlock the schedule because autotune wants to try other settings.
  bool wants_to_unlock() const { return tuning_ != nullptr && tuning_->wants_change(); }

  // Must be called when the ranks have unlocked the schedule. `progress.rounds` is how often the ranks carried out the
  // schedule.
  void Unlock(ScheduleProgress progress, absl::Time now);

  // The latest time for the next call of Inspect.
  absl::Time next_inspection() const { return next_inspection_; }

 private:
  // Adds `event` to the recording of the negotiation, if the job writes one. After an error the recording ends, but the
  // job goes on.
  void Record(const NegotiationEvent& event);
  // Logs a warning if ranks wait for each other. Does nothing if the job wants no warnings.
  void WarnOfDeadlock();
  absl::Status ReceiveOne(const ControlMessage& message, absl::Time now);
  void Tune(absl::Time now);

  const Negotiator::Options options_;
  const std::string recording_path_;  // empty: no recording
  std::unique_ptr<RecordingFile> recording_;
  TensorLog* const log_;
  const Negotiator::ReadyCallback on_ready_;
  Negotiator negotiator_;
  StallInspector inspector_;
  DeadlockDetector deadlocks_;
  JobSettings settings_;
  enum class Settings { kSent, kNew } settings_state_ = Settings::kNew;
  std::unique_ptr<TuningRole> tuning_;  // nullptr without autotune
  absl::Time next_inspection_ = absl::InfiniteFuture();
};

// Returns the time limits that the job's tunables contain.
WaitLimits LimitsOf(const Tunables& tunables);

// Watches whether the coordinator answers this rank's reports. As long as the coordinator answers some reports, it is
// alive. In this case the coordinator itself fails the tensors that wait too long.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class AnswerWatch {
 public:
  // The caller keeps the ownership of `queue` and `flights`.
  AnswerWatch(const TensorQueue* queue, const FlightBoard* flights, WaitLimits limits);

  // Must be called when the job's limits are known.
  void set_limits(WaitLimits limits);

  // Must be called when the tensor has been reported to the coordinator.
  void Expect(const TensorEntry& entry);

  // Must be called when this rank has reported its shutdown to the coordinator.
  void ExpectEnd(absl::Time now);

  // Must be called when this rank has carried out the coordinator's last list. The time until now does not count as
  // silence, because during the list's collectives the coordinator sent nothing.
  void Heard(absl::Time now);

  // Errors: DEADLINE_EXCEEDED, with the coordinator's last activity, if the coordinator has not answered for too long.
  absl::Status Check(absl::Time now);

  // The latest time for the next call of Check.
  absl::Time next_check() const { return next_check_; }

 private:
  absl::Time UnansweredSince(const TensorEntry& entry) const;
  absl::Time AnswerDue(const TensorEntry& entry) const;

  const TensorQueue* const queue_;
  const FlightBoard* const flights_;
  WaitLimits limits_;
  absl::Time shut_down_since_ = absl::InfiniteFuture();
  absl::Time last_activity_ = absl::InfinitePast();
  absl::Time next_check_ = absl::InfiniteFuture();  // no answer is due before
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_COORDINATOR_ROLE_H_
