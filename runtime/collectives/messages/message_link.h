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

// A set of transfers under way that are awaited together. The set keeps its memory for the next transfers.
class TransferSet {
 private:
  friend class MessageLink;

  struct Transfer {
    PointToPoint::Request request;
    RankId peer;
  };
  std::vector<Transfer> transfers_;
};

// Decides whether a wait of a rank that shares its core yields the core or sleeps. If all ranks on a core communicate,
// they hand the core over within microseconds, which is faster than a sleep and its wake-up. A thread that computes
// keeps the core for its time slice of some milliseconds. When data comes, the scheduler lets a sleeping rank interrupt
// such a thread. But a rank that has yielded waits until the time slice ends. So after a long yield, the next waits
// sleep.
class CoreYields {
 public:
  static constexpr absl::Duration kLong = absl::Milliseconds(2);
  static constexpr int kWaitsThatSleep = 32;

  // Must be called at the start of each wait. Returns whether the wait may yield.
  bool MayBegin() {
    if (sleeps_ == 0) return true;
    --sleeps_;
    return false;
  }
  // Must be called after a yield that took `duration`. Returns whether the wait may yield again.
  bool MayGoOn(absl::Duration duration) {
    if (duration > kLong) sleeps_ = kWaitsThatSleep;
    return duration <= kLong;
  }

 private:
  int sleeps_ = 0;  // waits that must sleep before a wait may yield again
};

// Sends and receives one rank's messages, and waits for them.
//
// A wait always knows the rank that it waits for, because it awaits the transfers one after the other, while all of
// them make progress. A wait begins with a number of polls. A long wait sleeps between polls, each time for a small
// part of the time that it has lasted. The sleeps are short because a sleeping rank moves no messages, and some kinds
// of messages do not wake it. If ranks outnumber cores, the late rank may need this rank's core, so a wait yields the
// core between its polls. If messages wake the rank, as messages over TCP do, a wait that yields sleeps when yields
// take too long (CoreYields), or after 2 ms.
//
// Thread-compatible.
class MessageLink {
 public:
  struct Options {
    std::unique_ptr<PointToPoint> messages;
    std::vector<Peer> peers;                    // by rank of `messages`, with their ranks in the job
    std::shared_ptr<FlightBoard> flights;       // by rank of the job
    std::function<absl::Status()> job_failure;  // the job's first failure
    // Ranks of the job on this rank's host; unset: all of them are in `peers`.
    std::optional<int> ranks_on_host;
  };

  explicit MessageLink(Options options);

  RankId rank() const { return options_.messages->rank(); }
  int size() const { return options_.messages->size(); }
  absl::Status failure() const { return options_.job_failure(); }
  // Returns whether a wait keeps its core between polls, because this host has a core for each of its ranks.
  bool keeps_core() const { return keeps_core_; }
  // Returns whether ranks share cores, and arriving data wakes a sleeping rank.
  bool is_woken_by_data() const { return !keeps_core_ && options_.messages->rest_ends_with_data(); }

  // Returns a description of the collective that this rank runs, for its waits. If `steps` waiting ranks are between
  // the late rank and this rank, this rank's deadline is a little later. So the first rank to report the late rank is
  // the rank that waits for it directly.
  RunningCollective Running(const CallInfo& info, size_t bytes_total, int steps = 0) const;

  // Begins a transfer and adds it to `set`. If the size is 0 bytes, neither side begins a transfer.
  absl::Status Send(const void* data, size_t bytes, RankId to, TransferSet& set);
  absl::Status Receive(void* data, size_t bytes, RankId from, TransferSet& set);

  // Waits until all transfers of `set` are complete, and empties it. Errors: the job's failure; DEADLINE_EXCEEDED that
  // names the late rank; the errors of PointToPoint.
  absl::Status Wait(TransferSet& set, const RunningCollective& running);

 private:
  using Transfer = TransferSet::Transfer;

  absl::StatusOr<bool> IsComplete(Transfer& transfer);
  absl::Status WaitFor(Transfer& transfer, const RunningCollective& running);
  // Yields the core to the other ranks of this host, as long as yielding is faster than sleeping. Returns whether the
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
