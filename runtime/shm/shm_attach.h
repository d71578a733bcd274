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
  absl::Duration refusal_time = absl::Seconds(1);  // how long rank 0 publishes why it gave up
};

struct ShmAttached {
  std::shared_ptr<ShmMapping> mapping;
  ShmGeometry geometry;  // of the mapping
};

// Connects the ranks of one host through shared memory. Rank 0 creates unnamed memory: a memfd or, if that fails, an
// unlinked file in the first of ShmFolders() with enough space. It logs a warning if the file is outside /dev/shm, or
// if only smaller slots fit. In the first of ShmFolders() that accepts it, rank 0 creates a link (ShmLink) that tells
// the other ranks where the memory is. The other ranks wait for the link, open and check the memory, and write their
// pids to it. When all ranks have attached, rank 0 removes the link, and AttachAllRanks() returns. If the ranks are
// killed before that, only the link is left behind.
//
// Errors (the same on every rank, if the link or the memory can pass them on):
//  - RESOURCE_EXHAUSTED if even the smallest slots do not fit.
//  - DEADLINE_EXCEEDED that names the missing ranks.
//  - ALREADY_EXISTS if another job has the same name, or another process the same rank.
//  - FAILED_PRECONDITION if the memory has a different version or size, if other processes are already in a later epoch
//    of the job, or if there is no /proc.
//  - PERMISSION_DENIED if no folder accepts the link, or if other processes cannot open the memory of rank 0's process.
//  - UNAVAILABLE if rank 0 died.
absl::StatusOr<ShmAttached> AttachAllRanks(const ShmAttachOptions& options);

// Like AttachAllRanks, but the ranks are threads of this process and share one mapping.
absl::StatusOr<std::shared_ptr<ShmMapping>> AttachAllRanksInProcess(const ShmGeometry& geometry);

// Returns whether the ranks together may use at least one core per rank, so that a spinning rank takes no core from
// another rank.
bool HasCoreForEachRank(const ShmView& view);

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_ATTACH_H_
