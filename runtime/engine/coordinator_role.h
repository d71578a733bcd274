// SPDX-License-Identifier: Apache-2.0

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

// The coordinator's part, which rank 0 plays besides its own work as a rank. It turns the ranks' reports into response
// lists. It also looks for tensors that some rank does not submit, and for ranks that wait for each other. It connects
// the negotiator, the stall inspector, the deadlock detector, autotune and the codec. It does no I/O except the log
// and, on request, a recording of the negotiation and a log of autotune.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class CoordinatorRole {
 public:
  // The flight recorders in `flights` tell the last activity of late ranks. `log` records which rank is ready for which
  // tensor; it is not owned and may be nullptr.
  CoordinatorRole(const Tunables& tunables, int world_size, std::shared_ptr<FlightBoard> flights, TensorLog* log);

  // Call first: begins the files that the tunables request.
  // Errors: the operating system's error, with the path.
  absl::Status Start();

  // Processes the reports that have arrived.
  // Errors: INVALID_ARGUMENT that names the rank, if a report is damaged.
  absl::Status Receive(const std::vector<ControlMessage>& reports, absl::Time now);

  // Reports stalls that have lasted long enough. Warnings go to the log, and tensors that have reached their deadline
  // fail.
  // Errors: DEADLINE_EXCEEDED if ranks wait in shutdown for ranks that do not shut down.
  absl::Status Inspect(absl::Time now);

  // Whether a schedule that the coordinator has sent is locked. It stays locked until all ranks have unlocked it, and
  // until then reports can wait.
  bool locked() const { return negotiator_.locked(); }

  // Returns the encoded list of all decisions since the last call; empty if nothing was decided. The first list is
  // never empty, because it carries the job's settings.
  std::string TakeBroadcast(absl::Time now);

  // The ranks have carried out one more round of the locked schedule.
  void EndRound(absl::Time now);

  // Whether to unlock the schedule because autotune wants to try other settings.
  bool wants_to_unlock() const { return tuning_ != nullptr && tuning_->wants_change(); }

  // The ranks have unlocked the schedule, after it was carried out `rounds` times.
  void Unlock(ScheduleProgress progress, absl::Time now);

  // When to call Inspect again at the latest.
  absl::Time next_inspection() const { return next_inspection_; }

 private:
  // Adds to the recording, if one is written. An error ends the recording, not the job.
  void Record(const NegotiationEvent& event);
  // Does nothing if the job wants no warnings.
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

// The limits in a job's tunables.
WaitLimits LimitsOf(const Tunables& tunables);

// Watches whether the coordinator answers this rank's reports. While the coordinator answers any report, it is alive,
// and the coordinator itself fails tensors that wait too long.
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

  // The coordinator's last list has been carried out. While this rank was in collectives it received nothing, and the
  // coordinator sent nothing.
  void Heard(absl::Time now);

  // Errors: DEADLINE_EXCEEDED, with the coordinator's last activity, if it has not answered for too long.
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
  absl::Time next_check_ = absl::InfiniteFuture();  // no answer is due before
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_COORDINATOR_ROLE_H_
