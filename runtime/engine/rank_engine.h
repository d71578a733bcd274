#ifndef RONDA_RUNTIME_ENGINE_RANK_ENGINE_H_
#define RONDA_RUNTIME_ENGINE_RANK_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/collectives/transport.h"
#include "runtime/control/topology.h"
#include "runtime/engine/answer_watch.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/coordinator_role.h"
#include "runtime/engine/device/device_lanes.h"
#include "runtime/engine/engine_driver.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/process_sets.h"
#include "runtime/engine/schedule_runner.h"
#include "runtime/engine/statistics.h"
#include "runtime/engine/tensor_log.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/negotiation/reporter.h"

namespace ronda {

// A rank's part in the job, step by step: moves submissions to the negotiation, and its responses to the executor.
// While a schedule is locked, submissions go to the schedule instead, and nothing is sent.
//
// Thread-compatible: used by the thread that has the turn (engine_driver.h). Only statistics() is for any thread.
class RankEngine {
 public:
  struct Options {
    Tunables tunables;
    Clock* clock;          // not owned
    std::string identity;  // "host h, pid 42"
  };

  // None is owned; all must outlive the engine.
  struct Parts {
    const Topology* topology;
    Transport* transport;
    EngineDriver* driver;
    const CallbackThread* callbacks;
    ProcessSets* process_sets;
    TensorQueue* queue;
    const std::atomic<bool>* shutdown_requested;
    DeviceLanes* devices;
    TensorLog* log;
  };

  RankEngine(Options options, const Parts& parts);

  using Progress = EngineDriver::Engine::Progress;

  // Does the next thing that there is to do; kOver once every rank has left.
  // Errors: the job's failure, or one that is to become it.
  absl::StatusOr<Progress> Step();

  // Tells the locked schedule, if there is one, what has been submitted, the last of it at `now`. Otherwise, and if a
  // bucket is ready then, Step is to be called.
  void TakeNote(absl::Time now);

  // When Step is to be called again though nothing has come from outside.
  absl::Time NextDeadline() const;

  // One of Abseil's hash tables that found no memory to grow cannot be destroyed. The state that has such tables is
  // left where it is; the job is over, and needs it no more.
  void AbandonState();

  Statistics statistics() const { return Read(counters_); }

 private:
  // A response list that is being carried out.
  struct Orders {
    Reporter::Work work;
    size_t next_bucket = 0;

    bool has_buckets() const { return next_bucket < work.buckets.size(); }
  };

  absl::Status ReportFresh(absl::Time now);
  void TakeFresh(absl::Time now);
  void LeaveIfDone(absl::Time now);
  void Report(const TensorEntry& entry);
  // A schedule has begun or was left: what is in flight is submitted to the reporter once more.
  void ReportAnew();
  void ReportWhatWaited(absl::Time now);

  // kNone if no bucket of the locked schedule is ready.
  absl::StatusOr<Progress> FollowSchedule(absl::Time now);

  absl::StatusOr<Progress> Listen(absl::Time now);
  absl::Status Coordinate(absl::Time now);

  absl::StatusOr<Progress> CarryOutNext();
  absl::Status Begin(const std::string& list);
  void ApplySettings(const JobSettings& settings);
  void RecordOrders(const std::vector<AgreedBucket>& buckets);
  absl::Status Answer(const TensorError& error);
  absl::StatusOr<Progress> Conclude();

  const Options options_;
  const Parts parts_;
  ControlPlane* const control_;
  Counters counters_;
  absl::Duration cycle_time_;  // rank 0's, once it is known
  AnswerWatch answers_;
  std::unique_ptr<Reporter> reporter_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<CoordinatorRole> role_;  // on rank 0
  ScheduleRunner schedule_;
  bool started_ = false;
  std::vector<ControlMessage> reports_;  // on rank 0: received, not taken
  std::deque<std::string> lists_;        // received, not begun
  std::optional<Orders> orders_;         // begun, not finished
  enum class Leaving { kNo, kReported } leaving_ = Leaving::kNo;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_RANK_ENGINE_H_
