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
#include "runtime/base/peer.h"
#include "runtime/collectives/host_map.h"
#include "runtime/collectives/nccl/nccl_arithmetic.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/collectives/transport.h"

namespace ronda {

// Facts about a rank's device. The ranks exchange them, so that all choose the same backend.
struct DeviceFacts {
  std::string host;         // the name that NCCL gives the host
  std::string pci_bus;      // NCCL before 2.30.7 rejects two ranks of a host with the same PCI bus
  std::string uuid;         // of the device or its part, equal in all containers; empty: not compared
  std::string nccl;         // the version of NCCL; empty: NCCL is not available
  std::string why_no_nccl;  // the reason, if NCCL is not available
  std::string wanted;       // RONDA_DEVICE_BACKEND; rank 0's applies
  std::string why_no_peer;  // the reason, if the device cannot share memory with other ranks
  std::string order;        // "ranks" with RONDA_REPRODUCIBLE, otherwise empty; rank 0's applies
  std::string windows;      // "symmetric" with RONDA_NCCL_WINDOWS, otherwise empty; rank 0's applies
  std::string events;       // ranks with the same value can read each other's flight recorders
  std::string memory_mb;    // RONDA_LANE_MEMORY_MB; empty: 0; rank 0's applies
  std::string gradient_mb;  // RONDA_GRADIENT_MEMORY_MB; empty: 0; rank 0's applies
  std::string in_place;     // "adjacent" with RONDA_REDUCE_IN_PLACE, otherwise empty; rank 0's applies

  friend bool operator==(const DeviceFacts&, const DeviceFacts&) = default;
};

// Encodes the facts in one line of at most `longest` characters. Shortens the reasons if necessary, and replaces
// `host` or `events` by its hash if it is long or contains a tab.
std::string Encode(const DeviceFacts& facts, size_t longest);
// Errors: INTERNAL if `text` is not a result of Encode().
absl::StatusOr<DeviceFacts> DecodeDeviceFacts(absl::string_view text);

// How to use NCCL. Must be the same on all ranks of a communicator.
struct NcclSettings {
  SumOrder order = SumOrder::kOfNccl;
  NcclWindows windows = NcclWindows::kNone;
  bool reduces_in_place = false;   // adjacent tensors
  int64_t lane_memory_mb = 0;      // MiB that each lane registers; 0: none
  int64_t gradient_memory_mb = 0;  // MiB that all ranks register for gradients; 0: none
};

// Returns the settings of the first rank in `facts`, which apply to all ranks in `facts`. Errors: those of
// DecodeDeviceFacts().
absl::StatusOr<NcclSettings> NcclSettingsOf(absl::Span<const std::string> facts);

// The facts that decide between the backends for GPU memory.
struct DeviceSituation {
  absl::Span<const DeviceFacts> facts;  // by rank
  const HostMap* hosts = nullptr;       // the levels of the hosts' communicator; nullptr: it has one level
};

// Provides this machine's CUDA devices, and the backends that connect the devices of all ranks.
//
// Thread-safe: ranks in the same process may share it.
class DeviceBackends : public DeviceSupport {
 public:
  // Functions that load the libraries. Tests pass their own.
  struct Libraries {
    std::function<absl::StatusOr<const ronda_cuda_plugin*>()> cuda;
    NcclLoader nccl;
  };

  // How to detect ranks that share a device. kUuid: their devices have the same UUID, on any hosts, or the same PCI bus
  // on the same host. kPlace: only the latter counts. With NCCL_HOSTID, users can make NCCL treat ranks of one host as
  // ranks of several hosts, and so let them share a device.
  enum class Identity : uint8_t { kUuid, kPlace };

  // `hostname` is this machine's name. Does not load any library yet.
  static std::shared_ptr<DeviceSupport> Create(const DeviceSettings& settings, const std::string& hostname);

  // `host` is the name that NCCL gives this host. `events` is DeviceFacts::events.
  DeviceBackends(Libraries libraries, std::string wanted, std::string host, Identity identity = Identity::kUuid,
                 NcclSettings nccl = {}, std::string events = HostId())
      : libraries_(std::move(libraries)),
        wanted_(std::move(wanted)),
        host_(std::move(host)),
        identity_(identity),
        nccl_(nccl),
        events_(std::move(events)) {}

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
  const std::string events_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BACKENDS_DEVICE_BACKENDS_H_
