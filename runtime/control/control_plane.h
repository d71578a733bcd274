// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_CONTROL_PLANE_H_
#define RONDA_RUNTIME_CONTROL_CONTROL_PLANE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/types.h"

namespace ronda {

// One control message and its sender. The payload is opaque here; the engine encodes and decodes it.
struct ControlMessage {
  RankId from = 0;
  std::string payload;
};

// Carries control messages between a rank and the coordinator (rank 0), in order and reliably, and sends the job's
// first failure to all ranks.
//
// It cannot deadlock, for these reasons. SendToCoordinator never blocks, so a rank always returns to Receive. (Messages
// that do not fit are kept here, and sent when the coordinator has received earlier ones.) Broadcast does not block
// either. Only the coordinator's Receive may wait, before it returns a broadcast that other ranks cannot receive yet.
// It then waits only for ranks that execute collectives of earlier broadcasts. The coordinator itself has finished
// these collectives.
//
// Thread-safety: any thread may call Wake, RequestUnlock, Fail, failure and AnnounceExit at any time. One thread at a
// time may be in Wait. One thread at a time, the thread in Wait or another thread, may make the other calls.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;

  // Queues `payload` for rank 0 and returns. Rank 0 may send to itself.
  // Errors: the job's first failure, if it has failed.
  virtual absl::Status SendToCoordinator(absl::string_view payload) = 0;

  // Sends `payload` to every rank, the caller included, and returns. Each rank receives broadcasts in the order in
  // which they were sent. When the caller has received a broadcast, all other ranks can receive it without further help
  // from the caller.
  // REQUIRES: called on rank 0.
  // Errors: the job's first failure, if it has failed.
  virtual absl::Status Broadcast(absl::string_view payload) = 0;

  // Returns all messages that have arrived, per sender the oldest first. The result is empty if none has arrived. Does
  // not wait for messages. Rank 0 gets both reports (from any rank) and its own broadcasts, in `to_coordinator` and
  // `broadcasts`. Rank 0 waits until the other ranks have drained the messages that block the returned broadcasts.
  // REQUIRES: on rank 0: the caller has done everything that earlier broadcasts asked of it.
  // Errors: the job's first failure; INTERNAL if a peer's framing is damaged; on rank 0, DEADLINE_EXCEEDED that names a
  // rank that does not drain its messages.
  struct Inbox {
    std::vector<ControlMessage> to_coordinator;  // on rank 0 only
    std::vector<std::string> broadcasts;
    uint64_t unlock_requested = 0;  // the highest schedule that any rank has requested to unlock so far; 0: none
  };
  virtual absl::StatusOr<Inbox> Receive() = 0;

  // Blocks until a message may have arrived, Wake was called since the last Wait returned, the job failed, or
  // `deadline` has passed. Uses no CPU while it blocks. May return early without cause.
  virtual void Wait(absl::Time deadline) = 0;

  // Makes the current or the next Wait return.
  virtual void Wake() = 0;

  // The caller is going to poll, which means that it calls Receive repeatedly. Meanwhile messages and Wakes need not
  // wake the thread in Wait. Returns false if this control plane cannot be polled.
  virtual bool StartPolling() { return false; }
  // Call between one call of Receive and the next. Returns false if nothing has come for so long that it is better to
  // sleep. REQUIRES: StartPolling() has returned true. StopPolling requires this too.
  virtual bool KeepPolling() { return false; }
  // Messages and Wakes since the last StartPolling or KeepPolling make Wait return.
  virtual void StopPolling() {}
  // The caller expects that other threads will poll. So the next Wait need not be quick, and should not use the core of
  // these threads.
  virtual void ExpectPolling() {}

  // Tells all ranks, the caller included, to unlock schedule number `schedule` (see locked_schedule.h). The current or
  // next Wait of each rank returns, and from then on each Inbox contains the number. The request also reaches ranks
  // that do not listen to rank 0 at the moment, and it does not need rank 0 to listen. Never blocks.
  virtual void RequestUnlock(uint64_t schedule) = 0;

  // Makes `failure` the job's failure, unless the job has one already, and wakes every rank, in Wait or in a
  // collective. The text that the other ranks read attributes `failure` to this rank.
  virtual void Fail(const absl::Status& failure) = 0;

  // Returns the first failure of the job, with the same text on every rank. Returns OK if the job has not failed.
  virtual absl::Status failure() const = 0;

  // Announces that this rank departs on purpose, so that its end is no failure. If the control plane is destroyed
  // without this call, for example when an exception ends the start of a job, the job fails.
  virtual void Depart() = 0;

  // Announces that the program of this rank has ended without Depart, and that its process is about to end. When the
  // process is gone, the job fails and the failure names this cause. This rank notices no change. Returns when the
  // announcement is on its way to the other ranks, or after a few seconds. A control plane that cannot announce the
  // exit does nothing.
  virtual void AnnounceExit() {}
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_CONTROL_PLANE_H_
