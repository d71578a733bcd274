// How buckets are carried out: the executor, and the runner of the locked schedule on top of it.
#ifndef RONDA_RUNTIME_ENGINE_EXECUTOR_H_
#define RONDA_RUNTIME_ENGINE_EXECUTOR_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/collectives/adasum.h"
#include "runtime/collectives/communicator.h"
#include "runtime/control/control_plane.h"
#include "runtime/engine/coordinator_role.h"
#include "runtime/engine/data_plane.h"
#include "runtime/engine/device/device_lane.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/operations.h"
#include "runtime/engine/progress_engine.h"
#include "runtime/engine/submission.h"
#include "runtime/engine/tensor_log.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/monitor/statistics.h"
#include "runtime/negotiation/messages.h"
#include "runtime/schedule/locked_schedule.h"

namespace ronda {

// Tensors in the host's memory: everything has happened when a call returns.
//
// Thread-compatible. The communicator is not owned.
class HostPlane : public DataPlane {
 public:
  explicit HostPlane(Communicator* communicator) : communicator_(communicator) {}

  Communicator& communicator() override { return *communicator_; }
  AdasumOps& adasum_ops() override { return adasum_ops_; }
  absl::StatusOr<ResultData> Allocate(const TensorRequest& request, size_t bytes) override;
  absl::StatusOr<ResultData> AllocateZeros(absl::string_view tensor, size_t bytes) override;
  absl::Status Copy(void* dst, const void* src, size_t bytes) override;
  absl::Status PrepareOverflow(size_t tensors) override;
  absl::StatusOr<uint8_t*> FindNonFinite(absl::Span<const TensorView> tensors, DType dtype) override;
  absl::Status DeliverOverflow(const uint8_t* flags, absl::Span<OperationResult> results) override;

 private:
  Communicator* const communicator_;
  HostAdasumOps adasum_ops_;
  std::vector<uint8_t> flags_;
};

// Carries out buckets: looks up the tensors, has the collective run, completes the handles. The calls of each operation
// are in Reductions and Exchanges; joins and process sets, which move no data, are settled here.
//
// Tensors in the memory of a device have a lane of their own (device/device_lane.h), which all ranks make when they
// come to the first bucket of such: as every rank executes every bucket, that is the same point for all. Their handles
// complete when the bucket has been given to the device, with a DeviceCompletion that tells of the rest.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class Executor {
 public:
  // Not owned; all must outlive the executor.
  struct Parts {
    Communicator* communicator;
    TensorQueue* queue;
    ProcessSets* process_sets;
    TensorLog* log;
    DeviceLanes* devices;
  };

  // `limits` hold for operations that bring none of their own.
  Executor(const Parts& parts, WaitLimits limits);

  // The job's limits, once they are known.
  void set_limits(WaitLimits limits) { limits_ = limits; }
  const WaitLimits& limits() const { return limits_; }

  // Every rank executes every bucket, also those of process sets that it is not in.
  //
  // Errors: the communicator's; INTERNAL if a tensor was not submitted here; RESOURCE_EXHAUSTED if there is no memory
  // for a result. The handles of the bucket are then still in the queue, and the job cannot go on.
  absl::Status Execute(const AgreedBucket& bucket);

  // Executes a bucket of all ranks if they all approve; otherwise nothing has happened, and the handles are still
  // in the queue.
  // Errors: the communicator's; RESOURCE_EXHAUSTED as Execute.
  struct Vote {
    Ballot::Vote own = Ballot::Vote::kApprove;
    // This rank's submissions, one a response. A rank that vetoes need not have submitted the tensors.
    absl::Span<const TensorEntry* const> entries;
    absl::FunctionRef<void()> when_late;  // called once if this rank waits for longer than the warning time
  };
  // A bucket whose votes the device has still to count. Its tensors are in the queue; their handles are complete if it
  // has been launched ahead of the decision.
  struct OpenBucket {
    std::vector<const TensorEntry*> entries;  // this rank's; none if it has vetoed
    std::vector<OperationResult> results;
    std::shared_ptr<const OpenVote> vote;
    std::shared_ptr<DeviceCompletion> completion;
    enum class Handles : uint8_t { kWait, kAreComplete } handles = Handles::kWait;
  };
  struct Voted {
    Ballot::Result result = Ballot::Result::kCarriedOut;
    OpenBucket open;  // of kOpen
  };
  absl::StatusOr<Voted> ExecuteIfAllApprove(const AgreedBucket& bucket, const Vote& vote);

