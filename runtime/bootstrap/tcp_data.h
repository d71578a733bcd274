#ifndef RONDA_RUNTIME_BOOTSTRAP_TCP_DATA_H_
#define RONDA_RUNTIME_BOOTSTRAP_TCP_DATA_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/types.h"
#include "runtime/bootstrap/meeting.h"
#include "runtime/collectives/messages/point_to_point.h"
#include "runtime/tcp/tcp_mesh.h"

namespace ronda {

struct TcpDataOptions {
  RankId rank = 0;
  absl::Duration timeout = absl::Seconds(30);
  std::function<absl::Status()> job_failure;
};

// Connects this rank over TCP with those of the meeting that are on `levels`, where the membership says they listen.
// Errors: ConnectTcp's; FAILED_PRECONDITION if a rank is not on loopback and the job has no secret.
// REQUIRES: all members have a place for data.
absl::StatusOr<std::vector<std::unique_ptr<PointToPoint>>> ConnectTcpData(const Meeting& meeting,
                                                                          const std::vector<TcpLevel>& levels,
                                                                          const TcpDataOptions& options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BOOTSTRAP_TCP_DATA_H_
