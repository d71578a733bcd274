#ifndef RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_LINK_H_
#define RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_LINK_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/base/peer.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/messages/point_to_point.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/wait_watch.h"

namespace ronda {

// Messages under way that are waited for together. Keeps its memory for the next ones.
class TransferSet {
 private:
  friend class MessageLink;

  struct Transfer {
    PointToPoint::Request request;
    RankId peer;
  };
  std::vector<Transfer> transfers_;
};

// One rank's messages to and from the others, and what it does while it waits for them.
//
// Who is waited for is known by name at any time: transfers are waited for one after the other (all of them move on
// meanwhile). A wait is first a number of looks, between which the core is handed over where ranks outnumber cores,
// and, when it has become long, rests that are short beside what has been waited: who sleeps moves no messages, and not
// all messages wake somebody.
//
// Thread-compatible.
class MessageLink {
 public:
  struct Options {
    std::unique_ptr<PointToPoint> messages;
    std::vector<Peer> peers;                    // by rank of `messages`, with their ranks in the job
    std::shared_ptr<FlightBoard> flights;       // by rank of the job
    std::function<absl::Status()> job_failure;  // the job's first failure
    std::optional<int> ranks_on_host;           // of the job, on this rank's; unset: all of them are among `peers`
  };

  explicit MessageLink(Options options);

  RankId rank() const { return options_.messages->rank(); }
  int size() const { return options_.messages->size(); }
  absl::Status failure() const { return options_.job_failure(); }
  // Whether it keeps its core between the looks of a wait: the ranks of this host have one each.
  bool keeps_core() const { return keeps_core_; }

  // What waits need to know about the collective that this rank is in. With `steps` others between the late rank and
  // this one, which wait themselves, the deadline is a little later: who waits for the late rank itself is then the
  // first to say who that is.
  RunningCollective Running(const CallInfo& info, size_t bytes_total, int steps = 0) const;

  // Begins a transfer and adds it to `set`; 0 bytes: none, on neither side.
  absl::Status Send(const void* data, size_t bytes, RankId to, TransferSet& set);
  absl::Status Receive(void* data, size_t bytes, RankId from, TransferSet& set);

  // Waits until all transfers of `set` are complete; it is empty then.
  // Errors: the job's failure; DEADLINE_EXCEEDED that names who is late; the library's.
  absl::Status Wait(TransferSet& set, const RunningCollective& running);

 private:
  using Transfer = TransferSet::Transfer;

  absl::StatusOr<bool> IsComplete(Transfer& transfer);
  absl::Status WaitFor(Transfer& transfer, const RunningCollective& running);
  absl::Status WaitLonger(Transfer& transfer, const RunningCollective& running);
  // The library's error, or the job's failure if that is what is behind it.
  absl::Status Explain(const absl::Status& error, RankId peer) const;

  const Options options_;
  const bool keeps_core_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_LINK_H_
