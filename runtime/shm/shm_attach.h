#ifndef RONDA_RUNTIME_SHM_SHM_ATTACH_H_
#define RONDA_RUNTIME_SHM_SHM_ATTACH_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/shm/layout.h"
#include "runtime/shm/shm_file.h"

namespace ronda {

struct ShmAttachOptions {
  std::string job_id;
  int64_t epoch = 0;  // of the job
  Peer self;
  ShmGeometry geometry;  // valid; the same on every rank. Of the slots' bytes there may be fewer
  absl::Duration timeout = absl::Seconds(30);
  absl::Duration refusal_time = absl::Seconds(1);  // the time that the other ranks get to read why rank 0 gave up
};

struct ShmAttached {
  std::shared_ptr<ShmMapping> mapping;
  ShmGeometry geometry;  // of the mapping
};

// Brings the ranks of one host together in one piece of shared memory. Rank 0 creates it in the first of ShmFolders()
// that can hold it; with a warning, if that is not /dev/shm, or if there is room for smaller slots only. The others
// wait for it, check it, and enter their pid. When all have attached, the name is removed, so that nothing remains if
// the ranks are killed, and the call returns.
//
// Errors, with the same reason on every rank if there is memory to tell it: RESOURCE_EXHAUSTED if no folder has room
// for the smallest slots; DEADLINE_EXCEEDED that names the missing ranks; ALREADY_EXISTS if another job has the name or
// another process has the rank; FAILED_PRECONDITION if the memory is of another version or size, or if other processes
// are in a later epoch of the job already; UNAVAILABLE if rank 0 died.
absl::StatusOr<ShmAttached> AttachAllRanks(const ShmAttachOptions& options);

// AttachAllRanks for ranks that are threads of this process and share one mapping.
absl::StatusOr<std::shared_ptr<ShmMapping>> AttachAllRanksInProcess(const ShmGeometry& geometry);

// Whether the ranks together may use at least as many cores as there are ranks, so that a spinning rank takes no other
// rank's core.
bool HasCoreForEachRank(const ShmView& view);

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_ATTACH_H_
