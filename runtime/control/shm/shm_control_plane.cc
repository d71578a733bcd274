// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/shm/shm_control_plane.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/shm/doorbell.h"

namespace ronda {
namespace {

using FrameLength = uint32_t;

char* DataOf(ShmRingHeader* ring) { return reinterpret_cast<char*>(ring + 1); }

absl::Status Damaged(absl::string_view what, uint64_t value) {
  return absl::InternalError(absl::StrCat("a control ring in shared memory is damaged: ", what, " ", value));
}

constexpr int kSpinsPerLookAtClock = 16;

// How long a rank polls. In a collective over shared memory, a rank that waits for another rank spins equally long. If
// the ranks outnumber the cores, the rank yields its core kYields times instead, because the rank that must answer may
// need the core.
constexpr absl::Duration kPoll = absl::Microseconds(50);
constexpr int kYields = 16;

// How long a worker waits for the coordinator's polling thread to fetch a message, before the worker rings the
// coordinator's doorbell. Waking a thread takes longer than this.
constexpr absl::Duration kPollerComesBack = absl::Microseconds(8);

}  // namespace

absl::Status FrameWriter::Queue(absl::string_view payload) {
  if (payload.size() > kMaxFrameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a control message of ", payload.size(), " bytes is too long"));
  }
  if (IsFlushed()) {
    pending_.clear();
    sent_ = 0;
  }
  const auto length = static_cast<FrameLength>(payload.size());
  pending_.append(reinterpret_cast<const char*>(&length), sizeof(length));
  pending_.append(payload.data(), payload.size());
  return absl::OkStatus();
}

absl::StatusOr<size_t> FrameWriter::Room() const {
  const uint64_t in_ring = written_ - ring_->read.load(std::memory_order_seq_cst);
  if (in_ring > kShmRingBytes) return Damaged("bytes not yet read:", in_ring);
  return kShmRingBytes - in_ring;
}

absl::StatusOr<size_t> FrameWriter::Flush() {
  size_t moved = 0;
  while (!IsFlushed()) {
    RONDA_ASSIGN_OR_RETURN(size_t room, Room());
    if (room == 0) {
      ring_->writer_is_blocked.store(1, std::memory_order_seq_cst);
      RONDA_ASSIGN_OR_RETURN(room, Room());
      if (room == 0) break;
    }
    const size_t at = written_ % kShmRingBytes;
    const size_t n = std::min({room, pending_.size() - sent_, kShmRingBytes - at});
    std::memcpy(DataOf(ring_) + at, pending_.data() + sent_, n);
    sent_ += n;
    written_ += n;
    moved += n;
    ring_->written.store(written_, std::memory_order_seq_cst);
  }
  return moved;
}

absl::StatusOr<FrameReader::Result> FrameReader::Read() {
  Result result;
  for (;;) {
    const uint64_t available = ring_->written.load(std::memory_order_acquire) - read_;
    if (available == 0) break;
    if (available > kShmRingBytes) return Damaged("bytes written:", available);
    const size_t at = read_ % kShmRingBytes;
    const size_t n = std::min<size_t>(available, kShmRingBytes - at);
    partial_.append(DataOf(ring_) + at, n);
    read_ += n;
    ring_->read.store(read_, std::memory_order_seq_cst);
    if (ring_->writer_is_blocked.load(std::memory_order_seq_cst) != 0) {
      ring_->writer_is_blocked.store(0, std::memory_order_seq_cst);
      result.writer_waits = true;
    }
  }
  RONDA_RETURN_IF_ERROR(PopMessages(result.messages));
  return result;
}

absl::Status FrameReader::PopMessages(std::vector<std::string>& messages) {
  size_t begin = 0;
  for (;;) {
    FrameLength length;
    if (partial_.size() - begin < sizeof(length)) break;
    std::memcpy(&length, partial_.data() + begin, sizeof(length));
    if (length > kMaxFrameBytes) return Damaged("a message's length is", length);
    if (partial_.size() - begin - sizeof(length) < length) break;
    messages.push_back(partial_.substr(begin + sizeof(length), length));
    begin += sizeof(length) + length;
  }
  partial_.erase(0, begin);
  return absl::OkStatus();
}

ShmControlPlane::ShmControlPlane(std::shared_ptr<ShmWorld> world)
    : world_(std::move(world)), doorbell_(&world_->self().control) {
  const ShmView& view = world_->view();
  if (world_->rank() != kCoordinatorRank) {
    links_.push_back({.peer = kCoordinatorRank,
                      .writer = FrameWriter(&view.RingUp(world_->rank())),
                      .reader = FrameReader(&view.RingDown(world_->rank()))});
    return;
  }
  for (RankId peer = 1; peer < world_->size(); ++peer) {
    links_.push_back(
        {.peer = peer, .writer = FrameWriter(&view.RingDown(peer)), .reader = FrameReader(&view.RingUp(peer))});
  }
}

absl::Status ShmControlPlane::SendToCoordinator(absl::string_view payload) {
  RONDA_RETURN_IF_ERROR(failure());
  if (world_->rank() == kCoordinatorRank) {
    own_.to_coordinator.push_back({.from = kCoordinatorRank, .payload = std::string(payload)});
    if (!polling_) Wake();
    return absl::OkStatus();
  }
  Link& link = links_[0];
  RONDA_RETURN_IF_ERROR(link.writer.Queue(payload));
  if (!polling_ || !world_->view().rank(kCoordinatorRank).control.IsPollerExpected()) return Flush(link);
  RONDA_ASSIGN_OR_RETURN(const bool has_moved, Move(link));
  if (has_moved && !ring_at_) ring_at_ = MonotonicTime() + kPollerComesBack;
  return absl::OkStatus();
}

absl::Status ShmControlPlane::Broadcast(absl::string_view payload) {
  RONDA_CHECK(world_->rank() == kCoordinatorRank);
  RONDA_RETURN_IF_ERROR(failure());
  own_.broadcasts.emplace_back(payload);
  if (!polling_) Wake();
  for (Link& link : links_) {
    if (!world_->HasDeparted(link.peer)) RONDA_RETURN_IF_ERROR(link.writer.Queue(payload));
  }
  return FlushAll().status();
}

absl::Status ShmControlPlane::FlushAllAndWait() {
  // This thread is about to sleep, so from now on the doorbell must wake it.
  if (polling_ && doorbell_->StopPolling(seen_, Doorbell::Poller::kNone)) doorbell_->Ring();
  const auto resume = absl::MakeCleanup([this] {
    if (polling_) doorbell_->StartPolling();
  });
  const absl::Time deadline = SteadyNow() + world_->options().control_timeout;
  for (;;) {
    const uint32_t heard = doorbell_->Rings();
    RONDA_ASSIGN_OR_RETURN(const Link* const blocked, FlushAll());
    RONDA_RETURN_IF_ERROR(failure());
    if (blocked == nullptr) return absl::OkStatus();
    if (SteadyNow() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("waited ", absl::FormatDuration(world_->options().control_timeout), " for ",
                       ToString(world_->PeerOf(blocked->peer)), " to take its control messages out of shared memory"));
    }
    doorbell_->Sleep(heard, deadline - SteadyNow());
  }
}

