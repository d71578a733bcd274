// The epochs of a job on this host, as the kernel knows them: every rank holds a descriptor of its job's shared memory,
// whose name has the job and the epoch, also after the name is gone from /dev/shm.
#ifndef RONDA_RUNTIME_SHM_EPOCH_SEARCH_H_
#define RONDA_RUNTIME_SHM_EPOCH_SEARCH_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ronda {

// The name of the shared memory of a job in an epoch: "/ronda-<job id>", or "/ronda-<job id>@<epoch>" after the first.
std::string ShmNameOf(absl::string_view job_id, int64_t epoch);

// The epoch in `target`, which a link in /proc/PID/fd has: "/dev/shm/ronda-<job id>@3 (deleted)". nullopt: it is no
// shared memory of that job.
std::optional<int64_t> EpochInLink(absl::string_view target, absl::string_view job_id);

// A process that is in an epoch of the job.
struct EpochHolder {
  int64_t epoch = 0;
  pid_t pid = 0;
};

// Looks from time to time whether other processes of this user are in another epoch of the job than a rank that waits
// for its own. A look reads all of /proc, so there is none before a rank has waited for longer than most ranks do, and
// they become rarer.
//
// Thread-compatible.
class EpochSearch {
 public:
  EpochSearch(std::string job_id, int64_t epoch, absl::Time now);

  // If it is time for a look: one of the other processes in the highest epoch that is not this rank's.
  std::optional<EpochHolder> LookIfDue(absl::Time now);

  // Looks now.
  std::optional<EpochHolder> Look() const;

 private:
  const std::string job_id_;
  const int64_t epoch_;
  absl::Duration pause_;
  absl::Time next_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_EPOCH_SEARCH_H_
