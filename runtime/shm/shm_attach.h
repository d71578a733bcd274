#ifndef RONDA_RUNTIME_SHM_SHM_ATTACH_H_
#define RONDA_RUNTIME_SHM_SHM_ATTACH_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/shm/layout.h"
#include "runtime/shm/shm_file.h"

namespace ronda {

struct ShmAttachOptions {
  std::string name;  // of the shared memory: "/ronda-<job id>"
  Peer self;
  ShmGeometry geometry;  // valid, and the same on every rank
  absl::Duration timeout = absl::Seconds(30);
  absl::Duration refusal_time = absl::Seconds(1);  // for which rank 0 lets the others read why it gave up
};

// Brings the ranks of one host together in one piece of shared memory. Rank 0 creates it; the others wait for it, check
// what they find, and enter their pid; once all have, the name is removed, so that nothing remains when they are
// killed. When it returns, all ranks have attached.
//
// Errors, with the same reason on every rank where there is memory left to tell it: RESOURCE_EXHAUSTED if /dev/shm is
// full; DEADLINE_EXCEEDED naming the ranks that are missing; ALREADY_EXISTS if another job has the name or another
// process the rank; FAILED_PRECONDITION if what was found is not of this job's version and sizes; UNAVAILABLE if rank 0
// died.
absl::StatusOr<std::shared_ptr<ShmMapping>> AttachAllRanks(const ShmAttachOptions& options);

// The same for ranks that are threads of this process and share one mapping.
absl::StatusOr<std::shared_ptr<ShmMapping>> AttachAllRanksInProcess(const ShmGeometry& geometry);

// Whether the ranks together may run on so many cores that one can spin without keeping another from its work.
bool HasCoreForEachRank(const ShmView& view);

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_ATTACH_H_
