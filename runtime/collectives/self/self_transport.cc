#include "runtime/collectives/self/self_transport.h"

#include <unistd.h>

#include <memory>
#include <string>

#include "runtime/base/peer.h"
#include "runtime/collectives/self/self_communicator.h"
#include "runtime/control/self/self_control_plane.h"

namespace ronda {

Transport CreateSelfTransport(absl::string_view hostname) {
  const auto job = std::make_shared<SelfJob>(Peer{.rank = 0, .host = std::string(hostname), .pid = getpid()});
  return {.control = std::make_unique<SelfControlPlane>(job),
          .communicator = std::make_unique<SelfCommunicator>(job),
          .flights = std::make_shared<FlightBoard>(1)};
}

}  // namespace ronda
