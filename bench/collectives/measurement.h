// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_COLLECTIVES_MEASUREMENT_H_
#define RONDA_BENCH_COLLECTIVES_MEASUREMENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/collectives/collective_case.h"
#include "bench/collectives/implementation.h"
#include "bench/harness/process_group.h"
#include "bench/harness/results.h"

namespace ronda::bench {

// The ranks of one implementation that run in this process. Usually this process has one rank, which runs on the
// calling thread. If the ranks are threads, they all run in the first process, and the other processes have none. Every
// process must make the same calls. Thread-compatible.
class LocalRanks {
 public:
  // `implementation` makes the calls of rank `rank`.
  LocalRanks(std::unique_ptr<Implementation> implementation, int rank);

  // `implementations` make the calls of ranks 0, 1, and so on. The list is empty in all processes but the first. All
  // implementations share the name `name`.
  LocalRanks(std::string name, std::vector<std::unique_ptr<Implementation>> implementations);

  const std::string& name() const { return name_; }
  Implementation::Kind kind() const;
  std::string algorithm() const;

  // Prepares all local ranks, like Implementation::Prepare. `buffers` are for the first local rank; the other local
  // ranks allocate their own.
  absl::StatusOr<bool> Prepare(const CollectiveCase& shape, const CaseBuffers& buffers);

  // Zeroes the inputs and outputs of the local ranks, so that their sums stay zero.
  void Clear();

  // Waits until all local ranks are ready, and runs the prepared case `times` times. Returns the time of the slowest
  // local rank, in seconds.
  double Run(int times);

  // Runs the case once more, checks every element, and returns the number of wrong elements on the local ranks.
  int64_t CountWrong();

 private:
  struct Member {
    std::vector<AlignedBytes> memory = {};  // of `buffers`, unless they are the caller's; outlives the implementation
    std::unique_ptr<Implementation> implementation;
    int rank = 0;
    CaseBuffers buffers = {};
  };

  // Calls `body` for all members concurrently. If there are several members, each runs on its own thread.
  void ForEach(absl::FunctionRef<void(Member& member)> body);

  std::string name_;
  std::vector<Member> members_;
  CollectiveCase shape_;
};

struct InterleavingOptions {
  int rounds = 9;                                      // of one block of each implementation
  absl::Duration block_time = absl::Milliseconds(20);  // of a block, roughly
  int max_iterations = 2000;                           // in such a block
  int iterations = 0;                                  // in a block; 0: as many as last for block_time
  int warm_up = -1;                                    // iterations before the first block; -1: as many as in a block
};

// The times of one implementation.
struct Timing {
  std::vector<double> microseconds;  // per iteration, on the slowest rank; one number per round
  int iterations = 0;                // in a block
};

// Returns how many iterations fit into `block_time`: at most `max_iterations`, but at least 2, so that at least one
// iteration follows another of the same implementation.
int IterationsFor(double seconds_each, const InterleavingOptions& options);

// Runs `iterations` iterations of an implementation, and returns the seconds that they took on this rank.
using Block = std::function<double(int iterations)>;

// Warms up each implementation, and then times them in turn. Each round runs one block of each implementation, with
// barriers in between. All blocks of an implementation run the same number of iterations. Because the blocks alternate,
// a change in the machine's speed affects all implementations alike. Returns the same times on every rank.
std::vector<Timing> TimeInterleaved(const std::vector<Block>& blocks, const InterleavingOptions& options,
                                    ProcessGroup* group);

// The result of one implementation in one case.
struct CaseOutcome {
  std::string implementation;
  Implementation::Kind kind = Implementation::Kind::kRonda;
  std::string algorithm;
  Timing timing;
  int64_t wrong = 0;  // elements, on all ranks
};

// Returns the message's bytes divided by the time, in decimal gigabytes per second.
double AlgorithmBandwidth(const CollectiveCase& shape, double microseconds);

// Returns a row of results for each outcome of one case. Each row of a Ronda layer has, for each peer, the ratio of the
// peer's time to the layer's time. The ratio is the median over the rounds.
std::vector<ResultRow> RowsOf(const CollectiveCase& shape, const std::vector<CaseOutcome>& outcomes);

// Returns one line per implementation in `rows`, like the last line of NCCL's tests. The line states the mean bus
// bandwidth over all rows of the implementation. Barriers are left out, because they have no bandwidth. Returns "" if
// no row has a bandwidth.
std::string AverageBandwidths(const std::vector<ResultRow>& rows);

// Returns the table for the rows of RowsOf(), with one column per peer.
Table CollectivesTable(const std::vector<std::string>& peers);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_COLLECTIVES_MEASUREMENT_H_
