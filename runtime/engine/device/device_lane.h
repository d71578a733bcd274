// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_LANE_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_LANE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/calls.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"
#include "runtime/engine/data_plane.h"
#include "runtime/engine/device/caller_lane.h"
#include "runtime/engine/device/device_adasum_ops.h"
#include "runtime/engine/device/device_blocks.h"
#include "runtime/engine/device/device_completion.h"
#include "runtime/engine/device/device_watch.h"
#include "runtime/engine/device/lane_memory.h"
#include "runtime/engine/device/rank_device.h"
#include "runtime/engine/device/stream_timer.h"
#include "runtime/monitor/timeline/timeline.h"

namespace ronda {

// Carries out buckets of tensors in device memory. The lane has one stream, which waits for the streams that have
// written the tensors. Each call enqueues work on the lane's stream and returns.
//
//   lane->Begin({.label = "conv1/weight", ...}, ready_events);
//   ... calls to the communicator and the DataPlane ...
//   lane->Finish();
//
// The watch observes the bucket from Begin on, because even the thread that enqueues the bucket may hang. After an
// error the job is over, and the watch settles the bucket when the lane is closed.
//
// Thread-compatible: used by the progress thread (progress_engine.h), except idle().
class DeviceLane : public DataPlane {
 public:
  struct Options {
    std::shared_ptr<Device> device;
    std::unique_ptr<DeviceStream> stream;
    std::unique_ptr<StreamTimer> timer;  // of that stream
    DeviceTransport transport;           // on it
    std::shared_ptr<CallbackThread> callbacks;
    std::shared_ptr<ProgressEngine> progress;
    DeviceWatch::Options watch;  // without the fields of the transport
  };

  // Errors: RESOURCE_EXHAUSTED if the system cannot create a thread.
  static absl::StatusOr<std::unique_ptr<DeviceLane>> Create(Options options);
  ~DeviceLane() override;

  // Begins a bucket, whose work waits for `points`. Finish or Drop ends the bucket.
  struct Operation {
    absl::string_view label;  // its name, for messages
    OpType op = OpType::kAllreduce;
    uint64_t bytes = 0;
    WaitLimits limits;
  };
  absl::Status Begin(const Operation& operation, absl::Span<const ReadyPoint* const> points);

  // Must be called when the whole bucket is on the stream. Returns the bucket's completion.
  absl::StatusOr<std::shared_ptr<DeviceCompletion>> Finish();

  Device& device() const { return *device_; }
  const ronda_cuda_plugin& plugin() const { return device_->plugin(); }

  // Must be called instead of Finish if no thread waits for the bucket.
  void Drop();

  // Whether the device has carried out all buckets.
  bool idle() const { return watch_->idle(); }

  // No bucket may begin after Close. Buckets in flight fail with `status`, or with CANCELLED if `status` is OK. If
  // `status` is the job's failure, Close aborts the work of these buckets on the device. If the device has failed, or
  // does not end the work within seconds, Close abandons the device (Device::Abandon).
  void Close(const absl::Status& status);

  // Whether the transport reduces adjacent tensors in place.
  bool reduces_in_place() const { return transport_.reduces_in_place; }

  // See DeviceTransport. The result of has_memory() is the same on all ranks. The others may be called only if it is
  // true.
  bool has_memory() const { return transport_.allocate_memory != nullptr; }
  absl::StatusOr<DirectMemory> AllocateMemory() { return transport_.allocate_memory(); }
  absl::StatusOr<std::shared_ptr<LaneMemory>> RegisterMemory(const CallInfo& info, DirectMemory memory);

  Communicator& communicator() override { return *transport_.communicator; }
  AdasumOps& adasum_ops() override { return adasum_ops_; }
  absl::StatusOr<ResultData> Allocate(const TensorRequest& request, size_t bytes) override;
  absl::StatusOr<ResultData> AllocateZeros(absl::string_view tensor, size_t bytes) override;
  absl::Status Copy(void* dst, const void* src, size_t bytes) override;
  absl::Status PrepareOverflow(size_t tensors) override;
  absl::StatusOr<uint8_t*> FindNonFinite(absl::Span<const TensorView> tensors, DType dtype) override;
  absl::Status DeliverOverflow(const uint8_t* flags, absl::Span<OperationResult> results) override;

 private:
  explicit DeviceLane(Options options);

