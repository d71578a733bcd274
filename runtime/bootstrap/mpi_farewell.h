#ifndef RONDA_RUNTIME_BOOTSTRAP_MPI_FAREWELL_H_
#define RONDA_RUNTIME_BOOTSTRAP_MPI_FAREWELL_H_

#include <memory>
#include <utility>

#include "runtime/control/control_plane.h"
#include "runtime/mpi/mpi_session.h"

namespace ronda {

// Decides how a rank leaves MPI: through MPI_Finalize, where all ranks meet once more, or not at all if the job has
// failed, as ranks that are gone would be waited for. A Transport destroys its farewell before what uses MPI.
class MpiFarewell {
 public:
  // `control` outlives it.
  MpiFarewell(std::shared_ptr<MpiSession> session, const ControlPlane* control)
      : session_(std::move(session)), control_(control) {}

  ~MpiFarewell() {
    if (!control_->failure().ok()) session_->LeaveWithoutEnd();
  }

  MpiFarewell(const MpiFarewell&) = delete;
  MpiFarewell& operator=(const MpiFarewell&) = delete;

 private:
  const std::shared_ptr<MpiSession> session_;
  const ControlPlane* const control_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BOOTSTRAP_MPI_FAREWELL_H_
