// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_TWO_LEVEL_REDUCE_H_
#define RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_TWO_LEVEL_REDUCE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/hierarchical/level_ops.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda {

// A thread that reduces chunks across hosts, one after the other, while its owner does other work. Each chunk is in a
// slot.
//
// Only one thread at a time may call Submit() and Await(). From Submit() until the slot has been processed, no other
// thread may use the level across hosts.
class AcrossWorker {
 public:
  // Processes one slot on the worker's thread. If it throws std::bad_alloc, Await() returns RESOURCE_EXHAUSTED.
  using Work = std::function<absl::Status(size_t slot)>;
  explicit AcrossWorker(Work work);

  // Drops all later slots, and waits until the current slot is done. A failure of the job also ends the current slot.
  ~AcrossWorker();
  AcrossWorker(const AcrossWorker&) = delete;
  AcrossWorker& operator=(const AcrossWorker&) = delete;

  // Passes a slot to the worker. The slot must stay unchanged until Await() has returned its result or the worker is
  // destroyed. REQUIRES: fewer than LevelOps::kSlots submitted slots have a result that Await() has not returned yet.
  void Submit(size_t slot);

  // Waits for the oldest slot whose result has not been returned yet, and returns it. REQUIRES: there is such a slot.
  absl::Status Await();

 private:
  static constexpr size_t kDepth = LevelOps::kSlots;

  void Run();
  // Processes the slot. Catches all standard exceptions, because an uncaught exception would terminate the process.
  absl::Status Carry(size_t slot) const;

  const Work work_;
  // Created in advance, because no memory is left when it is needed.
  const absl::Status out_of_memory_ =
      absl::ResourceExhaustedError("out of memory in the thread that reduces across hosts");
  const absl::Status exception_ = absl::InternalError("an exception in the thread that reduces across hosts");
  Mutex mu_;
  CondVar changed_;
  std::array<size_t, kDepth> slots_ ABSL_GUARDED_BY(mu_) = {};
  std::array<absl::Status, kDepth> results_ ABSL_GUARDED_BY(mu_);
  uint64_t submitted_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t done_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t awaited_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// The factors by which the results of a reduction's two levels are multiplied.
struct LevelScales {
  kernels::Scale on_host;
  kernels::Scale across;
};
// Divides the postscale of `call` between the levels. Between the levels, a host's sum is rounded to the type in which
// elements travel. In float16, the sum may overflow although the scaled result does not. (Other types have the range of
// the type in which sums are computed.) So if the postscale of such a sum is less than 1, the host's level multiplies
// by the postscale's power of two, and the level across hosts multiplies by the rest. A power of two changes only the
// exponent, unless the sum becomes subnormal. So the results are the same as if only the level across hosts had a
// factor.
LevelScales ScalesOfLevels(const ReduceCall& call);

// Executes allreduces of all ranks in two levels, chunk by chunk. Each chunk takes a reduce-scatter between the ranks
// of the host, a reduction of each rank's shard across hosts, and an allgather on the host. Two chunks are in progress
// at a time: the older one across hosts, and the newer one on the host.
//
// Thread-compatible. Does not own the levels.
class TwoLevelReduce {
 public:
  struct Levels {
    Communicator* local = nullptr;
    Communicator* across = nullptr;  // nullptr: this rank has no shard
    int shards = 1;                  // shards per chunk, one for each of the first `shards` ranks of a host
    LevelOps* ops = nullptr;
    // The thread that makes the calls across hosts if a reduction has several chunks. kOwnThread: for calls that block.
    // kCaller: for calls that return at once. All ranks then enqueue work on their devices in the same order, which
    // kernels that wait for kernels of other ranks require.
    enum class Driver { kOwnThread, kCaller } across_driver = Driver::kOwnThread;
    size_t chunk_bytes = 1;  // the size of a chunk's elements
  };

  explicit TwoLevelReduce(const Levels& levels) : levels_(levels) {}

  // `call` must deliver the whole result to all ranks of the job. Ignores the ballot of `call`. Errors: those of the
  // two levels. After an error, this object must not be used again.
  absl::Status Run(const ReduceCall& call);

 private:
  // A chunk in progress. The fields that the worker reads do not change until the slot's result has been awaited.
  struct Slot {
    size_t begin = 0;                    // granules
    size_t granules = 0;                 // of the chunk
    char* shard = nullptr;               // this rank's elements
    std::vector<Segment> parts;          // the same elements, cut at segment boundaries
    std::vector<size_t> bytes_per_rank;  // of each shard
    std::string label;
    ReduceCall across;
  };

  // A reduction, and how it is divided into chunks.
  struct Plan {
    const ReduceCall& call;
    WireLayout layout;
    const LogicalBuffer& buffer;
    size_t chunk_granules;
    LevelScales scales;
  };

  absl::Status RunChunks(const Plan& plan, size_t chunks);
  absl::Status BeginAcross(size_t slot);
  absl::Status FinishAcross(size_t slot);
  // Reduces the slot's shard across hosts. Runs on the thread that makes the calls across hosts.
  absl::Status ReduceAcross(size_t slot);
  absl::Status ReduceOnHost(const Plan& plan, size_t chunk, size_t slot);
  // Lists the chunk's elements for the reduce-scatter, with the output addresses of this rank's part.
  absl::Status CutUp(const Plan& plan, size_t slot);
  void MakeCallAcross(const Plan& plan, Slot& slot) const;
  absl::Status GatherOnHost(const Plan& plan, const Slot& slot);
  // Lists the chunk's runs in order, and returns their size in bytes.
  size_t ListRuns(const Plan& plan, const Slot& slot);

  // Returns whether this rank reduces part of the chunk across hosts.
  bool GoesAcross(const Slot& slot) const { return levels_.across != nullptr && !slot.parts.empty(); }

  const Levels levels_;
  LogicalBuffer::Memory buffer_memory_;
  std::array<Slot, LevelOps::kSlots> slots_;
  std::vector<Segment> pieces_;        // pieces of the chunk being reduced on the host
  std::vector<PartRange> shards_;      // each piece's elements in every shard
  std::vector<LevelOps::Piece> runs_;  // runs of the chunk being gathered
  // Created by the first reduction with several chunks. The last data member, so that it is destroyed before the slots.
  std::unique_ptr<AcrossWorker> worker_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_TWO_LEVEL_REDUCE_H_
