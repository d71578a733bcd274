// What ranks tell each other about themselves when they meet, so that a job that cannot work ends with the name of the
// odd rank, and what rank 0 has set holds for all.
#ifndef RONDA_RUNTIME_BOOTSTRAP_RANK_FACTS_H_
#define RONDA_RUNTIME_BOOTSTRAP_RANK_FACTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/config.h"
#include "runtime/control/rendezvous/membership.h"

namespace ronda {

// Facts about this process and its settings. `mpi_library` says which MPI it would use.
std::vector<Fact> FactsOf(const Config& config, absl::string_view mpi_library);

// What connecting the ranks depends on.
struct ConnectionSettings {
  std::string backend;  // as Config::backend
  MpiEnvironment::Use mpi = MpiEnvironment::Use::kAutomatic;
  absl::Duration heartbeat = absl::Seconds(1);
  absl::Duration heartbeat_timeout = absl::Seconds(10);
};

// Those of `rank0`, as its facts say them.
// Errors: INVALID_ARGUMENT if they do not.
absl::StatusOr<ConnectionSettings> SettingsOf(const Member& rank0);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BOOTSTRAP_RANK_FACTS_H_
