// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/shm/chunk_sync.h"

#include <sched.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/shm/doorbell.h"

namespace ronda {
namespace {

// How long a wait spins. A rank that takes longer is doing other work, and may need this core.
constexpr absl::Duration kSpin = absl::Microseconds(50);
constexpr int kSpinsPerLookAtClock = 64;
constexpr int kYields = 16;
// A store becomes visible to all cores in much less time than this.
constexpr absl::Duration kStoresArrive = absl::Microseconds(200);
// The longest sleep, because a rank may be stopped between storing its counter and ringing the doorbell.
constexpr absl::Duration kLongestSleep = absl::Seconds(1);

}  // namespace

void ChunkSync::WakeWaiters() {
  const ShmView& view = world_->view();
  const auto self = static_cast<uint32_t>(world_->rank() + 1);
  for (RankId rank = 0; rank < world_->size(); ++rank) {
    ShmRankBlock& block = view.rank(rank);
    if (block.waits_for.load(std::memory_order_seq_cst) == self) block.data.Ring();
  }
}

absl::Status ChunkSync::WaitForMembers(const Members& members, ShmStage stage, uint64_t position,
                                       const RunningCollective& running) {
  for (int member = 0; member < members.size(); ++member) {
    if (member != members.self()) RONDA_RETURN_IF_ERROR(WaitFor(members[member], stage, position, running));
  }
  return absl::OkStatus();
}

absl::Status ChunkSync::Veto(const ChunkSequence& chunks, const Ballot& ballot, const RunningCollective& running) {
  for (RankId rank = 0; rank < world_->size(); ++rank) {
    if (rank == world_->rank()) continue;
    RONDA_RETURN_IF_ERROR(WaitFor(rank, ShmStage::kDone, chunks.previous_end, running));
  }
  StoreVote(ballot.word());
  PublishAllStages(chunks.end);
  return absl::OkStatus();
}

absl::Status ChunkSync::CountVotes(const Members& members, const ChunkSequence& chunks,
                                   const RunningCollective& running, Ballot* ballot) {
  RONDA_RETURN_IF_ERROR(WaitForMembers(members, ShmStage::kPacked, chunks.End(0), running));
  uint8_t words = 0;
  for (int member = 0; member < members.size(); ++member) {
    words |= VoteOf(members[member]).load(std::memory_order_relaxed);
  }
  ballot->Decide(words);
  if (ballot->result == Ballot::Result::kVetoed) PublishAllStages(chunks.end);
  return absl::OkStatus();
}

void ChunkSync::PublishAllStages(uint64_t position) {
  for (ShmStage stage : {ShmStage::kPacked, ShmStage::kReduced, ShmStage::kDone}) Publish(stage, position);
}

absl::Status ChunkSync::WaitForRoom(const ChunkSequence& chunks, uint64_t k, const RunningCollective& running) {
  const uint64_t ring_bytes = world_->view().geometry().RingBytes();
  if (chunks.End(k) <= done_by_all_ + ring_bytes) return absl::OkStatus();
  uint64_t needed = chunks.End(k) - ring_bytes;
  // Positions between the end of the previous collective and the start of this one belong to no collective. Waiting for
  // one of them would mean waiting for the other ranks to start this collective.
  if (needed <= chunks.begin) needed = std::min(needed, chunks.previous_end);
  // Remembers how far all other ranks are, because each read of a counter costs a transfer between cores.
  uint64_t done = std::max(needed, chunks.begin);
  for (RankId rank = 0; rank < world_->size(); ++rank) {
    if (rank == world_->rank()) continue;
    RONDA_RETURN_IF_ERROR(WaitFor(rank, ShmStage::kDone, needed, running));
    done = std::min(done, Counter(rank, ShmStage::kDone).load(std::memory_order_acquire));
  }
  done_by_all_ = done;
  return absl::OkStatus();
}

absl::Status ChunkSync::WaitLonger(RankId rank, const std::atomic<uint64_t>& word, uint64_t value,
                                   const RunningCollective& running) {
  if (world_->MaySpin() ? Spin(word, value) : Yield(word, value)) return absl::OkStatus();
  ShmRankBlock& self = world_->self();
  std::atomic<uint32_t>& sleepers = world_->view().header().sleepers;
  self.waits_for.store(static_cast<uint32_t>(rank + 1), std::memory_order_seq_cst);
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  absl::Status status = Sleep(rank, word, value, running);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
  self.waits_for.store(0, std::memory_order_relaxed);
  return status;
}

bool ChunkSync::Spin(const std::atomic<uint64_t>& word, uint64_t value) const {
  absl::Duration end = absl::InfiniteDuration();
  do {
    for (int i = 0; i < kSpinsPerLookAtClock; ++i) {
      if (word.load(std::memory_order_acquire) >= value) return true;
      CpuRelax();
    }
    // Most waits end before they first read the clock.
    const absl::Duration now = MonotonicTime();
    if (end == absl::InfiniteDuration()) end = now + kSpin;
    if (now >= end) return false;
    // Even with a core for each rank, the scheduler may have placed the late rank on this core, where it waits for this
    // thread to yield.
    sched_yield();
  } while (!world_->HasFailed());
  return false;
}

// If the ranks outnumber the cores, the late rank may need this core. As long as other threads take the core, yielding
// costs less than sleeping.
bool ChunkSync::Yield(const std::atomic<uint64_t>& word, uint64_t value) const {
  for (int i = 0; i < kYields; ++i) {
    if (word.load(std::memory_order_acquire) >= value) return true;
    sched_yield();
  }
  return false;
}

absl::Status ChunkSync::Sleep(RankId rank, const std::atomic<uint64_t>& word, uint64_t value,
                              const RunningCollective& running) {
  Doorbell& doorbell = world_->self().data;
  WaitWatch watch(running, *world_->flights());
  const absl::Duration announced = MonotonicTime();
  for (;;) {
    const absl::Duration limit = MonotonicTime() - announced < kStoresArrive ? kStoresArrive : kLongestSleep;
    const uint32_t heard = doorbell.Rings();
    // Must come before reading the word, because a rank stores its last progress before it departs.
    const bool has_departed = world_->HasDeparted(rank);
    if (word.load(std::memory_order_seq_cst) >= value) return absl::OkStatus();
    RONDA_RETURN_IF_ERROR(world_->failure());
    const Peer late = world_->PeerOf(rank);
    if (has_departed) return absl::AbortedError(absl::StrCat("the job was left by ", DescribeWait(late, running)));
    RONDA_RETURN_IF_ERROR(watch.Check(late));
    if (watch.has_warned() && running.late_call != nullptr) running.late_call->Make();
    doorbell.Sleep(heard, std::min(limit, watch.UntilNextCheck()));
  }
}

}  // namespace ronda
