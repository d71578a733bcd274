// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_EXECUTOR_H_
#define RONDA_RUNTIME_ENGINE_EXECUTOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/collectives/adasum.h"
#include "runtime/collectives/communicator.h"
#include "runtime/engine/data_plane.h"
#include "runtime/engine/device/agreed_places.h"
#include "runtime/engine/device/device_lane.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/operations.h"
#include "runtime/engine/submission.h"
#include "runtime/engine/tensor_log.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/negotiation/messages.h"
#include "runtime/step/vote.h"

namespace ronda {

// The DataPlane for tensors in host memory. Each call returns when its work is done.
//
// Thread-compatible. HostPlane does not own the communicator.
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

// Carries out buckets that the ranks have agreed on. For each bucket, the executor finds the tensors, runs the
// collective, and completes the handles. Reductions and Exchanges call the communicator for each operation. Joins and
// changes of process sets move no data, so the executor handles them itself.
//
// Tensors in device memory have a separate lane (device/device_lane.h). All ranks create it when they reach the first
// bucket with such tensors. Every rank executes every bucket, so all ranks create the lane at the same point. The
// handles complete when the bucket has been enqueued on the device. Later, the DeviceCompletion of a handle reports
// that the device has done the work. Enqueued work cannot be cancelled. So if a bucket has a vote, the ranks vote over
// the host communicator before they enqueue the bucket.
//
// Thread-compatible: used by the progress thread (progress_engine.h).
class Executor {
 public:
  // The executor owns none of these objects; all must outlive the executor.
  struct Parts {
    Communicator* communicator;
    TensorQueue* queue;
    ProcessSets* process_sets;
    TensorLog* log;
    DeviceLanes* devices;
  };

  // `limits` apply to operations without limits of their own.
  Executor(const Parts& parts, WaitLimits limits);

  // Must be called as soon as the job's limits are known.
  void set_limits(WaitLimits limits) { limits_ = limits; }
  const WaitLimits& limits() const { return limits_; }

  // Executes a bucket. Every rank must execute every bucket, even a bucket of a process set to which the rank does not
  // belong.
  //
  // Errors: the communicator's errors; INTERNAL if this rank has not submitted a tensor of the bucket;
  // RESOURCE_EXHAUSTED if there is no memory for a result. After an error the handles of the bucket are still in the
  // queue, and the job cannot continue.
  absl::Status Execute(const AgreedBucket& bucket);

  // Lets the ranks vote on a bucket in which all ranks take part, and executes the bucket if all of them approve.
  // Returns the flags that the ranks sent with their votes. If a rank vetoes, nothing is executed, and the handles stay
  // in the queue.
  // Errors: the communicator's errors; RESOURCE_EXHAUSTED as for Execute.
  struct Vote {
    Ballot::Vote own = Ballot::Vote::kApprove;
    // This rank's submissions, one per response. A rank that vetoes need not have submitted the tensors.
    absl::Span<const TensorEntry* const> entries;
    Flags flags = {};                     // of this rank
    absl::FunctionRef<void()> when_late;  // called once if this rank waits for longer than the warning time
  };
  struct Decision {
    Ballot::Result result = Ballot::Result::kCarriedOut;
    Flags flags = {};  // of all ranks
  };
  absl::StatusOr<Decision> ExecuteIfAllApprove(const AgreedBucket& bucket, const Vote& vote);

 private:
  // The operations on tensors in one kind of memory, host or device.
  struct Lane {
    Lane(DataPlane* plane, Communicator* host) : reductions(plane), exchanges(plane, host) {}

    Reductions reductions;
    Exchanges exchanges;
  };

  void ForgetEntries();
  // Finds this rank's submissions for the bucket, one per response.
  absl::Status FindEntries(const AgreedBucket& bucket);
  BucketRun MakeRun(const AgreedBucket& bucket, const Group& group);
  // Returns this rank's vote on how the bucket lies in memory; kAny if the device's lane cannot reduce it in place.
  BucketLayout OwnLayout(const BucketRun& run) const;
  // Returns the bucket as the vote has decided, which all ranks have approved.
  absl::StatusOr<BucketRun> Decided(const BucketRun& run);
  absl::Status CarryAndComplete(const BucketRun& run);
  // Returns kFailed if a rank has no device for the bucket's tensors; the handles then contain the reason.
  absl::StatusOr<BucketOutcome> Carry(const BucketRun& run);
  // Creates the device's lane if the rank has no lane.
  absl::StatusOr<BucketOutcome> CarryOnDevice(const BucketRun& run);
  absl::Status GiveToDevice(const BucketRun& run);
  void RefuseAll(const BucketRun& run, const absl::Status& status);
  absl::Status RunOn(Lane& lane, const BucketRun& run);
  absl::Status SettleMembership(const BucketRun& run);
  void DropSet(ProcessSetId process_set);

  const Parts parts_;
  WaitLimits limits_;
  HostPlane host_plane_;
  Lane host_;
  std::optional<Lane> device_;
  AgreedPlaces places_;
  // Data of the current bucket. The vectors are members so that their memory is reused.
  std::vector<const TensorEntry*> entries_;
  std::vector<OperationResult> results_;
  LastPoints ready_;
  std::string label_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_EXECUTOR_H_
