// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/device_transports.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/inprocess/in_process_communicator.h"
#include "runtime/collectives/nccl/nccl_communicator.h"
#include "runtime/collectives/peer/peer_communicator.h"
#include "runtime/collectives/staged/staged_communicator.h"
#include "runtime/control/inprocess/in_process_job.h"
#include "runtime/cuda/device.h"
#include "tests/testing/fake_cuda/fake_cuda.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"
#include "tests/testing/message_transports.h"
#include "tests/testing/on_device.h"
#include "tests/testing/run_ranks.h"

namespace ronda::testing {
namespace {

// The devices of a test, fake or real, and the plugin that drives them.
struct Machine {
  std::shared_ptr<const FakeCuda> fake;  // nullptr: the devices are real
  const ronda_cuda_plugin* plugin;
  int devices;
};

absl::StatusOr<Machine> RealMachine(const std::string& path) {
  RONDA_ASSIGN_OR_RETURN(const ronda_cuda_plugin* const plugin, LoadCudaPlugin(path));
  RONDA_ASSIGN_OR_RETURN(const int devices, CountDevices(*plugin));
  return Machine{.fake = nullptr, .plugin = plugin, .devices = devices};
}

Machine FakeMachineFor(int size, int queues) {
  constexpr int kDevices = 2;
  // Random pauses in the streams reveal missing waits.
  auto fake = std::make_shared<const FakeCuda>(FakeCuda::Options{.devices = kDevices,
                                                                 .delay_seed = static_cast<uint64_t>(size == 3 ? 3 : 0),
                                                                 .host_access = FakeMemory::HostAccess::kFatal,
                                                                 .queues = queues});
  const ronda_cuda_plugin* const plugin = fake->table();
  return {.fake = std::move(fake), .plugin = plugin, .devices = kDevices};
}

absl::StatusOr<Machine> MachineFor(int size, int queues = FakeCuda::kMostQueues) {
  const char* const path = std::getenv(kRealPlugin);
  return path == nullptr ? FakeMachineFor(size, queues) : RealMachine(path);
}

absl::StatusOr<std::unique_ptr<Communicator>> StageThrough(const Machine& machine, std::unique_ptr<Communicator> host) {
  OnDevice::Parts parts = {.cuda = machine.fake};
  RONDA_ASSIGN_OR_RETURN(parts.device, Device::Open(machine.plugin, host->rank() % machine.devices));
  RONDA_ASSIGN_OR_RETURN(parts.stream, DeviceStream::Create(parts.device.get()));
  parts.host = std::move(host);
  RONDA_ASSIGN_OR_RETURN(parts.communicator, StagedCommunicator::Create({.device = parts.device,
                                                                         .stream = parts.stream->handle(),
                                                                         .host = parts.host.get(),
                                                                         .slot_bytes = 16 << 10}));
  return std::make_unique<OnDevice>(std::move(parts));
}

}  // namespace

bool HasDevices() {
  const char* const path = std::getenv(kRealPlugin);
  if (path == nullptr) return true;
  const absl::Status status = RealMachine(path).status();
  if (!status.ok()) std::cout << status.message() << "\n";
  return status.ok();
}

std::vector<Transport> ConnectStagedTransports(int size) {
  const absl::StatusOr<Machine> machine = MachineFor(size);
  EXPECT_EQ(machine.status(), absl::OkStatus());
  std::vector<Transport> transports = ConnectInProcess({.size = size});
  for (Transport& transport : transports) {
    absl::StatusOr<std::unique_ptr<Communicator>> staged = StageThrough(*machine, std::move(transport.communicator));
    EXPECT_EQ(staged.status(), absl::OkStatus());
    transport.communicator = *std::move(staged);
  }
  return transports;
}

namespace {

absl::StatusOr<std::unique_ptr<Communicator>> ConnectPeer(const Machine& machine,
                                                          const std::shared_ptr<InProcessJob>& job, RankId rank,
                                                          int size) {
  OnDevice::Parts parts = {.cuda = machine.fake};
  RONDA_ASSIGN_OR_RETURN(parts.device, Device::Open(machine.plugin, rank % machine.devices));
  RONDA_ASSIGN_OR_RETURN(parts.stream, DeviceStream::Create(parts.device.get()));
  parts.host = std::make_unique<InProcessCommunicator>(job, rank);
  RONDA_ASSIGN_OR_RETURN(parts.communicator,
                         PeerCommunicator::Create({.rank = rank,
                                                   .size = size,
                                                   .device = parts.device,
                                                   .stream = parts.stream->handle(),
                                                   .host = parts.host.get(),
                                                   .slot_bytes = 16 << 10,
                                                   .one_shot_bytes = 4 << 10,
                                                   .job_failure = [job] { return job->failure(); }}));
  return std::make_unique<OnDevice>(std::move(parts));
}

}  // namespace

std::vector<Transport> ConnectPeerTransports(int size) {
  const auto job = std::make_shared<InProcessJob>(InProcessJob::Options{.size = size});
  const absl::StatusOr<Machine> machine = MachineFor(size, /*queues=*/2);
  EXPECT_EQ(machine.status(), absl::OkStatus());
  std::vector<Transport> transports(static_cast<size_t>(size));
  RunRanksOn(transports, [&](RankId rank, Transport& transport) {
    absl::StatusOr<std::unique_ptr<Communicator>> communicator = ConnectPeer(*machine, job, rank, size);
    ASSERT_EQ(communicator.status(), absl::OkStatus());
    transport = {.control = std::make_unique<InProcessControlPlane>(job, rank),
                 .communicator = *std::move(communicator),
                 .flights = job->flights()};
  });
  return transports;
}

namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// For real devices, loads the real NCCL, which it finds as ranks do.
absl::StatusOr<std::shared_ptr<const NcclLibrary>> NcclOf(const Machine& machine) {
  if (machine.fake != nullptr) return LoadFakeNccl(machine.plugin);
  return LoadNccl(Variable("RONDA_NCCL_LIBRARY"), Variable("CUDA_HOME"), Variable("VIRTUAL_ENV"));
}

// Makes a machine with one device per rank.
absl::StatusOr<Machine> MachineWith(int devices) {
  if (const char* const path = std::getenv(kRealPlugin)) return RealMachine(path);
  // Random pauses in the streams reveal missing waits.
  auto fake =
      std::make_shared<const FakeCuda>(FakeCuda::Options{.devices = devices,
                                                         .delay_seed = static_cast<uint64_t>(devices == 3 ? 3 : 0),
                                                         .host_access = FakeMemory::HostAccess::kFatal});
  const ronda_cuda_plugin* const plugin = fake->table();
  return Machine{.fake = std::move(fake), .plugin = plugin, .devices = devices};
}

absl::StatusOr<std::unique_ptr<Communicator>> ConnectRank(const std::shared_ptr<InProcessJob>& job,
                                                          const Machine& machine, RankId rank, int size,
                                                          SumOrder order) {
  OnDevice::Parts parts = {.cuda = machine.fake};
  RONDA_ASSIGN_OR_RETURN(parts.device, Device::Open(machine.plugin, rank));
  RONDA_ASSIGN_OR_RETURN(parts.stream, DeviceStream::Create(parts.device.get()));
  parts.host = std::make_unique<InProcessCommunicator>(job, rank);
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<const NcclLibrary> library, NcclOf(machine));
  RONDA_ASSIGN_OR_RETURN(parts.communicator,
                         NcclCommunicator::Create({.rank = rank,
                                                   .size = size,
                                                   .device = parts.device,
                                                   .stream = parts.stream->handle(),
                                                   .library = std::move(library),
                                                   .host = parts.host.get(),
                                                   .order = order,
                                                   .job_failure = [job] { return job->failure(); }}));
  return std::make_unique<OnDevice>(std::move(parts));
}

}  // namespace

