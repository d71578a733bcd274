// SPDX-License-Identifier: Apache-2.0

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
  ShmGeometry geometry;  // valid; the same on every rank. The mapping may have smaller slots
  absl::Duration timeout = absl::Seconds(30);
  absl::Duration refusal_time = absl::Seconds(1);  // how long the other ranks have to read why rank 0 gave up
};

struct ShmAttached {
  std::shared_ptr<ShmMapping> mapping;
  ShmGeometry geometry;  // of the mapping
};

// Connects the ranks of one host through one piece of shared memory. Rank 0 creates shared memory that has no name. The
// memory is a memfd. If the system refuses memfds, the memory is a removed file in the first of ShmFolders() with
// enough room. Rank 0 logs a warning if the file is outside of /dev/shm, or if the memory has room only for smaller
// slots. Rank 0 makes a link (ShmLink) in the first of ShmFolders() that accepts a link. The link shows the other ranks
// where the memory is. The other ranks wait until the link exists. After that, they open and check the memory, and
// write their pids to it. When all ranks have attached, the link is removed, and AttachAllRanks returns. If the ranks
// are killed before the link has been removed, only the link is left behind.
//
// Errors (every rank gets the same reason, if a link or the memory can pass it on):
//  - RESOURCE_EXHAUSTED if the memory has no room for the smallest slots.
//  - DEADLINE_EXCEEDED that names the missing ranks.
//  - ALREADY_EXISTS if another job has the name, or another process has the rank.
//  - FAILED_PRECONDITION if the memory has another version or size, if other processes are already in a later epoch of
//    the job, or if there is no /proc.
//  - PERMISSION_DENIED if no folder accepts the link, or if rank 0's process lets no other process open its memory.
//  - UNAVAILABLE if rank 0 died.
absl::StatusOr<ShmAttached> AttachAllRanks(const ShmAttachOptions& options);

// Like AttachAllRanks, but the ranks are threads of this process and share one mapping.
absl::StatusOr<std::shared_ptr<ShmMapping>> AttachAllRanksInProcess(const ShmGeometry& geometry);

// Returns whether the ranks together may use at least one core per rank. If every rank has a core, a rank that spins
// takes no core from another rank.
bool HasCoreForEachRank(const ShmView& view);

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_ATTACH_H_