absl::StatusOr<ControlPlane::Inbox> ShmControlPlane::Receive() {
  RONDA_RETURN_IF_ERROR(failure());
  // After Receive, this rank acts on its own broadcasts, together with the other ranks. So the broadcasts must be in
  // the rings first: the other ranks may need them before this rank calls Receive again.
  RONDA_RETURN_IF_ERROR(own_.broadcasts.empty() ? FlushAll().status() : FlushAllAndWait());
  Inbox inbox = std::exchange(own_, Inbox{});
  for (Link& link : links_) RONDA_RETURN_IF_ERROR(ReceiveFrom(link, inbox));
  if (!inbox.to_coordinator.empty() || !inbox.broadcasts.empty()) idle_looks_ = 0;
  inbox.unlock_requested = world_->unlock_requested();
  return inbox;
}

absl::Status ShmControlPlane::ReceiveFrom(Link& link, Inbox& inbox) {
  RONDA_ASSIGN_OR_RETURN(FrameReader::Result read, link.reader.Read());
  if (read.writer_waits) world_->view().rank(link.peer).control.Ring();
  for (std::string& message : read.messages) {
    if (world_->rank() == kCoordinatorRank) {
      inbox.to_coordinator.push_back({.from = link.peer, .payload = std::move(message)});
    } else {
      inbox.broadcasts.push_back(std::move(message));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ShmControlPlane::Move(Link& link) {
  RONDA_ASSIGN_OR_RETURN(const size_t moved, link.writer.Flush());
  return moved > 0;
}

absl::Status ShmControlPlane::Flush(Link& link) {
  RONDA_ASSIGN_OR_RETURN(const bool has_moved, Move(link));
  if (has_moved) world_->view().rank(link.peer).control.RingUnlessPolled();
  return absl::OkStatus();
}

void ShmControlPlane::RingAfterAll() {
  ring_at_.reset();
  if (!links_[0].writer.IsRead()) world_->view().rank(kCoordinatorRank).control.RingUnlessPolled();
}

absl::StatusOr<ShmControlPlane::Link*> ShmControlPlane::FlushAll() {
  Link* blocked = nullptr;
  for (Link& link : links_) {
    RONDA_RETURN_IF_ERROR(Flush(link));
    if (!link.writer.IsFlushed() && !world_->HasDeparted(link.peer)) blocked = &link;
  }
  return blocked;
}

void ShmControlPlane::Wait(absl::Time deadline) {
  if (!std::exchange(may_spin_, true) || !Spin(heard_)) {
    const absl::Time start = SteadyNow();
    for (absl::Time now = start; doorbell_->Rings() == heard_ && now < deadline; now = SteadyNow()) {
      doorbell_->Sleep(heard_, deadline - now);
    }
    spin_.Learn(SteadyNow() - start);
  }
  heard_ = doorbell_->Rings();
}

bool ShmControlPlane::StartPolling() {
  polling_ = true;
  gave_up_ = false;
  doorbell_->StartPolling();
  seen_ = doorbell_->RingsWhilePolled();
  idle_looks_ = 0;
  return true;
}

bool ShmControlPlane::KeepPolling() {
  ++idle_looks_;
  gave_up_ = !PauseBetweenLooks();
  if (!gave_up_) seen_ = doorbell_->RingsWhilePolled();
  return !gave_up_;
}

bool ShmControlPlane::PauseBetweenLooks() {
  if (!world_->MaySpin()) {
    if (idle_looks_ > kYields) return false;
    sched_yield();
  } else if (idle_looks_ % kSpinsPerLookAtClock == 0) {
    const absl::Duration now = MonotonicTime();
    if (idle_looks_ == kSpinsPerLookAtClock) poll_until_ = now + kPoll;
    if (now >= poll_until_) return false;
    if (ring_at_ && now >= *ring_at_) RingAfterAll();
    // Even if each rank has its own core, the kernel may have put the rank that must answer on this thread's core.
    sched_yield();
  } else {
    CpuRelax();
  }
  return true;
}

void ShmControlPlane::StopPolling() {
  polling_ = false;
  if (ring_at_) RingAfterAll();
  const bool has_rung =
      doorbell_->StopPolling(seen_, gave_up_ ? Doorbell::Poller::kNone : Doorbell::Poller::kComesBack);
  if (has_rung || HasNews()) doorbell_->Ring();
}

bool ShmControlPlane::HasNews() const {
  return !own_.to_coordinator.empty() || !own_.broadcasts.empty() ||
         std::any_of(links_.begin(), links_.end(), [](const Link& link) { return link.reader.HasNews(); });
}

bool ShmControlPlane::Spin(uint32_t heard) {
  if (doorbell_->Rings() != heard) return true;
  if (spin_.length() == absl::ZeroDuration() || !world_->MaySpin()) return false;
  const absl::Duration end = MonotonicTime() + spin_.length();
  do {
    for (int i = 0; i < kSpinsPerLookAtClock; ++i) {
      if (doorbell_->Rings() != heard) return true;
      CpuRelax();
    }
    // Even if each rank has its own core, this rank's trainer thread may just have been woken, and may need this core.
    sched_yield();
  } while (MonotonicTime() < end);
  return false;
}

}  // namespace ronda
