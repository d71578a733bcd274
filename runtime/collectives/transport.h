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

// One rank's connection to the rest of the job. The two halves share their failure: what ControlPlane::Fail records,
// or a peer's death, makes the communicator's calls return it too.
struct Transport {
  std::unique_ptr<ControlPlane> control;
  std::unique_ptr<Communicator> communicator;
  std::shared_ptr<FlightBoard> flights;             // of all ranks; never nullptr
  std::optional<HostLevels> levels = std::nullopt;  // of the communicator, and owned by it; nullopt: it has none
  // For tensors in the memory of devices; nullptr: they are refused.
  std::shared_ptr<DeviceSupport> devices = nullptr;
  // Destroyed first: decides how this rank leaves what the other parts still use. May be nullptr.
  std::shared_ptr<const void> departure = nullptr;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_TRANSPORT_H_
