// SPDX-License-Identifier: Apache-2.0

// Finds the epochs of a job that have processes on this host. Every rank holds a descriptor of its job's shared memory,
// a file whose name contains the job and the epoch. The kernel shows the name in /proc/PID/fd.
#ifndef RONDA_RUNTIME_SHM_EPOCH_SEARCH_H_
#define RONDA_RUNTIME_SHM_EPOCH_SEARCH_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ronda {

// Returns the name of a job's shared memory in an epoch, and of the link to it: "/ronda-<job id>", or "/ronda-<job
// id>@<epoch>" after the first epoch.
std::string ShmNameOf(absl::string_view job_id, int64_t epoch);

// Returns the epoch in `target`, the target of a link in /proc/PID/fd such as "/memfd:ronda-shm/ronda-<job id>@3
// (deleted)". Returns nullopt if the target is not that job's shared memory.
std::optional<int64_t> EpochInLink(absl::string_view target, absl::string_view job_id);

// A process that is in an epoch of the job.
struct EpochHolder {
  int64_t epoch = 0;
  pid_t pid = 0;
};

// Searches from time to time for processes of this user in a different epoch of the job, while this rank waits for the
// other ranks of its own epoch. Every search reads all of /proc, and takes longer the more ranks run on the host. So a
// rank starts searching only after it has waited longer than usual, the pauses between its searches grow, and the ranks
// search at different times. All searches together take only a small share of the host's CPU time.
//
// Thread-compatible.
class EpochSearch {
 public:
  // This rank, and the number of ranks on this host.
  struct Place {
    int rank = 0;
    int size = 1;
  };
  EpochSearch(std::string job_id, int64_t epoch, const Place& place, absl::Time now);

  // Searches if a search is due. Returns a process in the highest epoch other than this rank's.
  std::optional<EpochHolder> LookIfDue(absl::Time now);

  // Returns the time of the next search.
  absl::Time next() const { return next_; }

  // Like LookIfDue(), but always searches.
  std::optional<EpochHolder> Look() const;

 private:
  const std::string job_id_;
  const int64_t epoch_;
  const absl::Duration shortest_pause_;
  absl::Duration pause_;
  absl::Time next_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_EPOCH_SEARCH_H_
