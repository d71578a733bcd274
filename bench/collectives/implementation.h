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

// The caller's memory for a case: input_count() and output_count() elements; the pointers are equal if the operation is
// in place.
struct CaseBuffers {
  void* input = nullptr;
  void* output = nullptr;
};

// An implementation of collectives, timed interleaved with others: a layer of Ronda, or a peer. Every rank makes the
// same calls. Thread-compatible.
class Implementation {
 public:
  enum class Kind { kRonda, kPeer };

  virtual ~Implementation() = default;

  virtual std::string name() const = 0;
  virtual Kind kind() const = 0;

  // Gets ready for Run() of `shape`, which replaces the previous shape; not timed. False: this implementation does not
  // support it. The buffers outlive the next Prepare() and this implementation.
  virtual absl::StatusOr<bool> Prepare(const CollectiveCase& shape, const CaseBuffers& buffers) = 0;

  // The algorithm of the prepared case; empty if the implementation has no choice.
  virtual std::string algorithm() const { return ""; }

  // Runs the prepared case, and returns its result, valid until the next call. An error ends the process.
  virtual const void* Run() = 0;
};

// Ronda's communicator alone, over its own connection.
absl::StatusOr<std::unique_ptr<Implementation>> ConnectCommunicator(const LaunchedRank& launched,
                                                                    const ConnectOptions& options);

// Makes communicators for `ranks` ranks that are threads of this process, one implementation per rank.
std::vector<std::unique_ptr<Implementation>> MakeInProcessRanks(int ranks);

// The tensors of successive allreduces. They are `names` tensors in turn, and another tensor at every `other_every`-th
// call (0: never). The other tensor stands for a metric that a program sometimes reduces.
struct CallPattern {
  int names = 1;
  int other_every = 0;
};

// Ronda through the client's API, which must be initialized.
std::unique_ptr<Implementation> MakeClient(const CallPattern& pattern = {});

// `peer` and `group` outlive the implementation.
std::unique_ptr<Implementation> MakePeer(Peer* peer, ProcessGroup* group);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_COLLECTIVES_IMPLEMENTATION_H_
