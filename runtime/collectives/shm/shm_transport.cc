#include "runtime/collectives/shm/shm_transport.h"

#include <memory>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/shm/shm_communicator.h"
#include "runtime/control/shm/shm_control_plane.h"

namespace ronda {
namespace {

Transport MakeTransport(const std::shared_ptr<ShmWorld>& world) {
  return {.control = std::make_unique<ShmControlPlane>(world),
          .communicator = std::make_unique<ShmCommunicator>(world),
          .flights = world->flights()};
}

}  // namespace

absl::StatusOr<Transport> ConnectShmTransport(ShmWorld::Options options) {
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<ShmWorld> world, ShmWorld::Connect(std::move(options)));
  return MakeTransport(world);
}

absl::StatusOr<std::vector<Transport>> ConnectShmTransportsInProcess(ShmWorld::Options options) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<std::shared_ptr<ShmWorld>> worlds,
                         ShmWorld::ConnectInProcess(std::move(options)));
  std::vector<Transport> transports;
  transports.reserve(worlds.size());
  for (const std::shared_ptr<ShmWorld>& world : worlds) transports.push_back(MakeTransport(world));
  return transports;
}

}  // namespace ronda
