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

// A group of ranks on one host whose devices map each other's memory. It gives the collectives two things: pads, and
// meetings of the members' streams.
//
// *Pads.* Each member allocates a pad on its device. Every member maps the pads of all members, one after the other at
// equal distances, so one kernel can read all of them (kernels/cuda/calls.h, ReduceCall::stride). Only the owner writes
// a pad. A pad has two slots, which the chunks of all calls use in turn. So a member may write a slot without asking:
// since the slot's last use all members have met for the other slot, and a member comes to that meeting after it has
// read the earlier slot. Only a member that has been aborted comes too early (EndReads). The memory comes from
// cuMemCreate and travels as a file, not by cudaIpcGetMemHandle. So the pads can lie at equal distances, threads of one
// process can share them, and a pad outlives the process of a dead owner, whose memory other devices may still read.
//
// *Meetings.* A stream that comes to a meeting goes on when the streams of all members have come, as peer_words.h
// explains. No kernel spins, so ranks of several processes that share a GPU do not spend their time slices on waiting.
//
// *Queues.* Streams of one process may share a queue of a device, and a wait holds up all later work of its queue. If
// two ranks of the job are threads of one process and share a device, these waits could block each other for ever. In
// such a job a member puts its wait on its stream only after all members have put their arrival on theirs. So each wait
// depends only on work that was given to a device earlier, and so does the work behind it in the same queue. The thread
// that makes the call waits for the threads of the other members (MeetsOnHost). In other jobs a queue has the work of
// one rank, in the order of its calls, and all ranks make the calls in the same order.
//
// Thread-compatible, except Abort() and EndWaits(), which any thread may call.
class PeerGroup {
 public:
  static constexpr int kMostMembers = 32;
  // The smallest slot has this size for each rank of the job, which is more than a unit of any plan (WirePlan::unit()).
  static constexpr size_t kMinSlotBytesPerRank = 4096;

  struct Options {
    RankId rank = 0;
    int size = 1;
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;
    Communicator* host = nullptr;               // connects the ranks of the job; not owned
    size_t slot_bytes = 0;                      // a multiple of 16; the same on all ranks
    bool meets_on_host = false;                 // MeetsOnHost() of the group of all ranks; false for that group
    std::function<absl::Status()> job_failure;  // the job's first failure; called during waits
  };

  // Connects the members of the call's group. All ranks of the job must make this call. It does not wait for ranks
  // outside the group, on which the result is nullptr.
  // Errors, the same on all members: FAILED_PRECONDITION that names a rank that cannot take part, with its reason.
  // Other errors: those of the host's communicator.
  static absl::StatusOr<std::unique_ptr<PeerGroup>> Connect(const Options& options, const CallInfo& info);

  // REQUIRES: the stream has finished its work, or the device has been abandoned.
  ~PeerGroup() = default;

  int size() const { return static_cast<int>(ranks_.size()); }
  int self() const { return self_; }

  // Returns whether the members' threads also meet, because ranks of the job may share queues.
  bool MeetsOnHost() const { return meets_on_host_; }

  // The slot of a chunk. Member m has its slot at data + m * stride.
  struct Slot {
    std::byte* data;
    size_t stride;
  };
  size_t slot_bytes() const { return options_.slot_bytes; }
  // Returns the slot for the next chunk. All members must call it for the same chunks, and meet at least once for each.
  Slot NextSlot();

  // Puts a meeting on the stream. May wait for the threads of other members (MeetsOnHost).
  // Errors: the device's errors; DEADLINE_EXCEEDED that names the late rank; CANCELLED after Abort; the job's failure.
  absl::Status Meet(const CallInfo& info);

  // Must follow the last read of other members' pads in each call. If a member has been aborted meanwhile, it may have
  // overwritten a pad during the reads. Then the stream waits, so that nobody uses the result.
  // Errors: the device's errors.
  absl::Status EndReads();

  // Holds the streams of the other members, and lets this member's stream go on with incomplete data. The caller must
  // call EndWaits again and again until the stream has finished, and put no other work on the stream. Idempotent.
  void Abort();
  void EndWaits();

 private:
  struct Invitation;

  PeerGroup(const Options& options, std::vector<RankId> ranks, int self);

  // The steps of Connect. They run on the members only.
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
