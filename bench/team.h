#ifndef RONDA_BENCH_TEAM_H_
#define RONDA_BENCH_TEAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/place.h"
#include "runtime/collectives/transport.h"
#include "runtime/mpi/mpi_session.h"

namespace ronda::bench {

// Connects this rank to the others by Ronda's communicator alone, without client or coordinator thread: over shared
// memory or, where ranks do not meet there, by the backend that ronda::init() would choose. `suffix` tells several such
// connections of a job apart. `chunk_bytes`: 0 is the backend's own choice.
struct ConnectOptions {
  std::string suffix;
  size_t chunk_bytes = 0;
  int chunks = 0;  // in a rank's ring; 0: the backend's own choice
};
absl::StatusOr<Transport> Connect(const Place& place, const ConnectOptions& options);

// How the ranks of a benchmark keep in step: apart from everything that is measured. Every rank makes the same calls.
//
// An error (the death of a peer, say) ends the process with its text: there is nothing left to measure.
// Thread-compatible.
class Team {
 public:
  // Errors: those of Connect.
  static absl::StatusOr<std::unique_ptr<Team>> Create(const Place& place);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  bool is_first() const { return place_.rank == 0; }

  void Barrier();
  double Max(double value);                 // over the ranks
  int64_t Sum(int64_t value);               // over the ranks
  std::string FromFirst(std::string text);  // rank 0's

 private:
  Team(Place place, std::shared_ptr<MpiSession> session, Transport transport)
      : place_(std::move(place)), session_(std::move(session)), transport_(std::move(transport)) {}
  void Reduce(DType dtype, ReduceOp op, void* value);

  const Place place_;
  const std::shared_ptr<MpiSession> session_;  // keeps MPI begun, as it does not begin a second time; may be nullptr
  const Transport transport_;
};

// Ends this process with exit code 1 and `status` on stderr, unless it is OK.
void ExitIfError(const absl::Status& status);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_TEAM_H_
