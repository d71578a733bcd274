// SPDX-License-Identifier: Apache-2.0

// Finds out which epochs of a job have processes on this host. Every rank holds a descriptor of its job's shared
// memory. The name of that descriptor's file contains the job and the epoch. The kernel shows the name of the file in
// /proc/PID/fd.
#ifndef RONDA_RUNTIME_SHM_EPOCH_SEARCH_H_
#define RONDA_RUNTIME_SHM_EPOCH_SEARCH_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ronda {

// Returns the name of a job's shared memory, and of the link to it, in an epoch: "/ronda-<job id>", or "/ronda-<job
// id>@<epoch>" after the first epoch.
std::string ShmNameOf(absl::string_view job_id, int64_t epoch);

// Returns the epoch in `target`, the target of a link in /proc/PID/fd: "/memfd:ronda-shm/ronda-<job id>@3 (deleted)".
// Returns nullopt if the target is not shared memory of that job.
std::optional<int64_t> EpochInLink(absl::string_view target, absl::string_view job_id);

// A process that is in an epoch of the job.
struct EpochHolder {
  int64_t epoch = 0;
  pid_t pid = 0;
};

// Searches from time to time for processes of this user that are in another epoch of the job than this rank. A rank
// uses EpochSearch while it waits for the other ranks of its own epoch. Each look reads all of /proc. So a rank first
// searches when it has waited longer than most ranks do, and the pauses between its searches grow. A look takes longer
// if more ranks run on the host. So the ranks search one after the other. All searches together take only a small share
// of the host's time.
//
// Thread-compatible.
class EpochSearch {
 public:
  // This rank, and the number of ranks that wait with it on this host.
  struct Place {
    int rank = 0;
    int size = 1;
  };
  EpochSearch(std::string job_id, int64_t epoch, const Place& place, absl::Time now);

  // If a search is due, searches. Returns a process in the highest epoch that is not the epoch of this rank.
  std::optional<EpochHolder> LookIfDue(absl::Time now);

  // Returns the time of the next search.
  absl::Time next() const { return next_; }

  // Searches now, even if no search is due.
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
