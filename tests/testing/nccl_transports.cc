#include "tests/testing/nccl_transports.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/inprocess/in_process_communicator.h"
#include "runtime/collectives/nccl/nccl_communicator.h"
#include "runtime/control/inprocess/in_process_control_plane.h"
#include "runtime/control/inprocess/in_process_job.h"
#include "tests/testing/fake_cuda/fake_cuda.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"
#include "tests/testing/on_device.h"

namespace ronda::testing {
namespace {

absl::StatusOr<std::unique_ptr<Communicator>> ConnectRank(const std::shared_ptr<InProcessJob>& job,
                                                          const std::shared_ptr<FakeCuda>& cuda, RankId rank,
                                                          int size) {
  OnDevice::Parts parts = {.cuda = cuda};
  RONDA_ASSIGN_OR_RETURN(parts.device, Device::Open(cuda->table(), rank));
  RONDA_ASSIGN_OR_RETURN(parts.stream, DeviceStream::Create(parts.device.get()));
  parts.host = std::make_unique<InProcessCommunicator>(job, rank);
  RONDA_ASSIGN_OR_RETURN(parts.communicator,
                         NcclCommunicator::Create({.rank = rank,
                                                   .size = size,
                                                   .device = parts.device,
                                                   .stream = parts.stream->handle(),
                                                   .library = LoadFakeNccl(),
                                                   .host = parts.host.get(),
                                                   .job_failure = [job] { return job->failure(); }}));
  return std::make_unique<OnDevice>(std::move(parts));
}

}  // namespace

std::vector<Transport> ConnectNcclTransports(int size) {
  const auto job = std::make_shared<InProcessJob>(InProcessJob::Options{.size = size});
  // Streams that pause find what was not waited for.
  const auto cuda = std::make_shared<FakeCuda>(FakeCuda::Options{.devices = size,
                                                                 .delay_seed = static_cast<uint64_t>(size == 3 ? 3 : 0),
                                                                 .host_access = FakeMemory::HostAccess::kFatal});
  std::vector<Transport> transports;
  for (RankId rank = 0; rank < size; ++rank) {
    absl::StatusOr<std::unique_ptr<Communicator>> communicator = ConnectRank(job, cuda, rank, size);
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

}  // namespace ronda::testing