  absl::Status Zero(void* memory, size_t bytes);
  // Returns an event behind all work on the stream.
  absl::StatusOr<std::unique_ptr<DeviceEvent>> RecordEnd();
  // Errors: DEADLINE_EXCEEDED if the stream does not finish its work; the device's errors.
  absl::Status AwaitEnd();
  void Draw(DeviceCompletion& completion);

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<CallbackThread> callbacks_;
  const std::shared_ptr<ProgressEngine> progress_;
  const std::shared_ptr<DeviceWaiters> waiters_;
  const std::unique_ptr<DeviceStream> stream_;
  const std::shared_ptr<DeviceBlocks> blocks_;  // of the device
  const std::shared_ptr<DeviceBlocks> pinned_;
  const std::unique_ptr<StreamTimer> timer_;  // outlives the transport
  DeviceAdasumOps adasum_ops_;                // outlives the transport's work
  DeviceTransport transport_;
  std::shared_ptr<const std::function<absl::Status()>> failure_;  // of the job or the transport
  ResultData flags_;                                              // of FindNonFinite
  ResultData delivered_;                                          // of DeliverOverflow
  std::vector<kernels::cuda::Extent> extents_;
  std::shared_ptr<DeviceCompletion> launching_;  // from Begin to Finish or Drop
  std::unique_ptr<DeviceWatch> watch_;           // the last member, because it uses the others
};

// Creates the lane for tensors in device memory when the job's first such tensor comes. Either all ranks create the
// lane, or none does. The same holds for the memory that they register together for gradients.
//
// Thread-compatible: used by the progress thread (progress_engine.h), except memory().
class DeviceLanes {
 public:
  // DeviceLanes owns none of these objects.
  struct Options {
    RankId rank = 0;
    std::shared_ptr<DeviceSupport> support;  // may be nullptr
    RankDevice* device = nullptr;
    Communicator* host = nullptr;
    const HostLevels* levels = nullptr;  // of `host`; nullptr if it has none
    std::shared_ptr<CallbackThread> callbacks;
    std::shared_ptr<ProgressEngine> progress;
    Timeline* timeline = nullptr;  // nullptr: there is none
    DeviceTimes* times = nullptr;  // among the rank's counters; nullptr: nothing is counted
    DeviceWatch::Options watch;
    CallerLanes* callers = nullptr;  // end with this object's lane
  };

  explicit DeviceLanes(Options options) : options_(std::move(options)) {}

  // Returns the lane; nullptr if no lane has been created.
  DeviceLane* lane() const { return lane_.get(); }

  // Returns the memory that the ranks have registered together when they created the lane; nullptr if there is none.
  std::shared_ptr<LaneMemory> memory() const {
    const MutexLock lock(&mu_);
    return memory_;
  }

  // Creates the lane. Every rank of the job must call Open at the same point in its sequence of communicator calls.
  // `info` names the operation that needs the lane. All ranks get the same outcome.
  // Errors: the host communicator's errors; those of the memory's registration. After an error, the job has failed.
  struct Opening {
    DeviceLane* lane = nullptr;  // nullptr: no lane was made, and the job goes on
    absl::Status refusal;        // then FAILED_PRECONDITION: names a rank that cannot take part, and why
  };
  absl::StatusOr<Opening> Open(const CallInfo& info);

  // Whether the rank's device has carried out all work of this lane and of the callers' lanes.
  bool idle() const { return (lane_ == nullptr || lane_->idle()) && options_.callers->idle(); }

  // Must be called when the job has ended or has failed with `status`.
  void Close(const absl::Status& status) {
    if (const std::shared_ptr<LaneMemory> own = memory(); own != nullptr) own->Close();
    if (lane_ != nullptr) lane_->Close(status);
    options_.callers->Close(status);
  }

 private:
  // The resources that a rank prepares before it knows whether the other ranks can create the lane.
  struct Resources {
    std::shared_ptr<Device> device;
    std::unique_ptr<DeviceStream> stream;
    std::string facts;
  };
  absl::StatusOr<Resources> Prepare();
  absl::StatusOr<std::unique_ptr<DeviceLane>> Connect(Resources own, std::vector<std::string> facts);
  // Makes the memory for gradients. If a rank has no room for it, no rank has it, and rank 0 logs this.
  absl::Status MakeMemory(const CallInfo& info);

  const Options options_;
  mutable Mutex mu_;
  std::shared_ptr<LaneMemory> memory_ ABSL_GUARDED_BY(mu_);  // ends after the lane
  std::unique_ptr<DeviceLane> lane_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_DEVICE_LANE_H_
