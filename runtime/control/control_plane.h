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

// One control message, and the rank that has sent it. The control plane does not look into the payload. The engine
// encodes and decodes the payload.
struct ControlMessage {
  RankId from = 0;
  std::string payload;
};

// Carries control messages between a rank and the coordinator (rank 0), in order and reliably, and sends the job's
// first failure to all ranks.
//
// The control plane cannot deadlock, for the following reasons. SendToCoordinator never blocks, so every rank reaches
// its next Receive. (If a buffer is full, the control plane keeps the messages and sends them later.) Broadcast does
// not block a rank either. Only Receive on the coordinator may wait: some ranks may not be able to receive a broadcast
// yet. A rank that cannot receive a broadcast yet is still executing collectives of earlier broadcasts. The coordinator
// has already finished its own part of the collectives that a late rank still executes.
//
// Thread-safety: any thread may call Wake, RequestUnlock, Fail, failure and AnnounceExit at any time. One thread at a
// time may be in Wait. Only one thread at a time may make the other calls, but it may make them while another thread is
// in Wait.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;

  // Queues `payload` for rank 0, and returns at once. The coordinator may send messages to itself.
  // Errors: the job's first failure, if the job has failed.
  virtual absl::Status SendToCoordinator(absl::string_view payload) = 0;

  // Sends `payload` to every rank, the caller included, and returns. Every rank receives broadcasts in the order in
  // which they were sent. Once the caller itself has received a broadcast, all other ranks can receive it without any
  // help from the caller.
  // REQUIRES: called on rank 0.
  // Errors: the job's first failure, if the job has failed.
  virtual absl::Status Broadcast(absl::string_view payload) = 0;

  // Returns all messages that have arrived. The messages of each sender are in the order in which they were sent. Does
  // not wait for messages, so the result may be empty. Rank 0 gets the reports of all ranks in `to_coordinator`, and
  // its own broadcasts in `broadcasts`. Rank 0 waits until the other ranks have drained the messages that block the
  // returned broadcasts.
  // REQUIRES: on rank 0, the caller has finished all work that earlier broadcasts requested.
  // Errors: the job's first failure; INTERNAL if a peer sends invalid frames; on rank 0, DEADLINE_EXCEEDED that names a
  // rank that does not drain its messages.
  struct Inbox {
    std::vector<ControlMessage> to_coordinator;  // on rank 0 only
    std::vector<std::string> broadcasts;
    uint64_t unlock_requested = 0;  // the highest schedule that any rank has requested to unlock so far; 0: none
  };
  virtual absl::StatusOr<Inbox> Receive() = 0;

  // Blocks until a message may have arrived, Wake was called since the last Wait returned, the job failed, or
  // `deadline` has passed. The thread uses no CPU while it blocks. Wait may also return earlier, although none of the
  // awaited events has happened.
  virtual void Wait(absl::Time deadline) = 0;

  // Makes the current or the next Wait return.
  virtual void Wake() = 0;

  // The caller must call StartPolling before it polls, which means that it calls Receive repeatedly. While the caller
  // polls, messages and Wake need not wake the thread that is in Wait. Returns false if this control plane cannot be
  // polled.
  virtual bool StartPolling() { return false; }
  // While polling, must be called between two calls of Receive. Returns false if nothing has come for so long that the
  // thread should sleep. KeepPolling and StopPolling REQUIRE: StartPolling() has returned true.
  virtual bool KeepPolling() { return false; }
  // Ends polling. If a message or a Wake has come since the last StartPolling or KeepPolling, the current or next Wait
  // returns at once.
  virtual void StopPolling() {}
  // The caller reports that other threads will poll. So the next Wait may react slowly, and should not use a core that
  // these threads need.
  virtual void ExpectPolling() {}

  // Requests all ranks, including the caller, to unlock the schedule with the number `schedule` (see
  // locked_schedule.h). On each rank the current or next Wait returns, and from then on each Inbox contains the number.
  // The request of RequestUnlock also reaches ranks that do not read messages of rank 0 at the moment. The request does
  // not depend on rank 0 reading its messages. Never blocks.
  virtual void RequestUnlock(uint64_t schedule) = 0;

  // Makes `failure` the job's failure, unless the job has one already, and wakes every rank that is in Wait or in a
  // collective. On the other ranks, the text of the error names this rank as the origin of `failure`.
  virtual void Fail(const absl::Status& failure) = 0;

  // Returns the first failure of the job, with the same text on every rank. Returns OK if the job has not failed.
  virtual absl::Status failure() const = 0;

  // Announces that this rank leaves the job on purpose. The end of the rank is then no failure. If the control plane is
  // destroyed without a call of Depart, the job fails. For example, an exception that interrupts the start of a job
  // makes the job fail.
  virtual void Depart() = 0;

  // Announces that the program of this rank has ended without Depart, and that its process is about to end. When the
  // process has ended, the job fails, and the failure says that the program has ended without Depart. The call changes
  // nothing on this rank itself. Returns when the announcement is on its way to the other ranks, or after a few seconds
  // at most. A control plane that cannot announce the exit does nothing.
  virtual void AnnounceExit() {}
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_CONTROL_PLANE_H_
