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

// A control message and the rank that sent it. The control plane does not interpret the payload; the engine encodes and
// decodes it.
struct ControlMessage {
  RankId from = 0;
  std::string payload;
};

// Carries control messages reliably and in order between a rank and the coordinator (rank 0), and sends the job's first
// failure to all ranks.
//
// The control plane cannot deadlock. SendToCoordinator and Broadcast never block: if a buffer is full, they queue the
// message, and it is sent later. So every rank reaches its next Receive. Only Receive on the coordinator may block,
// while another rank has no room for a broadcast. Such a rank is still executing collectives of earlier broadcasts.
// These collectives do not wait for the coordinator, because it has already finished its own part of them.
//
// Thread-safety: any thread may call Wake, RequestUnlock, Fail, failure and AnnounceExit at any time. One thread at a
// time may be in Wait. The other calls must come from one thread at a time, but may be made while another thread is in
// Wait.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;

  // Queues `payload` for rank 0, and returns at once. The coordinator may send messages to itself.
  // Errors: the job's first failure, if the job has failed.
  virtual absl::Status SendToCoordinator(absl::string_view payload) = 0;

  // Sends `payload` to every rank, the caller included, and returns. Every rank receives broadcasts in the order in
  // which they were sent. Once the caller has received its own broadcast, all other ranks can receive it without any
  // help from the caller.
  // REQUIRES: called on rank 0.
  // Errors: the job's first failure, if the job has failed.
  virtual absl::Status Broadcast(absl::string_view payload) = 0;

  // Returns all messages that have arrived. Each sender's messages are in the order in which they were sent. Does not
  // wait for messages, so the result may be empty. Rank 0 gets the reports of all ranks in `to_coordinator`, and its
  // own broadcasts in `broadcasts`. On rank 0, Receive may block until the other ranks have made room for the
  // broadcasts that it returns.
  // REQUIRES: on rank 0, the caller has finished all work that earlier broadcasts requested.
  // Errors: the job's first failure; INTERNAL if a peer sends invalid frames; on rank 0, DEADLINE_EXCEEDED, naming a
  // rank that does not drain its messages.
  struct Inbox {
    std::vector<ControlMessage> to_coordinator;  // on rank 0 only
    std::vector<std::string> broadcasts;
    uint64_t unlock_requested = 0;  // the highest schedule that any rank has requested to unlock so far; 0: none
  };
  virtual absl::StatusOr<Inbox> Receive() = 0;

  // Blocks until a message arrives, Wake is called, the job fails, or `deadline` passes. A Wake since the last Wait
  // returned also counts. A long Wait uses almost no CPU. Wait may also return early, without any of these events.
  virtual void Wait(absl::Time deadline) = 0;

  // Makes the current Wait return, or the next one if no thread is in Wait.
  virtual void Wake() = 0;

  // Must be called before the caller polls, that is, calls Receive repeatedly. While it polls, messages and Wake need
  // not wake the thread that is in Wait. Returns false if this control plane cannot be polled.
  virtual bool StartPolling() { return false; }
  // Must be called between two calls of Receive while polling. Returns false if nothing has arrived for so long that
  // the thread should sleep. REQUIRES, also for StopPolling: StartPolling() has returned true.
  virtual bool KeepPolling() { return false; }
  // Ends polling. If a message or a Wake has arrived since the last StartPolling or KeepPolling, the current or next
  // Wait returns at once.
  virtual void StopPolling() {}
  // Announces that other threads will poll. So the next Wait may react slowly, and should not use a core that these
  // threads need.
  virtual void ExpectPolling() {}

  // Asks all ranks, including the caller, to unlock the schedule with the number `schedule` (see locked_schedule.h). On
  // each rank, the current or next Wait returns, and every later Inbox contains the number. The request also reaches
  // ranks that are not reading messages from rank 0, and does not depend on rank 0 reading its messages. Never
  // blocks.
  virtual void RequestUnlock(uint64_t schedule) = 0;

  // Makes `failure` the job's failure, unless the job has one already, and wakes every rank that is in Wait or in a
  // collective. The error text names this rank as the origin of `failure`.
  virtual void Fail(const absl::Status& failure) = 0;

  // Returns the first failure of the job, with the same text on every rank. Returns OK if the job has not failed.
  virtual absl::Status failure() const = 0;

  // Announces that this rank leaves the job on purpose, so that its end is not a failure. If the control plane is
  // destroyed without a call of Depart, the job fails, for example when an exception interrupts the start of a job.
  virtual void Depart() = 0;

  // Announces that this rank's program has ended without Depart, and that its process is about to exit. When the
  // process has exited, the job fails, with an error that says that the program ended without Depart. Has no effect on
  // this rank itself. Returns once the announcement is on its way to the other ranks, or after a few seconds at most.
  // Does nothing if the control plane cannot announce an exit.
  virtual void AnnounceExit() {}
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_CONTROL_PLANE_H_
