// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/collectives/nccl/nccl_job.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/collectives/inprocess/in_process_communicator.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

template <typename T>
T Expected(absl::StatusOr<T> value) {
  EXPECT_EQ(value.status(), absl::OkStatus());
  return *std::move(value);
}

// Prepares the device as the engine does, so that no launch waits for the device.
std::shared_ptr<Device> OpenPrepared(const ronda_cuda_plugin* plugin, int ordinal) {
  std::shared_ptr<Device> device = Expected(Device::Open(plugin, ordinal));
  EXPECT_EQ(device->Call("loading the kernels", [](const ronda_cuda_plugin& cuda) { return cuda.prepare_device(); }),
            absl::OkStatus());
  return device;
}

}  // namespace

NcclRank::NcclRank(const ronda_cuda_plugin* plugin, std::shared_ptr<InProcessJob> job, RankId rank, int size,
                   const NcclJobOptions& options)
    : device_(OpenPrepared(plugin, rank)),
      stream_(Expected(DeviceStream::Create(device_.get()))),
      host_(std::make_unique<InProcessCommunicator>(job, rank)),
      communicator_(Expected(NcclCommunicator::Create({.rank = rank,
                                                       .size = size,
                                                       .device = device_,
                                                       .stream = stream_->handle(),
                                                       .library = LoadFakeNccl(plugin),
                                                       .host = host_.get(),
                                                       .order = options.order,
                                                       .windows = options.windows,
                                                       .chunk_bytes = options.chunk_bytes,
                                                       .init_deadline = options.init_deadline,
                                                       .job_failure = [job] { return job->failure(); }}))) {}

DeviceMemory NcclRank::Floats(const std::vector<float>& values) {
  const size_t bytes = values.size() * sizeof(float);
  DeviceMemory memory = Expected(device_->Allocate(RONDA_CUDA_DEVICE_MEMORY, bytes, "a test"));
  WriteDevice(memory.data(), absl::string_view(reinterpret_cast<const char*>(values.data()), bytes));
  return memory;
}

std::vector<float> NcclRank::Read(const DeviceMemory& memory) const {
  const std::string bytes = ReadDevice(memory.data(), memory.size());
  std::vector<float> values(memory.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void NcclRank::Finish() {
  const std::unique_ptr<DeviceEvent> end = Expected(device_->NewEvent());
  ASSERT_EQ(end->Record(stream()), absl::OkStatus());
  ASSERT_EQ(end->Wait(), absl::OkStatus());
}

absl::Status NcclRank::Allreduce(const DeviceMemory& tensor, const CallInfo& info, WireFormat wire) {
  const Segment segment = {.input = tensor.data(), .output = tensor.data(), .count = tensor.size() / sizeof(float)};
  return communicator_->Reduce({.info = info, .segments = {&segment, 1}, .wire = wire});
}

NcclJob::NcclJob(int size, const NcclJobOptions& options)
    : cuda_(FakeCuda::Options{.devices = size,
                              .memory_bytes = options.memory_bytes,
                              .loading = FakeCuda::Options::Loading::kLazy,
                              .frees = options.frees}),
      job_(std::make_shared<InProcessJob>(InProcessJob::Options{.size = size})) {
  for (RankId rank = 0; rank < size; ++rank) {
    ranks_.push_back(std::make_unique<NcclRank>(cuda_.table(), job_, rank, size, options));
  }
}

void NcclJob::Fail(const absl::Status& failure) { job_->Fail(0, failure); }

void NcclJob::OnEveryRank(const std::function<void(RankId, NcclRank&)>& body) {
  std::vector<std::thread> threads;
  for (RankId rank = 0; rank < size(); ++rank) {
    threads.emplace_back([this, rank, &body] {
      SCOPED_TRACE(absl::StrCat("rank ", rank));
      body(rank, this->rank(rank));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void NcclJob::End() {
  std::vector<std::thread> threads;
  for (std::unique_ptr<NcclRank>& rank : ranks_) threads.emplace_back([&rank] { rank.reset(); });
  for (std::thread& thread : threads) thread.join();
  ranks_.clear();
}

}  // namespace ronda::testing
