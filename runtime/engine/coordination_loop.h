// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_COORDINATION_LOOP_H_
#define RONDA_RUNTIME_ENGINE_COORDINATION_LOOP_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/base/peer.h"
#include "runtime/collectives/transport.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/coordinator_role.h"
#include "runtime/engine/device/device_lane.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/list_runner.h"
#include "runtime/engine/progress_engine.h"
#include "runtime/engine/step_runner.h"
#include "runtime/engine/tensor_log.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/monitor/rank_meter.h"
#include "runtime/monitor/rank_request.h"
#include "runtime/negotiation/reporter.h"

namespace ronda {

// Runs the coordination loop of one rank, one step per call. A step passes submissions from the queue to the
// negotiation, or carries out the next bucket of the coordinator's response list or of the locked schedule. On rank 0,
// a step also makes the coordinator's decisions. While a schedule is locked, the ranks send no control messages.
//
// An error of a step ends the job. GuardedSteps reports the error to the other ranks.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class CoordinationLoop {
 public:
  // The loop owns none of these objects; all must outlive the loop.
  struct Parts {
    const Topology* topology;
    const Tunables* tunables;
    Clock* clock;
    const Transport* transport;
    const ProgressEngine* progress;
    const CallbackThread* callbacks;
    ProcessSets* process_sets;
    RankMeter* meter;
    TensorLog* log;
    TensorQueue* queue;
    DeviceLanes* devices;
    const std::atomic<bool>* shutdown_requested;
    // Carries out a request that a user has sent to this rank with rondactl.
    std::function<absl::StatusOr<std::string>(const TimelineRequest&)> carry_out_request;
  };

  explicit CoordinationLoop(Parts parts);

  using Progress = ProgressEngine::Steps::Progress;

  // Makes the next step that is possible. Returns kOver when every rank has shut down.
  absl::StatusOr<Progress> Step();

  // Passes the submissions that are new at the time `now` to the locked schedule. Does nothing if the next Step has
  // other work to do. Returns kSome if there are new submissions and all are flags, which the rank sends with its vote
  // on the next bucket.
  Progress OnSubmission(absl::Time now);

  // Returns the latest time at which Step must be called again, even if the rank submits nothing and receives no
  // message.
  absl::Time NextDeadline() const;

 private:
  absl::Status ReportFresh(absl::Time now);
  // NextLookAtProgram returns when to call LookAtProgram, which checks whether the program waits. The coordinator needs
  // this to find ranks that wait for each other.
  absl::Time NextLookAtProgram() const;
  void LookAtProgram(absl::Time now);
  // Passes the new submissions on, and returns their number.
  size_t HandOverFresh(absl::Time now);
  void ShutDownIfDone(absl::Time now);
  // Reports that this rank will submit nothing more. Does so only once, and only after all submissions have been
  // reported.
  void Drain();
  void Report(TensorEntry& entry);
  // Reports the tensors in flight again, because a schedule has begun or has been unlocked.
  void ReportAnew();
  void ReportWhatWaited(absl::Time now);

  // Returns kNone if no bucket of the locked schedule is ready.
  absl::StatusOr<Progress> FollowSchedule(absl::Time now);
  absl::StatusOr<Progress> FollowList();
  void ApplySettings(const JobSettings& settings);

  absl::StatusOr<Progress> Listen(absl::Time now);
  absl::Status Coordinate(absl::Time now);

  ControlPlane& control() const { return *parts_.transport->control; }

  const Parts parts_;
  absl::Duration cycle_time_;  // as the coordinator sets it, once known
  AnswerWatch answers_;
  Reporter reporter_;
  Executor executor_;
  std::unique_ptr<CoordinatorRole> role_;  // on the coordinator
  StepRunner schedule_;
  ListRunner lists_;
  bool has_started_ = false;
  absl::Time look_at_program_ = absl::InfiniteFuture();
  std::vector<ControlMessage> reports_;  // on the coordinator: received, not processed
  enum class Departure { kNotYet, kDraining, kReported } departure_ = Departure::kNotYet;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_COORDINATION_LOOP_H_
