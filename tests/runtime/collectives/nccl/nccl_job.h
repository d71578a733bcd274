// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_RUNTIME_COLLECTIVES_NCCL_NCCL_JOB_H_
#define RONDA_TESTS_RUNTIME_COLLECTIVES_NCCL_NCCL_JOB_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "runtime/collectives/nccl/nccl_communicator.h"
#include "runtime/control/inprocess/in_process_job.h"
#include "runtime/cuda/device.h"
#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda::testing {

struct NcclJobOptions {
  absl::Duration init_deadline = absl::Seconds(20);
  FakeCuda::Frees frees = FakeCuda::Frees::kReturnAtOnce;
  size_t memory_bytes = size_t{1} << 30;  // of each device
  SumOrder order = SumOrder::kOfNccl;
  NcclWindows windows = NcclWindows::kNone;
  size_t chunk_bytes = NcclReduce::kChunkBytes;
};

// One rank of an NcclJob, with its device, its stream, and helpers for tests.
class NcclRank {
 public:
  NcclRank(const ronda_cuda_plugin* plugin, std::shared_ptr<InProcessJob> job, RankId rank, int size,
           const NcclJobOptions& options);

  NcclCommunicator& communicator() { return *communicator_; }
  Device& device() { return *device_; }
  StreamHandle stream() const { return stream_->handle(); }

  // Returns device memory that holds `values`.
  DeviceMemory Floats(const std::vector<float>& values);
  std::vector<float> Read(const DeviceMemory& memory) const;

  // Waits for the stream.
  void Finish();

  // Adds up the tensors of all ranks, in place.
  absl::Status Allreduce(const DeviceMemory& tensor, const CallInfo& info, WireFormat wire = WireFormat::kNone);

 private:
  std::shared_ptr<Device> device_;
  std::unique_ptr<DeviceStream> stream_;
  std::unique_ptr<Communicator> host_;
  std::unique_ptr<NcclCommunicator> communicator_;
};

// A job whose ranks are threads. Each rank has a fake device, and all ranks use the fake NCCL.
class NcclJob {
 public:
  explicit NcclJob(int size, const NcclJobOptions& options = {});

  int size() const { return static_cast<int>(ranks_.size()); }
  NcclRank& rank(RankId rank) { return *ranks_[static_cast<size_t>(rank)]; }
  const FakeCuda& cuda() const { return cuda_; }
  void Fail(const absl::Status& failure);

  // Runs body(rank) for each rank, on its own thread.
  void OnEveryRank(const std::function<void(RankId, NcclRank&)>& body);
  // Destroys the ranks' communicators, each on its own thread.
  void End();

 private:
  FakeCuda cuda_;
  std::shared_ptr<InProcessJob> job_;
  std::vector<std::unique_ptr<NcclRank>> ranks_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_COLLECTIVES_NCCL_NCCL_JOB_H_
