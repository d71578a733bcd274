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

// Carries control messages between a rank and the coordinator rank (rank 0), in order and reliably, and spreads the
// job's first failure to all ranks.
//
// Why it cannot deadlock: SendToCoordinator never blocks (messages that do not fit are kept here and sent as the
// coordinator drains), so a rank always comes back to Receive. Nor does Broadcast. Only the coordinator's Receive may
// wait, before it hands out a broadcast that others cannot receive yet; and only for ranks that are executing
// collectives of earlier broadcasts, which the coordinator has itself finished by then.
//
// Thread-safety: any thread may call Wake, CallOff, Fail, failure and AnnounceExit at any time. One thread at a time
// may be in Wait. One thread at a time, the same or another, may make the other calls.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;

  // Queues `payload` for rank 0 and returns. Rank 0 may send to itself.
  // Errors: the job's first failure, if there is one.
  virtual absl::Status SendToCoordinator(absl::string_view payload) = 0;

  // Sends `payload` to every rank, the caller included, each of which receives broadcasts in the order they were sent,
  // and returns. When the caller has received it, all others can without further help from the caller.
  // REQUIRES: called on rank 0.
  // Errors: the job's first failure, if there is one.
  virtual absl::Status Broadcast(absl::string_view payload) = 0;

  // All messages that have arrived, oldest first for each sender; empty if there are none. Does not wait for messages.
  // On rank 0 this yields both reports (from any rank) and its own broadcasts; `to_coordinator` and `broadcasts` keep
  // them apart. It waits until the others have drained the messages that keep the returned broadcasts from them.
  // REQUIRES: on rank 0: the caller has done all that earlier broadcasts have asked of it.
  // Errors: the job's first failure; INTERNAL if a peer's framing is damaged; on rank 0, DEADLINE_EXCEEDED naming a
  // rank that does not drain its messages.
  struct Inbox {
    std::vector<ControlMessage> to_coordinator;  // on rank 0 only
    std::vector<std::string> broadcasts;
    uint64_t called_off = 0;  // the highest schedule that any rank has called off so far; 0: none
  };
  virtual absl::StatusOr<Inbox> Receive() = 0;

  // Blocks until a message may have arrived, Wake was called since the last Wait returned, the job failed, or
  // `deadline` has passed. Uses no CPU while it blocks. May return early without cause.
  virtual void Wait(absl::Time deadline) = 0;

  // Makes the current or the next Wait return.
  virtual void Wake() = 0;

  // The thread that uses this object may poll: it looks at Receive again and again, where no message and no Wake need
  // wake the thread in Wait. False: this control plane cannot.
  virtual bool StartPolling() { return false; }
  // Called after each look, that is before the next one. False: nothing has come for so long that it is better to
  // sleep. REQUIRES: StartPolling() was true, as for StopPolling.
  virtual bool KeepPolling() { return false; }
  // Messages and Wakes since the last StartPolling or KeepPolling make Wait return.
  virtual void StopPolling() {}
  // Other threads are expected to poll: the next Wait need not be quick, and should not take their core.
  virtual void ExpectPolling() {}

  // Tells all ranks, the caller included, that schedule number `schedule` is to be unlocked (see locked_schedule.h):
  // their current or next Wait returns, and each Inbox says so from then on. Reaches ranks that do not listen to rank 0
  // at the moment, and does not need rank 0 to listen. Never blocks.
  virtual void CallOff(uint64_t schedule) = 0;

  // Records `failure` as the job's failure unless there is one already, and wakes every rank, in Wait or in the middle
  // of a collective. `failure` is attributed to this rank in the text that the others read.
  virtual void Fail(const absl::Status& failure) = 0;

  // The first failure of the job, the same text on every rank; OK while there is none.
  virtual absl::Status failure() const = 0;

  // Announces that this rank departs on purpose: from now on its end is no failure. If the control plane is destroyed
  // without that, as when an exception ends the start of a job, the job fails.
  virtual void Depart() = 0;

  // Announces that the program of this rank has ended without Depart, and that its process is about to end. The job
  // fails when the process is gone, and the failure names this cause. This rank notices no change. Returns when the
  // announcement has reached the other ranks, or after a few seconds. A control plane that cannot announce it does
  // nothing.
  virtual void AnnounceExit() {}
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_CONTROL_PLANE_H_
