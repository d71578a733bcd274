#ifndef RONDA_RUNTIME_COLLECTIVES_TRANSPORT_H_
#define RONDA_RUNTIME_COLLECTIVES_TRANSPORT_H_

#include <memory>
#include <optional>

#include "runtime/collectives/communicator.h"
#include "runtime/collectives/device_transport.h"
#include "runtime/collectives/host_map.h"
#include "runtime/control/control_plane.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// One rank's connection to the rest of the job. The control plane and the communicator share their failure: after
// ControlPlane::Fail, or a peer's death, the communicator's calls return it too.
struct Transport {
  std::unique_ptr<ControlPlane> control;
  std::unique_ptr<Communicator> communicator;
  std::shared_ptr<FlightBoard> flights;             // of all ranks; never nullptr
  std::optional<HostLevels> levels = std::nullopt;  // the communicator's, which owns them; nullopt: it has none
  // For tensors in the memory of devices; nullptr: such tensors are refused.
  std::shared_ptr<DeviceSupport> devices = nullptr;
  // Destroyed first: prepares the departure of this rank from what the other members still use. May be nullptr.
  std::shared_ptr<const void> departure = nullptr;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_TRANSPORT_H_
