#ifndef RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_EXCHANGES_H_
#define RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_EXCHANGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/messages/message_link.h"
#include "runtime/monitor/wait_watch.h"

namespace ronda {

// Brings a block of every member to every member, and the members' votes with them. (J. Bruck et al., "Efficient
// Algorithms for All-to-All Communications in Multiport Message-Passing Systems", 1997.)
//
// A rank holds the blocks of the members from its own place on, going round. In each step it sends them all to 7
// others, and so has 8 times as many afterwards: up to 8 ranks exchange theirs directly, 4,096 in four steps.
//
//   std::memcpy(exchange.Begin(members, bytes), own, bytes);
//   RONDA_RETURN_IF_ERROR(exchange.Run(info, bytes_total));
//   ... exchange.BlockOf(member) ...
//
// Keeps its memory from one exchange to the next. Thread-compatible.
class Dissemination {
 public:
  explicit Dissemination(MessageLink& link) : link_(link) {}

  // Where this rank's block, of `bytes` bytes, is to be written; aligned to 8 bytes. `members` must live until Run has
  // returned.
  // REQUIRES: this rank is a member.
  char* Begin(const Members& members, size_t bytes);

  // Exchanges the blocks for the call, which has `bytes_total` bytes to messages' readers, and holds its vote, if it
  // has one. Errors: MessageLink's.
  absl::Status Run(const CallInfo& info, size_t bytes_total);

  // The block of a member, until the next Begin; aligned to 8 bytes. Undefined under a veto.
  const char* BlockOf(int member) const { return At(PlaceOf(member)) + sizeof(Vote); }

 private:
  // What goes ahead of a block.
  using Vote = uint64_t;

  int PlaceOf(int member) const { return (member - members_->self() + members_->size()) % members_->size(); }
  const char* At(int place) const { return blocks_.data() + static_cast<size_t>(place) * block_bytes_; }
  char* At(int place) { return blocks_.data() + static_cast<size_t>(place) * block_bytes_; }
  RankId MemberAt(int place) const { return (*members_)[(members_->self() + place) % members_->size()]; }

  // Has `held` blocks; sends them on and receives those behind them.
  absl::Status Step(int held, const RunningCollective& running);
  Ballot::Result CountVotes() const;

  MessageLink& link_;
  const Members* members_ = nullptr;
  size_t block_bytes_ = 0;    // with the vote
  std::vector<char> blocks_;  // by place: this rank's, then those of the members behind it, going round
  TransferSet sends_;
  TransferSet receives_;
};

// The collectives that move bytes without looking at them. Data travels from the callers' memory to the callers'
// memory.
//
// - broadcast: little goes down a binomial tree. Of much, the root sends each member one share, chunk by chunk, which
//   that member sends on to all others: the root sends each byte about once.
// - allgather: to all others directly, or, as little from many, by Dissemination.
// - alltoall: each piece directly.
//
// Keeps its memory from one call to the next. Thread-compatible.
class MessageExchanges {
 public:
  MessageExchanges(MessageLink& link, Dissemination& exchange) : link_(link), exchange_(exchange) {}

  // REQUIRES: this rank is a member.
  absl::Status Broadcast(const BroadcastCall& call, const Members& members, size_t chunk_bytes);
  absl::Status Allgather(const AllgatherCall& call, const Members& members);
  absl::Status Alltoall(const AlltoallCall& call, const Members& members);

 private:
  absl::Status BroadcastDownTree(const BroadcastCall& call, const Members& members);
  absl::Status GatherSmall(const AllgatherCall& call, const Members& members, size_t most_bytes);

  MessageLink& link_;
  Dissemination& exchange_;
  TransferSet own_shares_[2];  // of chunks k and k + 1 of a broadcast
  TransferSet transfers_[2];
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_EXCHANGES_H_
