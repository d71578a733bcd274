#include "tests/testing/device_transports.h"

#include <gtest/gtest.h>

#include <utility>

#include "runtime/collectives/staged/staged_communicator.h"
#include "tests/testing/on_device.h"
#include "tests/testing/run_ranks.h"

namespace ronda::testing {
namespace {

constexpr int kDevices = 2;

std::unique_ptr<Communicator> StageThrough(std::shared_ptr<FakeCuda> cuda, std::unique_ptr<Communicator> host) {
  absl::StatusOr<std::shared_ptr<Device>> device = Device::Open(cuda->table(), host->rank() % kDevices);
  EXPECT_EQ(device.status(), absl::OkStatus());
  absl::StatusOr<std::unique_ptr<DeviceStream>> stream = DeviceStream::Create(device->get());
  EXPECT_EQ(stream.status(), absl::OkStatus());
  absl::StatusOr<std::unique_ptr<StagedCommunicator>> staged = StagedCommunicator::Create(
      {.device = *device, .stream = (*stream)->handle(), .host = host.get(), .slot_bytes = 16 << 10});
  EXPECT_EQ(staged.status(), absl::OkStatus());
  return std::make_unique<OnDevice>(OnDevice::Parts{.cuda = std::move(cuda),
                                                    .device = *std::move(device),
                                                    .stream = *std::move(stream),
                                                    .host = std::move(host),
                                                    .communicator = *std::move(staged)});
}

}  // namespace

std::vector<Transport> ConnectStagedTransports(int size) {
  // Streams that pause find what was not waited for.
  const auto cuda = std::make_shared<FakeCuda>(FakeCuda::Options{.devices = kDevices,
                                                                 .delay_seed = static_cast<uint64_t>(size == 3 ? 3 : 0),
                                                                 .host_access = FakeMemory::HostAccess::kFatal});
  std::vector<Transport> transports = ConnectInProcess({.size = size});
  for (Transport& transport : transports) {
    transport.communicator = StageThrough(cuda, std::move(transport.communicator));
  }
  return transports;
}

}  // namespace ronda::testing
