#include "runtime/bootstrap/device_backends.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/bootstrap/device_choice.h"
#include "runtime/bootstrap/this_host.h"
#include "runtime/collectives/nccl/nccl_communicator.h"
#include "runtime/collectives/staged/staged_communicator.h"
#include "runtime/cuda/device.h"

namespace ronda {
namespace {

absl::StatusOr<DeviceTransport> ConnectStaged(const DeviceSupport::Request& request) {
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator,
                         StagedCommunicator::Create({.device = request.device,
                                                     .stream = request.stream,
                                                     .host = request.host,
                                                     .marks = request.marks,
                                                     .job_failure = request.job_failure}));
  return DeviceTransport{.communicator = std::move(communicator)};
}

}  // namespace

std::shared_ptr<DeviceSupport> DeviceBackends::Create(const DeviceSettings& settings, const std::string& hostname) {
  Libraries libraries = {
      .cuda = [path = settings.cuda_plugin] { return LoadCudaPlugin(path); },
      .nccl = [path = settings.nccl_library, toolkit = settings.cuda_home] { return LoadNccl(path, toolkit); }};
  if (!settings.nccl_host.empty()) {
    return std::make_shared<DeviceBackends>(std::move(libraries), settings.backend, settings.nccl_host,
                                            Identity::kPlace);
  }
  // As NCCL does: machines may have the same name.
  return std::make_shared<DeviceBackends>(std::move(libraries), settings.backend,
                                          absl::StrCat(hostname, "/", BootId()));
}

std::string DeviceBackends::Facts(const Device& device) {
  DeviceFacts facts = {.host = host_, .wanted = wanted_};
  ronda_cuda_device description = {};
  // Who cannot say where its device is shares it with nobody.
  if (device.plugin().describe(device.ordinal(), &description) == 0) {
    facts.pci_bus = description.pci_bus;
    if (identity_ == Identity::kUuid) facts.uuid = description.uuid;
  }
  const auto nccl = libraries_.nccl();
  if (nccl.ok()) {
    facts.nccl = (*nccl)->version;
  } else {
    facts.why_no_nccl = std::string(nccl.status().message());
  }
  return Encode(facts, kLongestFacts);
}

absl::StatusOr<DeviceTransport> DeviceBackends::Connect(const Request& request) {
  std::vector<DeviceFacts> facts;
  for (const std::string& text : request.facts) {
    RONDA_ASSIGN_OR_RETURN(facts.emplace_back(), DecodeDeviceFacts(text));
  }
  const std::vector<DeviceRating> ratings =
      RateDeviceBackends(facts, request.levels == nullptr ? nullptr : &request.levels->hosts);
  const std::string& wanted = facts.front().wanted;
  RONDA_ASSIGN_OR_RETURN(const DeviceBackend backend, ChooseDeviceBackend(ratings, wanted));
  Log(LogLevel::kInfo, request.rank,
      absl::StrCat("tensors on ", request.device->name(), " go over ", Name(backend),
                   wanted.empty() ? "" : ", as RONDA_DEVICE_BACKEND says", "; of ", ToString(ratings)));
  switch (backend) {
    case DeviceBackend::kNccl:
      return ConnectNccl(request);
    case DeviceBackend::kStaged:
      return ConnectStaged(request);
    case DeviceBackend::kHierarchicalStaged:
      return ConnectHierarchy(request, DeviceHierarchyOptions::Across::kStaged);
    case DeviceBackend::kHierarchicalNccl:
      return ConnectHierarchy(request, DeviceHierarchyOptions::Across::kNccl);
  }
  return absl::InternalError("an unknown backend for devices was chosen");
}

absl::StatusOr<DeviceTransport> DeviceBackends::ConnectNccl(const Request& request) {
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<const NcclLibrary> library, libraries_.nccl());
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<NcclCommunicator> communicator,
                         NcclCommunicator::Create({.rank = request.rank,
                                                   .size = static_cast<int>(request.facts.size()),
                                                   .device = request.device,
                                                   .stream = request.stream,
                                                   .library = std::move(library),
                                                   .host = request.host,
                                                   .marks = request.marks,
                                                   .job_failure = request.job_failure}));
  NcclCommunicator* const nccl = communicator.get();
  return DeviceTransport{.communicator = std::move(communicator),
                         .failure = [nccl] { return nccl->failure(); },
                         .abort = [nccl] { nccl->Abort(); },
                         .setup_deadline = NcclCommunicator::Options().init_deadline};
}

absl::StatusOr<DeviceTransport> DeviceBackends::ConnectHierarchy(const Request& request,
                                                                 DeviceHierarchyOptions::Across across) {
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<const NcclLibrary> library, libraries_.nccl());
  return ConnectDeviceHierarchy({.request = request, .library = std::move(library), .across = across});
}

}  // namespace ronda
