// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_SHM_SHM_CONTROL_PLANE_H_
#define RONDA_RUNTIME_CONTROL_SHM_SHM_CONTROL_PLANE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/control/control_plane.h"
#include "runtime/control/spin_time.h"
#include "runtime/shm/layout.h"
#include "runtime/shm/shm_world.h"

namespace ronda {

// The longest frame. A ring with a longer frame is treated as damaged.
inline constexpr size_t kMaxFrameBytes = size_t{1} << 30;

// Carries messages of any length through a ring of kShmRingBytes in shared memory, from one writer to one reader.
//
// A frame is the payload's length in four bytes, followed by the payload. A frame that is longer than the ring passes
// through the ring in pieces.
//
// Memory ordering: the writer stores the bytes, and then `written`. This store is a release store, and is sequentially
// consistent because Doorbell::RingUnlessPolled requires it. The reader loads `written` (acquire), then the bytes.
// Likewise, the reader stores `read` (release), and the writer loads `read` (acquire) before it reuses the freed room.
// A writer that finds too little room stores `writer_is_blocked`, then loads `read` again. The reader stores `read`,
// then loads `writer_is_blocked`. These two stores and two loads are sequentially consistent. So either the writer sees
// the new room, or the reader sees that it must ring the writer's doorbell.
//
// The writing end of the ring. Keeps the bytes for which the ring has no room yet.
// Thread-compatible.
class FrameWriter {
 public:
  explicit FrameWriter(ShmRingHeader* ring) : ring_(ring) {}

  // Errors: INVALID_ARGUMENT if `payload` is longer than kMaxFrameBytes.
  absl::Status Queue(absl::string_view payload);

  // Moves as many bytes into the ring as it has room for, and returns their number. If bytes are left, the reader's
  // next Read reports that the writer waits. Errors: INTERNAL if the counters in the ring's header are damaged.
  absl::StatusOr<size_t> Flush();

  // Returns whether all queued bytes have been moved into the ring.
  bool IsFlushed() const { return sent_ == pending_.size(); }

  // Returns whether the reader has read all bytes that have been moved into the ring.
  bool IsRead() const { return ring_->read.load(std::memory_order_seq_cst) == written_; }

 private:
  absl::StatusOr<size_t> Room() const;

  ShmRingHeader* const ring_;
  uint64_t written_ = 0;
  std::string pending_;  // frames; the first sent_ bytes are in the ring
  size_t sent_ = 0;
};

// The reading end of the ring. Thread-compatible.
class FrameReader {
 public:
  explicit FrameReader(ShmRingHeader* ring) : ring_(ring) {}

  struct Result {
    std::vector<std::string> messages;
    bool writer_waits = false;  // for the room that this read has made; the caller must ring its doorbell
  };

  // Empties the ring and returns the complete messages. Errors: INTERNAL if the ring's counter of written bytes, or the
  // length of a message, is invalid.
  absl::StatusOr<Result> Read();

  // Returns whether bytes have arrived since the last Read.
  bool HasNews() const { return ring_->written.load(std::memory_order_seq_cst) != read_; }

 private:
  absl::Status PopMessages(std::vector<std::string>& messages);

  ShmRingHeader* const ring_;
  uint64_t read_ = 0;
  std::string partial_;  // the beginning of a message
};

// Carries control messages through rings in shared memory. Each rank except the coordinator has one ring to the
// coordinator and one ring back. Wait sleeps on the rank's doorbell. The doorbell rings for messages, unlock
// requests, calls of Wake, and failures.
//
// If a writer finds a ring full, it keeps the rest of its bytes. When the ring has room again, the reader rings the
// writer's doorbell. The next Receive on the writer's rank then sends the rest. The coordinator's Receive returns its
// own broadcasts only when all their bytes are in the rings.
//
// A worker that polls for the answer to its message first gives the coordinator's polling thread a moment to fetch the
// message. If that thread has not fetched it by then, the worker wakes the coordinator's background thread.
class ShmControlPlane : public ControlPlane {
 public:
  explicit ShmControlPlane(std::shared_ptr<ShmWorld> world);
  ~ShmControlPlane() override { world_->Leave(); }

  absl::Status SendToCoordinator(absl::string_view payload) override;
  absl::Status Broadcast(absl::string_view payload) override;
  absl::StatusOr<Inbox> Receive() override;
  void Wait(absl::Time deadline) override;
  void Wake() override { doorbell_->Ring(); }
  bool StartPolling() override;
  bool KeepPolling() override;
  void StopPolling() override;
  void ExpectPolling() override { may_spin_ = false; }
  void RequestUnlock(uint64_t schedule) override { world_->RequestUnlock(schedule); }
  void Fail(const absl::Status& failure) override { world_->Fail(failure); }
  absl::Status failure() const override { return world_->failure(); }
  void Depart() override { world_->Depart(); }
  void AnnounceExit() override { world_->AnnounceExit(); }

 private:
  // The two rings between this rank and `peer`.
  struct Link {
    RankId peer;
    FrameWriter writer;
    FrameReader reader;
  };

  // Moves queued bytes into the ring. Returns whether any bytes were moved.
  absl::StatusOr<bool> Move(Link& link);
  absl::Status Flush(Link& link);
  // Rings the coordinator's doorbell, unless its polling thread has fetched the message in time.
  void RingAfterAll();
  absl::Status ReceiveFrom(Link& link, Inbox& inbox);
  // Moves queued bytes on all links. Returns a link whose ring has no room for the remaining bytes, or nullptr.
  absl::StatusOr<Link*> FlushAll();
  // Moves queued bytes on all links until none are left.
  // Errors: the job's failure; DEADLINE_EXCEEDED, naming a rank that does not read its messages.
  absl::Status FlushAllAndWait();

  // Pauses briefly before the next look for messages. Returns false if too many looks have found nothing.
  bool PauseBetweenLooks();
  // Returns whether Receive has something to return.
  bool HasNews() const;

  // Spins until the doorbell rings, if spinning has recently avoided sleeps. `heard` is the last known number of rings.
  // Returns whether the doorbell has rung.
  bool Spin(uint32_t heard);

  const std::shared_ptr<ShmWorld> world_;
  Doorbell* const doorbell_;
  std::vector<Link> links_;  // of the coordinator: one per worker; of a worker: one
  Inbox own_;                // messages of the coordinator to itself
  bool polling_ = false;
  uint32_t seen_ = 0;                      // rings before the last look, while polling
  int idle_looks_ = 0;                     // since something was received
  absl::Duration poll_until_;              // when to stop polling, set after many idle looks
  bool gave_up_ = false;                   // whether this rank has looked too often in vain
  std::optional<absl::Duration> ring_at_;  // when to ring for a message to the coordinator
  // The next three members are the state of Wait.
  bool may_spin_ = true;  // in the next Wait
  uint32_t heard_ = 0;    // rings of the doorbell up to the last return of Wait
  SpinTime spin_;         // of Wait
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_SHM_SHM_CONTROL_PLANE_H_
