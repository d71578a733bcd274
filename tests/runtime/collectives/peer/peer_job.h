// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_RUNTIME_COLLECTIVES_PEER_PEER_JOB_H_
#define RONDA_TESTS_RUNTIME_COLLECTIVES_PEER_PEER_JOB_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/collectives/peer/peer_communicator.h"
#include "runtime/control/inprocess/in_process_job.h"
#include "runtime/cuda/device.h"
#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda::testing {

// Calls a function of the test at each mark of a rank's stream.
struct PeerMarks : StreamMarks {
  void Mark(StreamPhase phase) override {
    if (on_mark != nullptr) on_mark(phase);
  }
  std::function<void(StreamPhase phase)> on_mark;
};

// One rank of a PeerJob.
struct PeerRank {
  std::shared_ptr<Device> device;
  std::unique_ptr<DeviceStream> stream;
  std::unique_ptr<Communicator> host;
  std::unique_ptr<PeerMarks> marks = std::make_unique<PeerMarks>();
  std::unique_ptr<PeerCommunicator> communicator;

  // Floats returns device memory that holds `values`; Read returns the values of such memory.
  DeviceMemory Floats(const std::vector<float>& values) const;
  static std::vector<float> Read(const DeviceMemory& memory);

  // Adds up the tensors of all ranks, in place.
  absl::Status Allreduce(const DeviceMemory& tensor, const CallInfo& info) const;

  // Waits for the stream.
  void Finish() const;
  bool HasFinished() const;
};

// A job whose ranks are threads with fake devices. Rank r has device r % options.devices.
class PeerJob {
 public:
  PeerJob(int size, const FakeCuda::Options& options);
  ~PeerJob();

  int size() const { return static_cast<int>(ranks_.size()); }
  const FakeCuda& cuda() const { return cuda_; }
  PeerRank& rank(RankId rank) { return ranks_[static_cast<size_t>(rank)]; }
  // Returns the errors with which the ranks' communicators were created.
  const std::vector<absl::Status>& connected() const { return connected_; }
  void Fail(const absl::Status& failure) { job_->Fail(0, failure); }

  // Runs body(rank) for each rank, on its own thread.
  void OnEveryRank(const std::function<void(RankId, PeerRank&)>& body);

 private:
  absl::Status Connect(RankId rank);

  const int devices_;
  FakeCuda cuda_;
  const std::shared_ptr<InProcessJob> job_;
  std::vector<PeerRank> ranks_;
  std::vector<absl::Status> connected_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_COLLECTIVES_PEER_PEER_JOB_H_
