// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_HARNESS_PROCESS_GROUP_H_
#define RONDA_BENCH_HARNESS_PROCESS_GROUP_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/harness/launch.h"
#include "runtime/collectives/transport.h"
#include "runtime/mpi/mpi_session.h"

namespace ronda::bench {

struct ConnectOptions {
  std::string suffix;      // distinguishes several connections of a job
  size_t chunk_bytes = 0;  // 0: the backend's own choice
  int chunks = 0;          // in a rank's ring; 0: the backend's own choice
};

// Connects this rank to the other ranks through Ronda's communicator, without the client or its background thread. Uses
// shared memory or, if the ranks cannot use it, the backend that ronda::init() would choose.
absl::StatusOr<Transport> Connect(const LaunchedRank& launched, const ConnectOptions& options);

// Synchronizes the ranks of a benchmark over connections that are separate from those of the measured backends. Every
// rank must make the same calls.
//
// On an error, such as the death of another rank, prints the error and exits the process, because nothing is left to
// measure. Thread-compatible.
class ProcessGroup {
 public:
  // Errors: those of Connect().
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> Create(const LaunchedRank& launched);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return launched_.rank; }
  int size() const { return launched_.size; }
  bool is_first() const { return launched_.rank == 0; }

  void Barrier();
  double Max(double value);                 // over the ranks
  int64_t Sum(int64_t value);               // over the ranks
  std::string FromFirst(std::string text);  // rank 0's

 private:
  ProcessGroup(LaunchedRank launched, std::shared_ptr<MpiSession> session, Transport transport)
      : launched_(std::move(launched)), session_(std::move(session)), transport_(std::move(transport)) {}
  void Reduce(DType dtype, ReduceOp op, void* value);

  const LaunchedRank launched_;
  const std::shared_ptr<MpiSession> session_;  // keeps MPI alive, which cannot begin twice; may be nullptr
  const Transport transport_;
};

// If `status` is an error, prints it to stderr and exits the process with exit code 1.
void ExitIfError(const absl::Status& status);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_PROCESS_GROUP_H_
