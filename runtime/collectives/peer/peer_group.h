// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_PEER_PEER_GROUP_H_
#define RONDA_RUNTIME_COLLECTIVES_PEER_PEER_GROUP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/peer/peer_words.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/shared_memory.h"

namespace ronda {

// A group of ranks on one host whose devices map each other's memory. Provides pads, and meetings of the members'
// streams.
//
// *Pads.* Each member allocates a pad on its device, to which only this member writes. Every member maps all pads at
// equal distances, so that one kernel can read all of them (kernels/cuda/calls.h, ReduceCall::stride). A pad has two
// slots, which the chunks of all calls use alternately. So a member can write to a slot without further
// synchronisation: since the slot's last use, all members have met for the other slot, and each arrives at that meeting
// only after it has read the earlier slot. (Only an aborted member arrives too early; see EndReads.) The memory comes
// from cuMemCreate and is shared as a file, not through cudaIpcGetMemHandle. So the pads can be mapped at equal
// distances, threads of one process can share them, and a pad, which other devices may still read, outlives its owner's
// process.
//
// *Meetings.* A stream that arrives at a meeting continues when all members' streams have arrived (peer_words.h). No
// kernel spins, so ranks of several processes that share a GPU do not spend their time slices on waiting.
//
// *Queues.* Streams of one process may share a device queue, in which a wait blocks all later work. If two ranks of the
// job are threads of one process and share a device, their waits could block each other for ever. In such a job, a
// member enqueues its wait only after all members have enqueued their arrivals. So each wait, and the work after it in
// the same queue, depends only on work that was enqueued earlier. The calling thread waits for the threads of the other
// members (MeetsOnHost). In other jobs, a queue has the work of only one rank, in the order of its calls, and all ranks
// make the calls in the same order.
//
// Thread-compatible, except Abort() and EndWaits(), which any thread may call.
class PeerGroup {
 public:
  static constexpr int kMostMembers = 32;
  // The minimum size of a slot, per rank of the job: more than the unit() of any WirePlan.
  static constexpr size_t kMinSlotBytesPerRank = 4096;

  struct Options {
    RankId rank = 0;
    int size = 1;
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;
    Communicator* host = nullptr;               // connects the ranks of the job; not owned
    size_t slot_bytes = 0;                      // a multiple of 16; the same on all ranks
    bool meets_on_host = false;                 // MeetsOnHost() of the group of all ranks; false for that group itself
    std::function<absl::Status()> job_failure;  // the job's first failure; called during waits
  };

  // Connects the members of the call's group. All ranks of the job must make this call. Ranks outside the group get
  // nullptr, and the members do not wait for them.
  // Errors: FAILED_PRECONDITION, the same on all members, that names a rank that cannot take part, and the reason; the
  // errors of the host communicator.
  static absl::StatusOr<std::unique_ptr<PeerGroup>> Connect(const Options& options, const CallInfo& info);

  // REQUIRES: the stream has finished, or the device has been abandoned.
  ~PeerGroup() = default;

  int size() const { return static_cast<int>(ranks_.size()); }
  int self() const { return self_; }

  // Returns whether the members' threads must also meet, because ranks of the job may share queues.
  bool MeetsOnHost() const { return meets_on_host_; }

  // The slot of a chunk. Member m's slot is at data + m * stride.
  struct Slot {
    std::byte* data;
    size_t stride;
  };
  size_t slot_bytes() const { return options_.slot_bytes; }
  // Returns the slot for the next chunk. All members must call this for the same chunks, and meet at least once for
  // each.
  Slot NextSlot();

  // Enqueues a meeting on the stream. May wait for the threads of other members (MeetsOnHost).
  // Errors: device errors; DEADLINE_EXCEEDED that names the late rank; CANCELLED after Abort(); the job's failure.
  absl::Status Meet(const CallInfo& info);

  // Must follow the last read of other members' pads in each call. If a member has been aborted, it may have
  // overwritten its pad during the reads. The stream then blocks, so that the result is not used.
  // Errors: device errors.
  absl::Status EndReads();

  // Blocks the other members' streams, and lets this member's stream continue with incomplete data. The caller must
  // call EndWaits() repeatedly until the stream has finished, and enqueue no other work on it. Idempotent.
  void Abort();
  void EndWaits();

 private:
  struct Invitation;

  PeerGroup(const Options& options, std::vector<RankId> ranks, int self);

  // The steps of Connect(), which only members run.
  struct Own;
  absl::StatusOr<Own> Prepare(Invitation* invitation);
  absl::Status Map(const Own& own, const std::vector<Invitation>& all, const WaitLimits& limits);
  // Sends `invitation` and `own` to all members, and receives theirs, by position.
  static absl::Status AgreeWithAll(Communicator& host, const CallInfo& info, const Members& members,
                                   const absl::Status& own, Invitation* invitation, std::vector<Invitation>* all);
  static bool ShareQueues(const std::vector<Invitation>& all);

  absl::Status RunOps(const std::vector<ronda_cuda_word_op>& ops);
  absl::Status AwaitLaunches(const CallInfo& info, uint32_t meeting);
  absl::Status AwaitLaunch(const CallInfo& info, int member, uint32_t meeting);

  const Options options_;
  const std::vector<RankId> ranks_;
  const int self_;
  size_t pad_bytes_ = 0;
  std::unique_ptr<SharedMapping> pads_;
  std::unique_ptr<PeerWords> words_;
  bool meets_on_host_;
  std::vector<ronda_cuda_word_op> ops_;
  size_t next_slot_ = 0;
  std::atomic<uint32_t> meetings_{0};
  std::atomic<bool> is_aborted_{false};
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_PEER_PEER_GROUP_H_