  // All ranks have approved: the handles complete. Errors: the device's.
  absl::Status Complete(OpenBucket& open);

  // One rank has not: the tensors stay in the queue, to be carried out in other buckets.
  static void NoteVeto(const OpenBucket& open);

  // Whether the tensor may be given to the device, or to the negotiation, as far as the trainer's streams are concerned
  // (UndecidedBuckets).
  bool MayGive(const TensorEntry& entry) const {
    return entry.ready == nullptr || undecided_.MayAwait(entry.ready->behind());
  }

  // The tensor is not carried out: its handle gets `status`, which names it.
  // Errors: `status`, for the job, if a stream of the trainer's has been told to wait for the tensor's bucket; the
  // device's.
  absl::Status Refuse(const TensorEntry* entry, const absl::Status& status);

  // From the first to the second the device is asked often.
  // REQUIRES: some bucket is open.
  void BeginDemand() { parts_.devices->lane()->attention().Begin(); }
  void EndDemand() { parts_.devices->lane()->attention().End(); }

 private:
  // The operations on tensors in one memory.
  struct Lane {
    Lane(DataPlane* plane, Communicator* host) : reductions(plane), exchanges(plane, host) {}

    Reductions reductions;
    Exchanges exchanges;
  };

  void ForgetEntries();
  // Looks up this rank's submissions, one a response.
  absl::Status FindEntries(const AgreedBucket& bucket);
  BucketRun MakeRun(const AgreedBucket& bucket, const Group& group);
  absl::Status CarryAndComplete(const BucketRun& run);
  absl::Status CarryOnDevice(const BucketRun& run);
  // Makes the device's lane if there is none. kRefused: some rank cannot, and the bucket's tensors have failed.
  enum class Opened { kYes, kRefused };
  absl::StatusOr<Opened> OpenDevice(const BucketRun& run);
  absl::Status GiveToDevice(const BucketRun& run);
  absl::Status FinishOnDevice(const BucketRun& run);
  absl::Status RefuseAll(const BucketRun& run, const absl::Status& status);
  // Whether the handles of a bucket with an open vote complete now.
  bool CompletesAtLaunch(const BucketRun& run) const;
  absl::Status CompleteAll(absl::Span<const TensorEntry* const> entries, absl::Span<OperationResult> results);
  // A tensor of a bucket whose vote was lost has been carried out, or refused.
  absl::Status NoteAgain(const std::shared_ptr<DeviceCompletion>& undecided);
  absl::Status Carry(const BucketRun& run, Lane& lane);
  // A vote on its own, before the bucket: over the host's communicator, whose outcome is known at once.
  absl::Status VoteFirst(const BucketRun& run) { return parts_.communicator->Barrier(run.info); }
  absl::Status SettleMembership(const BucketRun& run);
  void DropSet(ProcessSetId process_set);

  const Parts parts_;
  WaitLimits limits_;
  HostPlane host_plane_;
  Lane host_;
  std::optional<Lane> device_;
  UndecidedBuckets undecided_;
  // Of the bucket that is carried out; kept for their memory.
  std::vector<const TensorEntry*> entries_;
  std::vector<OperationResult> results_;
  LastPoints ready_;
  std::string label_;
  OpenBucket open_;  // between FinishOnDevice and the return of ExecuteIfAllApprove
};

