// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_COLLECTIVES_IMPLEMENTATION_H_
#define RONDA_BENCH_COLLECTIVES_IMPLEMENTATION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/collectives/collective_case.h"
#include "bench/harness/peers.h"
#include "bench/harness/process_group.h"

namespace ronda::bench {

// The caller's memory for a case. `input` has input_count() elements, and `output` has output_count(). The two pointers
// are equal if the operation is in place.
struct CaseBuffers {
  void* input = nullptr;
  void* output = nullptr;
};

// An implementation of collectives: a layer of Ronda, or a peer. The benchmark times several implementations in turn.
// Every rank must make the same calls. Thread-compatible.
class Implementation {
 public:
  enum class Kind { kRonda, kPeer };

  virtual ~Implementation() = default;

  virtual std::string name() const = 0;
  virtual Kind kind() const = 0;

  // Prepares Run() for `shape`, which replaces the previous shape. Preparation is not timed. Returns false if this
  // implementation does not support `shape`. `buffers` must outlive the prepared case, which ends with the next
  // Prepare() or with this object.
  virtual absl::StatusOr<bool> Prepare(const CollectiveCase& shape, const CaseBuffers& buffers) = 0;

  // Returns the name of the algorithm that runs the prepared case, or "" if the implementation has only one.
  virtual std::string algorithm() const { return ""; }

  // Runs the prepared case, and returns its result, which stays valid until the next call. Exits the process on an
  // error.
  virtual const void* Run() = 0;
};

// Connects Ronda's communicator layer, without the layers above it, over a new connection.
absl::StatusOr<std::unique_ptr<Implementation>> ConnectCommunicator(const LaunchedRank& launched,
                                                                    const ConnectOptions& options);

// Returns one implementation for each of `ranks` ranks, which are threads of this process.
std::vector<std::unique_ptr<Implementation>> MakeInProcessRanks(int ranks);

// Selects the tensors that successive allreduces reduce. They cycle through `names` tensors. Every `other_every`-th
// call reduces one further tensor instead (0: no call does). This further tensor stands for a metric that a program
// reduces now and then.
struct CallPattern {
  int names = 1;
  int other_every = 0;
};

// Returns an implementation that calls the client's API. REQUIRES: the client is initialized.
std::unique_ptr<Implementation> MakeClient(const CallPattern& pattern = {});

// `peer` and `group` outlive the implementation.
std::unique_ptr<Implementation> MakePeer(Peer* peer, ProcessGroup* group);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_COLLECTIVES_IMPLEMENTATION_H_
