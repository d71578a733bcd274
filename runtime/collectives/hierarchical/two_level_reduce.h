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

// A thread that reduces one chunk after another across hosts, while the thread's owner does other work. Each chunk is
// in a slot.
//
// One thread at a time may call Submit and Await. While a slot is submitted and not yet handled, no other thread may
// use the level across hosts.
class AcrossWorker {
 public:
  // The function that handles one slot, on the thread of the worker. If the function throws std::bad_alloc, Await
  // returns RESOURCE_EXHAUSTED.
  using Work = std::function<absl::Status(size_t slot)>;
  explicit AcrossWorker(Work work);

  // Waits until the current slot is done, and drops all later slots. The wait ends at the latest when the job has
  // failed.
  ~AcrossWorker();
  AcrossWorker(const AcrossWorker&) = delete;
  AcrossWorker& operator=(const AcrossWorker&) = delete;

  // Gives the worker a slot. The slot must stay unchanged until Await has returned its result or the worker is
  // destroyed. REQUIRES: fewer than LevelOps::kSlots submitted slots have a result that Await has not returned yet.
  void Submit(size_t slot);

  // Waits for the oldest slot whose result Await has not returned, and returns this result. REQUIRES: there is a slot
  // whose result has not been returned.
  absl::Status Await();

 private:
  static constexpr size_t kDepth = LevelOps::kSlots;

  void Run();
  // Handles the slot. Catches all exceptions, because an exception that leaves this thread would end the process.
  absl::Status Carry(size_t slot) const;

  const Work work_;
  // The constructor makes this status, because no memory is left for it when the status is needed.
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

// Does allreduces of all ranks in two levels, chunk by chunk. Each chunk takes a reduce-scatter between the ranks of
// the host, a reduction of each rank's shard across hosts, and an allgather on the host. The object works on two chunks
// at a time: on the older chunk across hosts, and on the newer chunk on the host.
//
// Thread-compatible. Does not own the levels.
class TwoLevelReduce {
 public:
  struct Levels {
    Communicator* local = nullptr;
    Communicator* across = nullptr;  // nullptr: this rank has no shard
    int shards = 1;                  // shards of a chunk: the first `shards` ranks of each host have one each
    LevelOps* ops = nullptr;
    // The thread that makes the calls across hosts if a reduction has several chunks. kOwnThread is for calls that
    // block, kCaller for calls that return at once. With kCaller, all ranks put work on their devices in the same
    // order. Kernels that wait for kernels of other ranks need this order.
    enum class Driver { kOwnThread, kCaller } across_driver = Driver::kOwnThread;
    size_t chunk_bytes = 1;  // the size of a chunk's elements
  };

  explicit TwoLevelReduce(const Levels& levels) : levels_(levels) {}

  // `call` must deliver the whole result to all ranks of the job. Run ignores the ballot of `call`. Errors: the errors
  // of the two levels. After an error this object must not be used again.
  absl::Status Run(const ReduceCall& call);

 private:
  // A chunk in progress. Until the result of the slot has been awaited, the fields that the worker reads do not change.
  struct Slot {
    size_t begin = 0;                    // granules
    size_t granules = 0;                 // of the chunk
    char* shard = nullptr;               // this rank's elements
    std::vector<Segment> parts;          // the same elements, cut where segments begin
    std::vector<size_t> bytes_per_rank;  // of each shard
    std::string label;
    ReduceCall across;
  };

  // A reduction and its division into chunks.
  struct Plan {
    const ReduceCall& call;
    WireLayout layout;
    const LogicalBuffer& buffer;
    size_t chunk_granules;
  };

  absl::Status RunChunks(const Plan& plan, size_t chunks);
  absl::Status BeginAcross(size_t slot);
  absl::Status FinishAcross(size_t slot);
  // Reduces the slot's shard across hosts. The function runs on the thread that makes the calls across hosts.
  absl::Status ReduceAcross(size_t slot);
  absl::Status ReduceOnHost(const Plan& plan, size_t chunk, size_t slot);
  // Makes the list of the chunk's elements for the reduce-scatter, with the addresses for this rank's part.
  absl::Status CutUp(const Plan& plan, size_t slot);
  void MakeCallAcross(const Plan& plan, Slot& slot) const;
  absl::Status GatherOnHost(const Plan& plan, const Slot& slot);
  // Makes the list of the chunk's runs, in order. Returns the number of bytes of the chunk's runs.
  size_t ListRuns(const Plan& plan, const Slot& slot);

  // Returns whether this rank reduces a part of the chunk across hosts.
  bool GoesAcross(const Slot& slot) const { return levels_.across != nullptr && !slot.parts.empty(); }

  const Levels levels_;
  LogicalBuffer::Memory buffer_memory_;
  std::array<Slot, LevelOps::kSlots> slots_;
  std::vector<Segment> pieces_;        // pieces of the chunk under reduction on the host
  std::vector<PartRange> shards_;      // the elements of each piece in every shard
  std::vector<LevelOps::Piece> runs_;  // runs of the chunk under gathering
  // The first reduction with several chunks creates the worker. The worker is the last data member, so it is destroyed
  // before the slots.
  std::unique_ptr<AcrossWorker> worker_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HIERARCHICAL_TWO_LEVEL_REDUCE_H_