// Carries out a rank's locked schedule: has the executor carry out the bucket that is next, with this rank's vote,
// tells the other ranks when this one calls the schedule off, and keeps the tensors of each bucket at hand.
// LockedSchedule says which bucket is next, and when to unlock.
//
// Votes on tensors in the memory of devices are open for a while, in which this rank goes on. It never sleeps for them:
// the watch of the device rings the bell. A bucket whose tensors may be behind one that is undecided (UndecidedBuckets)
// is not entered before that is known.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class ScheduleRunner {
 public:
  // None is owned.
  struct Parts {
    ControlPlane* control;
    const ProgressEngine* progress;
    const TensorQueue* queue;
    Executor* executor;
    CoordinatorRole* role;  // nullptr but on the coordinator
    TensorLog* log;
    Counters* counters;
  };

  explicit ScheduleRunner(const Parts& parts) : parts_(parts) {}

  void Begin(ResolvedSchedule resolved, absl::Time now) { schedule_.Begin(std::move(resolved), now); }
  bool locked() const { return schedule_.locked(); }
  // If a schedule is locked, it is to be unlocked.
  void RequestUnlock() { schedule_.RequestUnlock(); }

  // Whether the schedule that was locked last did not fit this rank's program.
  bool is_misfit() const { return schedule_.has_lost_patience(); }

  // Whether RunNext has something to do.
  bool ready() const {
    return locked() && (IsOpenOver() || schedule_.HasToUnlock() || Next() != nullptr || IsStuckBehindVeto());
  }

  // Has the device asked often while something here waits for a vote.
  void NoteDemand();

  // Takes note of Inbox::called_off. Whether the locked schedule is to be unlocked for it.
  bool NoteCallOff(uint64_t schedule);

  // If this is a tensor of the locked schedule, known from an earlier round, the schedule takes note of it. False:
  // nothing has happened.
  bool SubmitAgain(const TensorEntry& entry);

  // A tensor is submitted to the schedule; `id` is that of its request in the response cache, if it is there.
  // REQUIRES: locked().
  void Submit(TensorEntry& entry, std::optional<CacheId> id);

  // Wants to unlock if submissions have waited for too long without a bucket being ready.
  // REQUIRES: locked().
  void CheckPatience(absl::Time now);

  // Carries out, or votes on, the next bucket; or takes note of the outcome of those before. kNotReady: there was
  // nothing to do. kUnlocked: the schedule is not locked any more; the caller submits all that is in flight to the
  // negotiation once more.
  // REQUIRES: locked().
  // Errors: the executor's.
  enum class Outcome { kNotReady, kCarriedOut, kUnlocked };
  absl::StatusOr<Outcome> RunNext(absl::Time now);

  // When to call RunNext again though nothing has been submitted.
  // REQUIRES: locked().
  absl::Time NextDeadline() const { return std::min(schedule_.next_look(), OpenDeadline()); }

 private:
  // The next bucket, if it may be entered now.
  const AgreedBucket* Next() const;
  bool MayGive(const AgreedBucket& bucket) const;
  // Whether the next bucket is behind one whose vote was lost in an earlier schedule. The tensors of that may be later
  // in this one: the negotiation has to carry them out.
  bool IsStuckBehindVeto() const;
  // REQUIRES: all tensors of the next bucket, `bucket`, have been submitted here.
  absl::Span<const TensorEntry* const> EntriesOfNext(const AgreedBucket& bucket) const;

  absl::StatusOr<Executor::Voted> Execute(const AgreedBucket& bucket);
  absl::StatusOr<Outcome> Enter(const AgreedBucket& bucket, absl::Time now);
  void NoteCarriedOut(uint64_t rounds_before, absl::Time now);

  // Takes note of the votes that are known by now.
  absl::Status SettleOpen(absl::Time now);
  // Whether the first open vote is known.
  bool IsOpenOver() const;
  // When the first open vote is late.
  absl::Time OpenDeadline() const;

  void CallOff();
  Outcome Unlock(absl::Time now);

  const Parts parts_;
  LockedSchedule schedule_;
  // By position: the tensor that was submitted last for it, in this schedule or an earlier one. The tensors of a bucket
  // that may be entered are in flight.
  std::vector<std::vector<const TensorEntry*>> entries_;
  std::deque<Executor::OpenBucket> open_;  // in the order in which they were entered
  bool demands_ = false;                   // that the device be asked often
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_EXECUTOR_H_
