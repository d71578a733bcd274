// SPDX-License-Identifier: Apache-2.0

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
#include "runtime/negotiation/locked_schedule.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// Tensors in the host's memory: when a call returns, its work is done.
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

// Carries out buckets: looks up the tensors, runs the collective, completes the handles. Reductions and Exchanges make
// the calls of each operation. Joins and process sets move no data; the executor handles them itself.
//
// Tensors in the memory of a device have their own lane (device/device_lane.h). All ranks make it when they come to the
// first bucket with such tensors. Every rank executes every bucket, so that is the same point for all ranks. The
// handles complete when the bucket has been given to the device; their DeviceCompletion reports the rest.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class Executor {
 public:
  // None is owned; all must outlive the executor.
  struct Parts {
    Communicator* communicator;
    TensorQueue* queue;
    ProcessSets* process_sets;
    TensorLog* log;
    DeviceLanes* devices;
  };

  // `limits` apply to operations that have no limits themselves.
  Executor(const Parts& parts, WaitLimits limits);

  // The job's limits, once they are known.
  void set_limits(WaitLimits limits) { limits_ = limits; }
  const WaitLimits& limits() const { return limits_; }

  // Every rank executes every bucket, even a bucket of a process set that the rank is not in.
  //
  // Errors: the communicator's; INTERNAL if a tensor was not submitted here; RESOURCE_EXHAUSTED if there is no memory
  // for a result. After an error the handles of the bucket are still in the queue, and the job cannot continue.
  absl::Status Execute(const AgreedBucket& bucket);

  // Executes a bucket of all ranks if all ranks approve. Otherwise nothing has happened, and the handles are still in
  // the queue.
  // Errors: the communicator's; RESOURCE_EXHAUSTED as for Execute.
  struct Vote {
    Ballot::Vote own = Ballot::Vote::kApprove;
    // This rank's submissions, one per response. A rank that vetoes need not have submitted the tensors.
    absl::Span<const TensorEntry* const> entries;
    absl::FunctionRef<void()> when_late;  // called once if this rank waits for longer than the warning time
  };
  // A bucket whose votes the device has not counted yet. Its tensors are in the queue. Their handles are complete if
  // the bucket was launched before the decision.
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

  // All ranks have approved: completes the handles. Errors: the device's.
  absl::Status Complete(OpenBucket& open);

  // A rank has vetoed: the tensors stay in the queue and are carried out in other buckets later.
  static void NoteVeto(const OpenBucket& open);

  // Whether the tensor may be given to the device or to the negotiation. It may not while a trainer's stream may hold
  // it back (UndecidedBuckets).
  bool MayGive(const TensorEntry& entry) const {
    return entry.ready == nullptr || undecided_.MayAwait(entry.ready->behind());
  }

  // The tensor is not carried out: its handle gets `status`, which names the tensor.
  // Errors: `status`, for the whole job, if a stream of the trainer already waits for the tensor's bucket; the
  // device's.
  absl::Status Refuse(const TensorEntry* entry, const absl::Status& status);

  // Between these two calls the device is polled often.
  // REQUIRES: some bucket is open.
  void BeginDemand() { parts_.devices->lane()->attention().Begin(); }
  void EndDemand() { parts_.devices->lane()->attention().End(); }

 private:
  // The operations on tensors in one memory: the host's or the device's.
  struct Lane {
    Lane(DataPlane* plane, Communicator* host) : reductions(plane), exchanges(plane, host) {}

    Reductions reductions;
    Exchanges exchanges;
  };

  void ForgetEntries();
  // Looks up this rank's submissions, one per response.
  absl::Status FindEntries(const AgreedBucket& bucket);
  BucketRun MakeRun(const AgreedBucket& bucket, const Group& group);
  absl::Status CarryAndComplete(const BucketRun& run);
  absl::Status CarryOnDevice(const BucketRun& run);
  // Makes the device's lane if the rank has none. kRefused: some rank cannot make one, and the bucket's tensors have
  // failed.
  enum class Opened { kYes, kRefused };
  absl::StatusOr<Opened> OpenDevice(const BucketRun& run);
  absl::Status GiveToDevice(const BucketRun& run);
  absl::Status FinishOnDevice(const BucketRun& run);
  absl::Status RefuseAll(const BucketRun& run, const absl::Status& status);
  // Whether the handles of a bucket with an open vote complete now.
  bool CompletesAtLaunch(const BucketRun& run) const;
  absl::Status CompleteAll(absl::Span<const TensorEntry* const> entries, absl::Span<OperationResult> results);
  // A tensor of a bucket whose vote was lost has now been carried out or refused.
  absl::Status NoteAgain(const std::shared_ptr<DeviceCompletion>& undecided);
  absl::Status Carry(const BucketRun& run, Lane& lane);
  // A separate vote before the bucket, over the host's communicator. Its outcome is known at once.
  absl::Status VoteFirst(const BucketRun& run) { return parts_.communicator->Barrier(run.info); }
  absl::Status SettleMembership(const BucketRun& run);
  void DropSet(ProcessSetId process_set);

  const Parts parts_;
  WaitLimits limits_;
  HostPlane host_plane_;
  Lane host_;
  std::optional<Lane> device_;
  UndecidedBuckets undecided_;
  // Of the current bucket; kept for their memory.
  std::vector<const TensorEntry*> entries_;
  std::vector<OperationResult> results_;
  LastPoints ready_;
  std::string label_;
  OpenBucket open_;  // between FinishOnDevice and the return of ExecuteIfAllApprove
};

