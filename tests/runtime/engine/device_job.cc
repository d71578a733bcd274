// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/engine/device_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "runtime/backends/device_backends.h"
#include "runtime/base/status_macros.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/backends.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"
#include "tests/testing/message_transports.h"
#include "tests/testing/run_ranks.h"

namespace ronda::testing {
namespace {

std::shared_ptr<Device> OpenDevice(FakeCuda& cuda, int ordinal) {
  absl::StatusOr<std::shared_ptr<Device>> device = Device::Open(cuda.table(), ordinal);
  EXPECT_EQ(device.status(), absl::OkStatus());
  return *std::move(device);
}

std::unique_ptr<DeviceStream> OpenStream(Device& device) {
  absl::StatusOr<std::unique_ptr<DeviceStream>> stream = DeviceStream::Create(&device);
  EXPECT_EQ(stream.status(), absl::OkStatus());
  return *std::move(stream);
}

DeviceMemory Allocate(Device& device, ronda_cuda_memory kind, size_t bytes) {
  absl::StatusOr<DeviceMemory> memory = device.Allocate(kind, std::max<size_t>(bytes, 1), "a test");
  EXPECT_EQ(memory.status(), absl::OkStatus());
  return *std::move(memory);
}

void CopyOn(DeviceRank& rank, void* dst, const void* src, size_t bytes) {
  if (bytes == 0) return;
  EXPECT_EQ(
      rank.device().Call("a test's copy",
                         [&](const ronda_cuda_plugin& cuda) { return cuda.copy(dst, src, bytes, rank.stream()); }),
      absl::OkStatus());
}

absl::Status WaitFor(DeviceRank& rank) {
  RONDA_ASSIGN_OR_RETURN(const auto event, rank.device().NewEvent());
  RONDA_RETURN_IF_ERROR(event->Record(rank.stream()));
  return event->Wait();
}

std::shared_ptr<DeviceSupport> SupportOf(const DeviceJobOptions& options, const std::shared_ptr<FakeCuda>& cuda,
                                         RankId rank) {
  const bool has_none = absl::c_linear_search(options.without_devices, rank);
  const NcclSettings nccl = {
      .order = options.reproducible && rank == 0 ? SumOrder::kOfRanks : SumOrder::kOfNccl,
      .windows = absl::c_linear_search(options.with_windows, rank) ? NcclWindows::kSymmetric : NcclWindows::kNone,
      .reduces_in_place = options.reduces_in_place && rank == 0,
      .lane_memory_mb = rank == 0 ? options.lane_memory_mb : 0,
      .gradient_memory_mb = rank == 0 ? options.gradient_memory_mb : 0};
  const auto table = std::make_shared<ronda_cuda_plugin>(*cuda->table());
  if (options.replace != nullptr) options.replace(table.get());
  DeviceBackends::Libraries libraries = {.cuda = [table, has_none]() -> absl::StatusOr<const ronda_cuda_plugin*> {
                                           if (has_none) return absl::NotFoundError("no libronda_cuda.so");
                                           return table.get();
                                         },
                                         .nccl = [cuda] { return LoadFakeNccl(cuda->table()); }};
  return std::make_shared<DeviceBackends>(std::move(libraries), options.backend, "host",
                                          DeviceBackends::Identity::kUuid, nccl,
                                          absl::c_linear_search(options.elsewhere, rank) ? "elsewhere" : "here");
}

}  // namespace

DeviceRank::DeviceRank(Runtime& runtime, FakeCuda& cuda, int ordinal)
    : runtime_(runtime), cuda_(cuda), device_(OpenDevice(cuda, ordinal)), stream_(OpenStream(*device_)) {}

DeviceTensor::DeviceTensor(DeviceRank& rank, size_t bytes)
    : rank_(rank),
      bytes_(bytes),
      memory_(Allocate(rank.device(), RONDA_CUDA_DEVICE_MEMORY, bytes)),
      staging_(Allocate(rank.device(), RONDA_CUDA_PINNED_HOST_MEMORY, bytes)) {}

// Ignores the result of the wait, because it is an error if the device has failed.
DeviceTensor::~DeviceTensor() { static_cast<void>(WaitFor(rank_)); }

void DeviceTensor::Write(const void* values, size_t bytes) {
  ASSERT_LE(bytes, bytes_);
  EXPECT_EQ(WaitFor(rank_), absl::OkStatus());  // an earlier copy from the same memory
  if (bytes > 0) std::memcpy(staging_.data(), values, bytes);
  CopyOn(rank_, memory_.data(), staging_.data(), bytes);
}

void DeviceTensor::Read(DeviceRank& rank, const void* data, void* values, size_t bytes) {
  const DeviceMemory staging = Allocate(rank.device(), RONDA_CUDA_PINNED_HOST_MEMORY, bytes);
  CopyOn(rank, staging.data(), data, bytes);
  EXPECT_EQ(WaitFor(rank), absl::OkStatus());
  if (bytes > 0) std::memcpy(values, staging.data(), bytes);
}

void RunDeviceRanks(const DeviceJobOptions& options, const std::function<void(DeviceRank& rank)>& body) {
  FakeCuda::Options cuda_options = options.cuda;
  cuda_options.devices = options.devices;
  cuda_options.loading = FakeCuda::Options::Loading::kLazy;
  const auto cuda = std::make_shared<FakeCuda>(cuda_options);
  constexpr uint64_t kSeed = 11;
  std::vector<Transport> transports = options.hosts.hosts.empty()
                                          ? ConnectRanks(Backend::kInProcess, {.size = options.size})
                                          : ConnectHierarchicalTransports(options.hosts, kSeed);
  for (size_t rank = 0; rank < transports.size(); ++rank) {
    transports[rank].devices = SupportOf(options, cuda, static_cast<RankId>(rank));
  }
  RunRanks(std::move(transports), [&](RankId rank, Transport transport) {
    const Topology topology = {.rank = rank, .size = options.size, .local_rank = rank, .local_size = options.size};
    auto runtime = Runtime::Create(options.runtime, topology, std::move(transport));
    DeviceRank device_rank(*runtime, *cuda, rank % options.devices);
    body(device_rank);
    const absl::Status shutdown = runtime->Shutdown();
    EXPECT_EQ(shutdown.ok(), !options.expects_failure) << shutdown;
    runtime.reset();
  });
  EXPECT_TRUE(options.expects_failure || cuda->Leaks().empty()) << cuda->Leaks();
}

HostMap HostsFor(absl::string_view backend, int size) {
  return absl::StartsWith(backend, "hierarchical-") ? HostsOf(Backend::kHierarchical, size) : HostMap();
}

Submission DeviceSum(const std::string& name, DeviceRank& rank, const DeviceTensor& tensor, size_t count) {
  return {.request = {.name = name, .memory = Memory::kCuda, .shape = {static_cast<int64_t>(count)}},
          .input = tensor.data(),
          .output = tensor.data(),
          .stream = rank.stream()};
}

std::shared_ptr<Handle> SucceedOn(DeviceRank& rank, const Submission& submission) {
  return Succeed(rank.runtime(), submission);
}

}  // namespace ronda::testing
