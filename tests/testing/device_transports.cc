#include "tests/testing/device_transports.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/staged/staged_communicator.h"
#include "runtime/cuda/device.h"
#include "tests/testing/fake_cuda/fake_cuda.h"
#include "tests/testing/on_device.h"
#include "tests/testing/run_ranks.h"

namespace ronda::testing {
namespace {

// Devices, and what they need.
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

Machine FakeMachineFor(int size) {
  constexpr int kDevices = 2;
  // Streams that pause find what was not waited for.
  auto fake = std::make_shared<const FakeCuda>(FakeCuda::Options{.devices = kDevices,
                                                                 .delay_seed = static_cast<uint64_t>(size == 3 ? 3 : 0),
                                                                 .host_access = FakeMemory::HostAccess::kFatal});
  const ronda_cuda_plugin* const plugin = fake->table();
  return {.fake = std::move(fake), .plugin = plugin, .devices = kDevices};
}

absl::StatusOr<Machine> MachineFor(int size) {
  const char* const path = std::getenv(kRealPlugin);
  return path == nullptr ? FakeMachineFor(size) : RealMachine(path);
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

}  // namespace ronda::testing
