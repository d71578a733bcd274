#ifndef RONDA_RUNTIME_BOOTSTRAP_DEVICE_BACKENDS_H_
#define RONDA_RUNTIME_BOOTSTRAP_DEVICE_BACKENDS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/config.h"
#include "runtime/bootstrap/device_hierarchy.h"
#include "runtime/collectives/device_support.h"
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

  // `hostname` is this machine's. Loads nothing yet.
  static std::shared_ptr<DeviceSupport> Create(const DeviceSettings& settings, std::string hostname);

  DeviceBackends(Libraries libraries, std::string wanted, std::string hostname)
      : libraries_(std::move(libraries)), wanted_(std::move(wanted)), hostname_(std::move(hostname)) {}

  absl::StatusOr<const ronda_cuda_plugin*> Plugin() override { return libraries_.cuda(); }
  std::string Facts(const Device& device) override;
  absl::StatusOr<DeviceTransport> Connect(const Request& request) override;

 private:
  absl::StatusOr<DeviceTransport> ConnectNccl(const Request& request);
  absl::StatusOr<DeviceTransport> ConnectHierarchy(const Request& request, DeviceHierarchyOptions::Across across);

  const Libraries libraries_;
  const std::string wanted_;
  const std::string hostname_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BOOTSTRAP_DEVICE_BACKENDS_H_
