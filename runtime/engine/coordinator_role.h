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

// The work of rank 0 as the coordinator. Turns the ranks' reports into response lists, and detects tensors that a rank
// does not submit, and ranks that wait for each other. Connects the negotiator, the stall inspector, the deadlock
// detector, autotune and the codec. Does no I/O, except that it writes to the log and, if the user asks for them, a
// recording of the negotiation and a log of autotune.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class CoordinatorRole {
 public:
  // `flights` contains the flight recorders of all ranks. Reports about late ranks quote the last events in these
  // recorders. `log` records which rank is ready for which tensor; it is not owned, and may be nullptr.
  CoordinatorRole(const Tunables& tunables, int world_size, std::shared_ptr<FlightBoard> flights, TensorLog* log);

  // Opens the files that the tunables request. Must be called before all other functions.
  // Errors: the operating system's error, with the path.
  absl::Status Start();

  // Processes the reports that have arrived.
  // Errors: INVALID_ARGUMENT, naming the rank, if a report is damaged.
  absl::Status Receive(const std::vector<ControlMessage>& reports, absl::Time now);

  // Logs warnings about stalls that have lasted long enough, and fails tensors that have reached their deadline.
  // Errors: DEADLINE_EXCEEDED if ranks wait in shutdown for ranks that do not shut down.
  absl::Status Inspect(absl::Time now);

  // Returns whether the schedule that the coordinator sent last is still locked. Until Unlock is called, the
  // coordinator need not process reports.
  bool locked() const { return negotiator_.locked(); }

  // Returns an encoded list of all decisions since the last call, or an empty string if nothing was decided. The first
  // list is never empty, because it carries the job's settings.
  std::string TakeBroadcast(absl::Time now);

  // Must be called when the ranks have carried out another round of the locked schedule.
  void EndRound(absl::Time now);

  // Returns whether the caller must unlock the schedule, because autotune wants to try other settings.
  bool wants_to_unlock() const { return tuning_ != nullptr && tuning_->wants_change(); }

  // Must be called when the ranks have unlocked the schedule, which they have carried out `progress.rounds` times.
  void Unlock(ScheduleProgress progress, absl::Time now);

  // When Inspect must be called next, at the latest.
  absl::Time next_inspection() const { return next_inspection_; }

 private:
  // Adds `event` to the recording of the negotiation, if there is one. An error ends the recording, but not the job.
  void Record(const NegotiationEvent& event);
  // Logs a warning if ranks wait for each other, unless the job wants no warnings.
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

// Returns the time limits in the job's tunables.
WaitLimits LimitsOf(const Tunables& tunables);

// Watches whether the coordinator answers this rank's reports. A coordinator that answers any reports is alive, and
// itself fails the tensors that wait too long.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class AnswerWatch {
 public:
  // `queue` and `flights` are not owned.
  AnswerWatch(const TensorQueue* queue, const FlightBoard* flights, WaitLimits limits);

  // Must be called as soon as the job's limits are known.
  void set_limits(WaitLimits limits);

  // Must be called when this rank has reported the tensor to the coordinator.
  void Expect(const TensorEntry& entry);

  // Must be called when this rank has reported its shutdown to the coordinator.
  void ExpectEnd(absl::Time now);

  // Must be called when this rank has carried out the coordinator's latest list. The time before this call does not
  // count as silence, because the coordinator could send nothing during the collectives of the list.
  void Heard(absl::Time now);

  // Errors: DEADLINE_EXCEEDED, with the coordinator's last activity, if the coordinator has not answered for too long.
  absl::Status Check(absl::Time now);

  // When Check must be called next, at the latest.
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
