#include "runtime/collectives/inprocess/in_process_world.h"

#include <utility>

#include "runtime/base/logging.h"
#include "runtime/collectives/inprocess/in_process_communicator.h"
#include "runtime/control/inprocess/in_process_control_plane.h"

namespace ronda {

std::unique_ptr<InProcessWorld> InProcessWorld::Create(Options options) {
  RONDA_CHECK(options.size > 0);
  return std::unique_ptr<InProcessWorld>(new InProcessWorld(std::move(options)));
}

InProcessWorld::InProcessWorld(Options options) : job_(std::make_shared<InProcessJob>(std::move(options))) {}

Transport InProcessWorld::Connect(RankId rank) {
  RONDA_CHECK(0 <= rank && rank < size());
  return {.control = std::make_unique<InProcessControlPlane>(job_, rank),
          .communicator = std::make_unique<InProcessCommunicator>(job_, rank),
          .flights = job_->flights()};
}

}  // namespace ronda