bool HasNcclDevices(int size) {
  const absl::StatusOr<Machine> machine = MachineWith(size);
  return machine.ok() && machine->devices >= size && NcclOf(*machine).ok();
}

std::vector<Transport> ConnectNcclTransports(int size, SumOrder order) {
  const auto job = std::make_shared<InProcessJob>(InProcessJob::Options{.size = size});
  const absl::StatusOr<Machine> machine = MachineWith(size);
  EXPECT_EQ(machine.status(), absl::OkStatus());
  std::vector<Transport> transports;
  for (RankId rank = 0; rank < size && machine.ok(); ++rank) {
    absl::StatusOr<std::unique_ptr<Communicator>> communicator = ConnectRank(job, *machine, rank, size, order);
    if (!communicator.ok()) {
      ADD_FAILURE() << communicator.status();
      return {};
    }
    transports.push_back({.control = std::make_unique<InProcessControlPlane>(job, rank),
                          .communicator = *std::move(communicator),
                          .flights = job->flights()});
  }
  return transports;
}

namespace {

absl::StatusOr<std::unique_ptr<Communicator>> PutOnDevice(const std::shared_ptr<FakeCuda>& cuda,
                                                          DeviceHierarchyOptions::Across across, RankId rank,
                                                          Transport& transport) {
  OnDevice::Parts parts = {.cuda = cuda};
  RONDA_ASSIGN_OR_RETURN(parts.device, Device::Open(cuda->table(), rank));
  RONDA_ASSIGN_OR_RETURN(parts.stream, DeviceStream::Create(parts.device.get()));
  parts.host = std::move(transport.communicator);
  const DeviceSupport::Request request = {
      .rank = rank,
      .device = parts.device,
      .stream = parts.stream->handle(),
      .host = parts.host.get(),
      .levels = &*transport.levels,
      .job_failure = [control = transport.control.get()] { return control->failure(); }};
  // Chunks are smaller than the default, so that smaller tensors take several chunks.
  RONDA_ASSIGN_OR_RETURN(DeviceTransport connected, ConnectDeviceHierarchy({.request = request,
                                                                            .library = LoadFakeNccl(cuda->table()),
                                                                            .across = across,
                                                                            .chunk_bytes = size_t{1} << 20}));
  parts.communicator = std::move(connected.communicator);
  return std::make_unique<OnDevice>(std::move(parts));
}

}  // namespace

std::vector<Transport> ConnectDeviceHierarchyTransports(const HostMap& map, DeviceHierarchyOptions::Across across,
                                                        uint64_t seed) {
  std::vector<Transport> transports = ConnectHierarchicalTransports(map, seed);
  const int size = static_cast<int>(transports.size());
  // Random pauses in the streams reveal missing waits.
  const auto cuda = std::make_shared<FakeCuda>(FakeCuda::Options{
      .devices = size, .delay_seed = size == 3 ? seed : 0, .host_access = FakeMemory::HostAccess::kFatal});
  for (RankId rank = 0; rank < size; ++rank) {
    Transport& transport = transports[static_cast<size_t>(rank)];
    absl::StatusOr<std::unique_ptr<Communicator>> communicator = PutOnDevice(cuda, across, rank, transport);
    if (!communicator.ok()) {
      ADD_FAILURE() << communicator.status();
      return {};
    }
    transport.communicator = *std::move(communicator);
  }
  return transports;
}

}  // namespace ronda::testing
