#ifndef RONDA_RUNTIME_BOOTSTRAP_DEVICE_BACKENDS_H_
#define RONDA_RUNTIME_BOOTSTRAP_DEVICE_BACKENDS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/config.h"
#include "runtime/bootstrap/device_hierarchy.h"
#include "runtime/collectives/device_transport.h"
#include "runtime/collectives/nccl/nccl_library.h"

namespace ronda {

// The CUDA devices of this machine, and NCCL, the host's communicator or both between them.
//
// Thread-safe: the ranks of a process may share it.
class DeviceBackends : public DeviceSupport {
 public:
  // Where its libraries are from; tests bring their own.
  struct Libraries {
    std::function<absl::StatusOr<const ronda_cuda_plugin*>()> cuda;
    std::function<absl::StatusOr<std::shared_ptr<const NcclLibrary>>()> nccl;
  };

  // What tells ranks that share a device. kUuid: the device's UUID too, wherever NCCL takes them to be. kPlace: only
  // that they are on one host for NCCL, and their devices at the same place there; NCCL may then be told to take them
  // for ranks on several hosts (NCCL_HOSTID), and lets them share.
  enum class Identity : uint8_t { kUuid, kPlace };

  // `hostname` is this machine's. Loads nothing yet.
  static std::shared_ptr<DeviceSupport> Create(const DeviceSettings& settings, const std::string& hostname);

  // `host`: what NCCL takes this host for.
  DeviceBackends(Libraries libraries, std::string wanted, std::string host, Identity identity = Identity::kUuid)
      : libraries_(std::move(libraries)), wanted_(std::move(wanted)), host_(std::move(host)), identity_(identity) {}

  absl::StatusOr<const ronda_cuda_plugin*> Plugin() override { return libraries_.cuda(); }
  std::string Facts(const Device& device) override;
  absl::StatusOr<DeviceTransport> Connect(const Request& request) override;

 private:
  absl::StatusOr<DeviceTransport> ConnectNccl(const Request& request);
  absl::StatusOr<DeviceTransport> ConnectHierarchy(const Request& request, DeviceHierarchyOptions::Across across);

  const Libraries libraries_;
  const std::string wanted_;
  const std::string host_;
  const Identity identity_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BOOTSTRAP_DEVICE_BACKENDS_H_
