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

// Transfers in progress that a caller waits for together. The set reuses its memory.
class TransferSet {
 private:
  friend class MessageLink;

  struct Transfer {
    PointToPoint::Request request;
    RankId peer;
  };
  std::vector<Transfer> transfers_;
};

// Decides, for a rank that shares its core, whether a wait yields the core or sleeps. If all ranks on a core are
// communicating, a rank that yields gets the core back within microseconds, sooner than after a sleep and a wake-up.
// But a computing thread keeps the core for its time slice of some milliseconds. A sleeping rank can preempt such a
// thread when data arrives, while a rank that has yielded must wait for the end of the time slice. So after a long
// yield, the next waits sleep.
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
// During a wait, all transfers make progress. The wait checks them for completion one after the other, so it always
// knows which rank it is waiting for. It first polls for a while, and then sleeps between polls, each time for a small
// fraction of the time waited so far. The sleeps are short because a sleeping rank moves no messages, and some kinds of
// messages do not wake it. If the ranks outnumber the cores, the late rank may need this rank's core, so the wait
// yields the core between polls. Messages over TCP wake a sleeping rank; with them, a wait that yields starts sleeping
// when its yields take too long (CoreYields), or after 2 ms.
//
// Thread-compatible.
class MessageLink {
 public:
  struct Options {
    std::unique_ptr<PointToPoint> messages;
    std::vector<Peer> peers;                    // by rank in `messages`, with their ranks in the job
    std::shared_ptr<FlightBoard> flights;       // by rank in the job
    std::function<absl::Status()> job_failure;  // the job's first failure
    // The number of the job's ranks on this rank's host; unset: all of them are in `peers`.
    std::optional<int> ranks_on_host;
  };

  explicit MessageLink(Options options);

  RankId rank() const { return options_.messages->rank(); }
  int size() const { return options_.messages->size(); }
  absl::Status failure() const { return options_.job_failure(); }
  // Returns whether waits keep their core between polls. They do if this host has a core for each of its ranks.
  bool keeps_core() const { return keeps_core_; }
  // Returns whether ranks share cores and arriving data wakes a sleeping rank.
  bool is_woken_by_data() const { return !keeps_core_ && options_.messages->rest_ends_with_data(); }

  // Describes the running collective for this rank's waits. `steps` is the number of waiting ranks between a late rank
  // and this rank; each makes this rank's deadline a little later, so that the first rank to report the late rank is
  // one that waits for it directly.
  RunningCollective Running(const CallInfo& info, size_t bytes_total, int steps = 0) const;

  // Start a transfer, and add it to `set`. Neither side starts a transfer of 0 bytes.
  absl::Status Send(const void* data, size_t bytes, RankId to, TransferSet& set);
  absl::Status Receive(void* data, size_t bytes, RankId from, TransferSet& set);

  // Waits until all transfers in `set` are complete, and clears `set`. Errors: the job's failure; DEADLINE_EXCEEDED
  // that names the late rank; the errors of PointToPoint.
  absl::Status Wait(TransferSet& set, const RunningCollective& running);

 private:
  using Transfer = TransferSet::Transfer;

  absl::StatusOr<bool> IsComplete(Transfer& transfer);
  absl::Status WaitFor(Transfer& transfer, const RunningCollective& running);
  // Yields the core to other ranks of this host as long as that takes less time than sleeping. Returns whether the
  // transfer is complete.
  absl::StatusOr<bool> YieldFor(Transfer& transfer);
  absl::Status WaitLonger(Transfer& transfer, const RunningCollective& running);
  // Sleeps if a wait that has taken `waited` so far should sleep now.
  void Sleep(absl::Duration waited);
  // Returns `error`, or the job's failure if it is the cause of `error`.
  absl::Status Explain(const absl::Status& error, RankId peer) const;

  const Options options_;
  const bool keeps_core_;
  CoreYields yields_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_LINK_H_
