#include "tests/testing/device_hierarchy_transports.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "runtime/base/status_macros.h"
#include "tests/testing/fake_cuda/fake_cuda.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"
#include "tests/testing/hierarchical_transports.h"
#include "tests/testing/on_device.h"

namespace ronda::testing {
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
  // Small chunks: tests need no large tensors to have several.
  RONDA_ASSIGN_OR_RETURN(
      DeviceTransport connected,
      ConnectDeviceHierarchy(
          {.request = request, .library = LoadFakeNccl(), .across = across, .chunk_bytes = size_t{1} << 20}));
  parts.communicator = std::move(connected.communicator);
  return std::make_unique<OnDevice>(std::move(parts));
}

}  // namespace

std::vector<Transport> ConnectDeviceHierarchyTransports(const HostMap& map, DeviceHierarchyOptions::Across across,
                                                        uint64_t seed) {
  std::vector<Transport> transports = ConnectHierarchicalTransports(map, seed);
  const int size = static_cast<int>(transports.size());
  // Streams that pause find what was not waited for.
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
