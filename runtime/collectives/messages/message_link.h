// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_LINK_H_
#define RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_LINK_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/peer.h"
#include "runtime/collectives/communicator.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/wait_watch.h"
#include "runtime/point_to_point/point_to_point.h"

namespace ronda {

// Transfers in progress that a caller awaits together. The set keeps its memory for the next transfers.
class TransferSet {
 private:
  friend class MessageLink;

  struct Transfer {
    PointToPoint::Request request;
    RankId peer;
  };
  std::vector<Transfer> transfers_;
};

// Decides, for a rank that shares its core, whether a wait yields the core or sleeps. If all ranks on a core
// communicate, a rank that yields gets the core back within microseconds. A sleep and its wake-up would take longer. A
// thread that computes keeps the core for its time slice of some milliseconds. When data arrives, a rank that sleeps
// may interrupt such a thread. A rank that has yielded must wait until the time slice of the thread ends. So after a
// long yield, the next waits sleep.
class CoreYields {
 public:
  static constexpr absl::Duration kLong = absl::Milliseconds(2);
  static constexpr int kWaitsThatSleep = 32;

  // The caller must call MayBegin at the start of each wait. Returns whether the wait may yield.
  bool MayBegin() {
    if (sleeps_ == 0) return true;
    --sleeps_;
    return false;
  }
  // The caller must call MayGoOn after a yield that took `duration`. Returns whether the wait may yield again.
  bool MayGoOn(absl::Duration duration) {
    if (duration > kLong) sleeps_ = kWaitsThatSleep;
    return duration <= kLong;
  }

 private:
  int sleeps_ = 0;  // waits that must sleep before a wait may yield again
};

// Sends and receives the messages of one rank, and waits for them.
//
// A wait awaits one transfer after the other, while all transfers make progress. So it always knows for which rank it
// waits. A wait begins with a number of polls. A wait that lasts longer sleeps between polls. Each sleep lasts for a
// small part of the time that the wait has taken so far. The sleeps are short because a sleeping rank moves no
// messages, and because some kinds of messages do not wake it. If the ranks outnumber the cores, the late rank may need
// this rank's core. So the wait yields the core between polls. Messages over TCP wake a sleeping rank. With such
// messages, a wait that yields begins to sleep when its yields take too long (CoreYields), or after 2 ms.
//
// Thread-compatible.
class MessageLink {
 public:
  struct Options {
    std::unique_ptr<PointToPoint> messages;
    std::vector<Peer> peers;                    // by rank of `messages`, with their ranks in the job
    std::shared_ptr<FlightBoard> flights;       // by rank of the job
    std::function<absl::Status()> job_failure;  // the job's first failure
    // The number of the job's ranks on this rank's host; unset: all of these ranks are in `peers`.
    std::optional<int> ranks_on_host;
  };

  explicit MessageLink(Options options);

  RankId rank() const { return options_.messages->rank(); }
  int size() const { return options_.messages->size(); }
  absl::Status failure() const { return options_.job_failure(); }
  // Returns whether a wait keeps its core between polls. A wait keeps its core if this host has a core for each of its
  // ranks.
  bool keeps_core() const { return keeps_core_; }
  // Returns whether ranks share cores, and arriving data wakes a sleeping rank.
  bool is_woken_by_data() const { return !keeps_core_ && options_.messages->rest_ends_with_data(); }

  // Returns a description of the running collective, for this rank's waits. If `steps` waiting ranks are between the
  // late rank and this rank, this rank's deadline is a little later. So the rank that first reports the late rank is a
  // rank that waits for it directly.
  RunningCollective Running(const CallInfo& info, size_t bytes_total, int steps = 0) const;

  // Begins a transfer, and adds it to `set`. A transfer of 0 bytes is not begun, on either side.
  absl::Status Send(const void* data, size_t bytes, RankId to, TransferSet& set);
  absl::Status Receive(void* data, size_t bytes, RankId from, TransferSet& set);

  // Waits until all transfers in `set` are complete, and empties `set`. Errors: the job's failure; DEADLINE_EXCEEDED
  // that names the late rank; the errors of PointToPoint.
  absl::Status Wait(TransferSet& set, const RunningCollective& running);

 private:
  using Transfer = TransferSet::Transfer;

  absl::StatusOr<bool> IsComplete(Transfer& transfer);
  absl::Status WaitFor(Transfer& transfer, const RunningCollective& running);
  // Yields the core to other ranks of this host, as long as a yield takes less time than a sleep. Returns whether the
  // transfer is complete.
  absl::StatusOr<bool> YieldFor(Transfer& transfer);
  absl::Status WaitLonger(Transfer& transfer, const RunningCollective& running);
  // Sleeps if a wait that has lasted for `waited` should sleep now.
  void Sleep(absl::Duration waited);
  // Returns `error`, or the job's failure if that failure is the cause of `error`.
  absl::Status Explain(const absl::Status& error, RankId peer) const;

  const Options options_;
  const bool keeps_core_;
  CoreYields yields_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_LINK_H_
