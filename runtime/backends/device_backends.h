// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BACKENDS_DEVICE_BACKENDS_H_
#define RONDA_RUNTIME_BACKENDS_DEVICE_BACKENDS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/backends/registry.h"
#include "runtime/base/config.h"
#include "runtime/collectives/host_map.h"
#include "runtime/collectives/nccl/nccl_arithmetic.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/collectives/transport.h"

namespace ronda {

// The facts about a rank's device. Each rank sends them to the others, so that all ranks choose the same backend.
struct DeviceFacts {
  std::string host;         // the name that NCCL gives the host
  std::string pci_bus;      // before 2.30.7, NCCL refuses two ranks of a host with the same PCI bus
  std::string uuid;         // of the device or its part, equal in all containers; empty: not compared
  std::string nccl;         // the version of NCCL; empty: no NCCL can be used
  std::string why_no_nccl;  // the reason, if no NCCL can be used
  std::string wanted;       // RONDA_DEVICE_BACKEND; rank 0's applies
  std::string why_no_peer;  // the reason, if the device cannot share memory with other ranks
  std::string order;        // "ranks" with RONDA_REPRODUCIBLE, otherwise empty; rank 0's applies
  std::string windows;      // "symmetric" with RONDA_NCCL_WINDOWS, otherwise empty; rank 0's applies
  std::string in_place;     // "adjacent" with RONDA_REDUCE_IN_PLACE, otherwise empty; rank 0's applies

  friend bool operator==(const DeviceFacts&, const DeviceFacts&) = default;
};

// Returns one line of at most `longest` characters. It shortens the reasons if necessary, and replaces a long `host`,
// or one with a tab, by its hash.
std::string Encode(const DeviceFacts& facts, size_t longest);
// Errors: INTERNAL if `text` does not come from Encode.
absl::StatusOr<DeviceFacts> DecodeDeviceFacts(absl::string_view text);

// How NCCL is used. All ranks of a communicator must have the same settings.
struct NcclSettings {
  SumOrder order = SumOrder::kOfNccl;
  NcclWindows windows = NcclWindows::kNone;
  bool reduces_in_place = false;  // adjacent tensors
};

// Returns the settings of the first of some ranks, which apply to all of them. `facts` are the facts of these ranks.
// Errors: as DecodeDeviceFacts.
absl::StatusOr<NcclSettings> NcclSettingsOf(absl::Span<const std::string> facts);

// The facts on which the choice between backends for the memory of GPUs depends.
struct DeviceSituation {
  absl::Span<const DeviceFacts> facts;  // by rank
  const HostMap* hosts = nullptr;       // the levels of the hosts' communicator; nullptr: it has one level
};

// The CUDA devices of this machine, and the backends that connect the devices of all ranks.
//
// Thread-safe: the ranks of a process may share it.
class DeviceBackends : public DeviceSupport {
 public:
  // The functions that load the libraries. Tests pass their own functions.
  struct Libraries {
    std::function<absl::StatusOr<const ronda_cuda_plugin*>()> cuda;
    NcclLoader nccl;
  };

  // How to find ranks that share a device. kUuid: two ranks share a device if their devices have the same UUID, on any
  // hosts, or the same PCI bus on the same host. kPlace: only the PCI bus on the same host counts. With NCCL_HOSTID a
  // user can make NCCL treat ranks of one host as ranks on several hosts, and so let them share a device.
  enum class Identity : uint8_t { kUuid, kPlace };

  // `hostname` is the name of this machine. Loads no library yet.
  static std::shared_ptr<DeviceSupport> Create(const DeviceSettings& settings, const std::string& hostname);

  // `host` is the name that NCCL gives this host.
  DeviceBackends(Libraries libraries, std::string wanted, std::string host, Identity identity = Identity::kUuid,
                 NcclSettings nccl = {})
      : libraries_(std::move(libraries)),
        wanted_(std::move(wanted)),
        host_(std::move(host)),
        identity_(identity),
        nccl_(nccl) {}

  absl::StatusOr<const ronda_cuda_plugin*> Plugin() override { return libraries_.cuda(); }
  std::string Facts(Device& device) override;
  absl::StatusOr<DeviceTransport> Connect(const Request& request) override;
  absl::StatusOr<std::unique_ptr<DirectTransport>> ConnectDirectly(const DirectRequest& request) override;

 private:
  const Libraries libraries_;
  const std::string wanted_;
  const std::string host_;
  const Identity identity_;
  const NcclSettings nccl_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BACKENDS_DEVICE_BACKENDS_H_
