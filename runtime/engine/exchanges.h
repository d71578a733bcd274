#ifndef RONDA_RUNTIME_ENGINE_EXCHANGES_H_
#define RONDA_RUNTIME_ENGINE_EXCHANGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/collectives/communicator.h"
#include "runtime/engine/bucket_run.h"
#include "runtime/engine/data_plane.h"

namespace ronda {

// Carries out what moves tensors without computing: broadcast, allgather, gather, scatter, alltoall, send/recv and
// barrier, one call to the communicator a tensor.
//
// How the rows of an alltoall or scatter are split only the senders know; the communicator wants to know it on every
// rank of the job. So the splits travel first, over the whole job.
//
// Thread-compatible: used by the thread that has the turn (engine_driver.h). The plane and `host`,
// the communicator that moves what is in the host's memory, are not owned.
class Exchanges {
 public:
  Exchanges(DataPlane* plane, Communicator* host) : plane_(plane), host_(host) {}

  // Errors: the communicator's; RESOURCE_EXHAUSTED if there is no memory for a result.
  absl::Status Run(const BucketRun& run);

 private:
  absl::Status RunOne(const BucketRun& run, size_t i);
  absl::Status Broadcast(const BucketRun& run, size_t i);
  absl::Status Gather(const BucketRun& run, size_t i);
  absl::Status Scatter(const BucketRun& run, size_t i);
  absl::Status Alltoall(const BucketRun& run, size_t i);
  absl::Status SendRecv(const BucketRun& run, size_t i);

  // Sends rows as `splits` says ([sender * participants + receiver]) and leaves what arrives with the result, but for
  // the first dimensions.
  absl::Status MoveRows(const BucketRun& run, size_t i, const std::vector<int64_t>& splits);
  // How many rows each participant sends to each.
  absl::StatusOr<std::vector<int64_t>> ShareSplits(const BucketRun& run, size_t i);

  DataPlane* const plane_;
  Communicator* const host_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_EXCHANGES_H_
