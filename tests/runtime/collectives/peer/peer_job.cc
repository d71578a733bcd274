// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/collectives/peer/peer_job.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/inprocess/in_process_communicator.h"

namespace ronda::testing {
namespace {

template <typename T>
T Expected(absl::StatusOr<T> value) {
  EXPECT_EQ(value.status(), absl::OkStatus());
  return *std::move(value);
}

}  // namespace

DeviceMemory PeerRank::Floats(const std::vector<float>& values) const {
  const size_t bytes = values.size() * sizeof(float);
  DeviceMemory memory = Expected(device->Allocate(RONDA_CUDA_DEVICE_MEMORY, bytes, "a test"));
  WriteDevice(memory.data(), absl::string_view(reinterpret_cast<const char*>(values.data()), bytes));
  return memory;
}

std::vector<float> PeerRank::Read(const DeviceMemory& memory) {
  const std::string bytes = ReadDevice(memory.data(), memory.size());
  std::vector<float> values(memory.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

absl::Status PeerRank::Allreduce(const DeviceMemory& tensor, const CallInfo& info) const {
  const Segment segment = {.input = tensor.data(), .output = tensor.data(), .count = tensor.size() / sizeof(float)};
  return communicator->Reduce({.info = info, .segments = {&segment, 1}});
}

void PeerRank::Finish() const {
  const std::unique_ptr<DeviceEvent> end = Expected(device->NewEvent());
  ASSERT_EQ(end->Record(stream->handle()), absl::OkStatus());
  ASSERT_EQ(end->Wait(), absl::OkStatus());
}

bool PeerRank::HasFinished() const {
  int is_idle = -1;
  EXPECT_EQ(fake_cuda_is_idle(stream->handle(), &is_idle), 0);
  return is_idle == 1;
}

PeerJob::PeerJob(int size, const FakeCuda::Options& options)
    : devices_(options.devices),
      cuda_(options),
      job_(std::make_shared<InProcessJob>(InProcessJob::Options{.size = size})),
      ranks_(static_cast<size_t>(size)),
      connected_(static_cast<size_t>(size)) {
  OnEveryRank([this](RankId rank, PeerRank&) { connected_[static_cast<size_t>(rank)] = Connect(rank); });
}

absl::Status PeerJob::Connect(RankId rank) {
  PeerRank& self = this->rank(rank);
  RONDA_ASSIGN_OR_RETURN(self.device, Device::Open(cuda_.table(), rank % devices_));
  RONDA_ASSIGN_OR_RETURN(self.stream, DeviceStream::Create(self.device.get()));
  self.host = std::make_unique<InProcessCommunicator>(job_, rank);
  RONDA_ASSIGN_OR_RETURN(self.communicator,
                         PeerCommunicator::Create({.rank = rank,
                                                   .size = size(),
                                                   .device = self.device,
                                                   .stream = self.stream->handle(),
                                                   .host = self.host.get(),
                                                   .marks = self.marks.get(),
                                                   .slot_bytes = 64 << 10,
                                                   .one_shot_bytes = 8 << 10,
                                                   .job_failure = [job = job_] { return job->failure(); }}));
  return absl::OkStatus();
}

PeerJob::~PeerJob() {
  OnEveryRank([](RankId, PeerRank& self) { self.communicator.reset(); });
}

void PeerJob::OnEveryRank(const std::function<void(RankId, PeerRank&)>& body) {
  std::vector<std::thread> threads;
  for (RankId rank = 0; rank < size(); ++rank) {
    threads.emplace_back([this, rank, &body] {
      SCOPED_TRACE(absl::StrCat("rank ", rank));
      body(rank, this->rank(rank));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ronda::testing
