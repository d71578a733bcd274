// What carries tensors in the memory of GPUs between the ranks of a job.
#ifndef RONDA_RUNTIME_BOOTSTRAP_DEVICE_CHOICE_H_
#define RONDA_RUNTIME_BOOTSTRAP_DEVICE_CHOICE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/collectives/host_map.h"

namespace ronda {

enum class DeviceBackend {
  kNccl,
  kHierarchicalStaged,  // NCCL on each host, across hosts what carries the host's memory there
  kStaged,
  kHierarchicalNccl,  // NCCL on each host, and NCCL across hosts
};

// "nccl": its value in RONDA_DEVICE_BACKEND.
absl::string_view Name(DeviceBackend backend);
std::optional<DeviceBackend> DeviceBackendFromName(absl::string_view name);

// What the ranks have to know of one another's devices.
struct DeviceFacts {
  std::string host;         // what NCCL takes it for
  std::string pci_bus;      // NCCL refuses two ranks with the same one on the same host
  std::string uuid;         // of the device, the same wherever it is seen from; empty: not to be looked at
  std::string nccl;         // its version; empty: none can be used
  std::string why_no_nccl;  // then
  std::string wanted;       // RONDA_DEVICE_BACKEND; rank 0's holds

  friend bool operator==(const DeviceFacts&, const DeviceFacts&) = default;
};

// One line, of at most `longest` characters: the reason is cut if it must be.
std::string Encode(const DeviceFacts& facts, size_t longest);
// Errors: INTERNAL if `text` is not from Encode.
absl::StatusOr<DeviceFacts> DecodeDeviceFacts(absl::string_view text);

// What a backend would be worth to the job.
struct DeviceRating {
  DeviceBackend backend = DeviceBackend::kStaged;
  int score = 0;  // the highest wins; 0: it cannot carry the job's tensors
  std::string reason;
};

// Of all backends, best first; `facts` are by rank. `hosts`: those between which the communicator of the host has a
// level of its own; nullptr: it has none.
std::vector<DeviceRating> RateDeviceBackends(absl::Span<const DeviceFacts> facts, const HostMap* hosts);

// The best one, or the one that rank 0 wants.
// Errors: FAILED_PRECONDITION that says why the one that is wanted cannot.
absl::StatusOr<DeviceBackend> ChooseDeviceBackend(absl::Span<const DeviceRating> ratings, absl::string_view wanted);

// "nccl (score 200: ...), staged (score 100: ...), hierarchical-nccl (no: ...)"
std::string ToString(absl::Span<const DeviceRating> ratings);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BOOTSTRAP_DEVICE_CHOICE_H_
