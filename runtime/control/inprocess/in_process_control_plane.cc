#include "runtime/control/inprocess/in_process_control_plane.h"

#include "runtime/base/logging.h"

namespace ronda {

absl::Status InProcessControlPlane::Broadcast(absl::string_view payload) {
  RONDA_CHECK(rank_ == kCoordinatorRank);
  return job_->Broadcast(payload);
}

}  // namespace ronda
