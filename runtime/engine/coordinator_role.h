#ifndef RONDA_RUNTIME_ENGINE_COORDINATOR_ROLE_H_
#define RONDA_RUNTIME_ENGINE_COORDINATOR_ROLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
#include "runtime/negotiation/tensor_request.h"
#include "runtime/tuning/tuning_role.h"

namespace ronda {

// The coordinator's part, which rank 0 does besides its own work as a rank: it turns the ranks' reports into response
// lists, and watches for tensors that some rank does not submit, and for ranks that wait for each other. Joins the
// negotiator, the stall inspector, the deadlock detector, autotune and the codec; does no I/O but the log and, if asked
// to, a recording of the negotiation and a log of autotune.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class CoordinatorRole {
 public:
  // `flights` tell the last activity of late ranks. `log`, which is not owned, notes which rank is ready for which
  // tensor; nullptr: there is none.
  CoordinatorRole(const Tunables& tunables, int world_size, std::shared_ptr<FlightBoard> flights, TensorLog* log);

  // To be called first: begins the files that the tunables ask for.
  // Errors: the operating system's, with the path.
  absl::Status Start();

  // Takes the reports that have arrived.
  // Errors: INVALID_ARGUMENT naming the rank if one is damaged.
  absl::Status Take(const std::vector<ControlMessage>& reports, absl::Time now);

  // Reports stalls that have come of age: warnings go to the log, expired tensors fail.
  // Errors: DEADLINE_EXCEEDED if ranks wait in shutdown for others that do not come.
  absl::Status Inspect(absl::Time now);

  // Whether a schedule that the coordinator has sent out is locked: from then on, and until all ranks have unlocked it,
  // reports have time.
  bool locked() const { return negotiator_.locked(); }

  // The encoded list of all decisions since the last call; empty if there are none. The first one is never empty:
  // it carries the job's settings.
  std::string TakeBroadcast(absl::Time now);

  // The locked schedule has been carried out once more.
  void EndRound(absl::Time now);

  // Whether the schedule is to be unlocked, because other settings are to be tried.
  bool wants_to_unlock() const { return tuning_ != nullptr && tuning_->wants_change(); }

  // The ranks have unlocked the schedule, after it was carried out `rounds` times.
  void Unlock(ScheduleProgress progress, absl::Time now);

  // When to call Inspect again at the latest.
  absl::Time next_inspection() const { return next_inspection_; }

 private:
  // Adds to the recording, if there is one. An error ends the recording, not the job.
  void Record(const NegotiationEvent& event);
  // Unless the job wants no warnings.
  void WarnOfDeadlock();
  absl::Status TakeOne(const ControlMessage& message, absl::Time now);
  void Tune(absl::Time now);

  const Negotiator::Options options_;
  const std::string recording_path_;  // empty: there is none
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

// The limits that a job's tunables set.
WaitLimits LimitsOf(const Tunables& tunables);

// Watches whether the coordinator answers this rank's reports. As long as it answers any it is there; it then fails
// tensors that wait for too long itself.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class AnswerWatch {
 public:
  // Neither is owned.
  AnswerWatch(const TensorQueue* queue, const FlightBoard* flights, WaitLimits limits);

  // The job's limits, once they are known.
  void set_limits(WaitLimits limits);

  // The tensor has been reported.
  void Expect(const TensorEntry& entry);

  // This rank has reported its shutdown.
  void ExpectEnd(absl::Time now);

  // The coordinator's last list is carried out: while this rank was in collectives it received nothing, and the
  // coordinator sent nothing.
  void Heard(absl::Time now);

  // Errors: DEADLINE_EXCEEDED if the coordinator has not answered for too long, with its last activity.
  absl::Status Check(absl::Time now);

  // When to call Check again at the latest.
  absl::Time next_check() const { return next_check_; }

 private:
  absl::Time UnansweredSince(const TensorEntry& entry) const;
  absl::Time AnswerDue(const TensorEntry& entry) const;

  const TensorQueue* const queue_;
  const FlightBoard* const flights_;
  WaitLimits limits_;
  absl::Time shut_down_since_ = absl::InfiniteFuture();
  absl::Time last_activity_ = absl::InfinitePast();
  absl::Time next_check_ = absl::InfiniteFuture();  // nothing that waits is due before
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_COORDINATOR_ROLE_H_