// Carries out a rank's locked schedule. It lets the executor carry out the next bucket with this rank's vote, notifies
// the other ranks when this rank calls the schedule off, and remembers the tensors of each bucket. LockedSchedule
// decides which bucket is next, and when to unlock.
//
// A vote on tensors in the memory of a device is open for a while. This rank goes on meanwhile and never sleeps for the
// vote: the watch of the device rings the doorbell. A bucket may hold tensors that are behind an undecided bucket
// (UndecidedBuckets). This rank enters it only after that bucket is decided.
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
    CoordinatorRole* role;  // nullptr except on the coordinator
    TensorLog* log;
    Counters* counters;
  };

  explicit ScheduleRunner(const Parts& parts) : parts_(parts) {}

  void Begin(ResolvedSchedule resolved, absl::Time now) { schedule_.Begin(std::move(resolved), now); }
  bool locked() const { return schedule_.locked(); }
  // Requests to unlock the schedule, if one is locked.
  void RequestUnlock() { schedule_.RequestUnlock(); }

  // Whether the schedule that was locked last did not fit this rank's program.
  bool is_misfit() const { return schedule_.has_lost_patience(); }

  // Whether RunNext has something to do.
  bool ready() const {
    return locked() && (IsOpenOver() || schedule_.HasToUnlock() || Next() != nullptr || IsStuckBehindVeto());
  }

  // Polls the device often while something here waits for a vote.
  void NoteDemand();

  // Records Inbox::called_off. Returns whether the locked schedule has to be unlocked for it.
  bool NoteCallOff(uint64_t schedule);

  // If the tensor is one of the locked schedule, known from an earlier round, submits it to the schedule. Otherwise
  // returns false, and nothing has happened.
  bool SubmitAgain(const TensorEntry& entry);

  // Submits a tensor to the schedule; `id` is the id of its request in the response cache, if it has one.
  // REQUIRES: locked().
  void Submit(TensorEntry& entry, std::optional<CacheId> id);

  // Requests to unlock if submissions have waited too long because no bucket is ready.
  // REQUIRES: locked().
  void CheckPatience(absl::Time now);

  // Carries out, or votes on, the next bucket; or processes the outcome of earlier buckets. kNotReady: nothing could be
  // done. kUnlocked: the schedule is no longer locked; the caller submits everything in flight to the negotiation
  // again.
  // REQUIRES: locked().
  // Errors: the executor's.
  enum class Outcome { kNotReady, kCarriedOut, kUnlocked };
  absl::StatusOr<Outcome> RunNext(absl::Time now);

  // When to call RunNext again even if nothing has been submitted.
  // REQUIRES: locked().
  absl::Time NextDeadline() const { return std::min(schedule_.next_look(), OpenDeadline()); }

 private:
  // The next bucket, if it may be entered now.
  const AgreedBucket* Next() const;
  bool MayGive(const AgreedBucket& bucket) const;
  // Whether the next bucket is behind a bucket whose vote was lost in an earlier schedule. The tensors of that bucket
  // may come later in this schedule, so the negotiation has to carry them out.
  bool IsStuckBehindVeto() const;
  // REQUIRES: all tensors of the next bucket, `bucket`, have been submitted here.
  absl::Span<const TensorEntry* const> EntriesOfNext(const AgreedBucket& bucket) const;

  absl::StatusOr<Executor::Voted> Execute(const AgreedBucket& bucket);
  absl::StatusOr<Outcome> Enter(const AgreedBucket& bucket, absl::Time now);
  void NoteCarriedOut(uint64_t rounds_before, absl::Time now);

  // Processes the votes that are known by now.
  absl::Status SettleOpen(absl::Time now);
  // Whether the oldest open vote is known.
  bool IsOpenOver() const;
  // When the oldest open vote is late.
  absl::Time OpenDeadline() const;

  void CallOff();
  Outcome Unlock(absl::Time now);

  const Parts parts_;
  LockedSchedule schedule_;
  // By position: the tensor that was last submitted for it, in this schedule or an earlier one. The tensors of a bucket
  // that may be entered are in flight.
  std::vector<std::vector<const TensorEntry*>> entries_;
  std::deque<Executor::OpenBucket> open_;  // in the order of entry
  bool demands_ = false;                   // whether the device is polled often
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_EXECUTOR_H_
