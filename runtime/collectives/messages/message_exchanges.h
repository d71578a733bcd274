// SPDX-License-Identifier: Apache-2.0

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

// Sends every member's block to every member, together with the votes. (J. Bruck et al., "Efficient Algorithms for
// All-to-All Communications in Multiport Message-Passing Systems", 1997.)
//
// A rank holds the blocks of consecutive members in ring order, starting with its own. In each step, it sends all
// blocks that it holds to 7 other ranks, and receives as many from each of 7 ranks. So each step multiplies the number
// of its blocks by eight. Up to 8 ranks exchange their blocks directly, and 4,096 ranks need four steps.
//
//   std::memcpy(exchange.Begin(members, bytes), own, bytes);
//   RONDA_RETURN_IF_ERROR(exchange.Run(info, bytes_total));
//   ... exchange.BlockOf(member) ...
//
// Reuses its memory for each exchange. Thread-compatible.
class Dissemination {
 public:
  explicit Dissemination(MessageLink& link) : link_(link) {}

  // Returns the address, aligned to 8 bytes, at which the caller must write this rank's block of `bytes` bytes.
  // `members` must stay valid until Run() returns. REQUIRES: this rank is a member.
  char* Begin(const Members& members, size_t bytes);

  // Exchanges the blocks, and holds the call's vote, if it has one. `bytes_total` is the size of the call, for error
  // texts.
  // Errors: those of MessageLink.
  absl::Status Run(const CallInfo& info, size_t bytes_total);

  // Returns the address of a member's block, aligned to 8 bytes and valid until the next Begin(). The contents are
  // undefined after a veto.
  const char* BlockOf(int member) const { return At(PositionOf(member)) + sizeof(Vote); }

 private:
  // The word before each block: Ballot::word(), or 0 in a call without a vote.
  using Vote = uint64_t;

  int PositionOf(int member) const { return (member - members_->self() + members_->size()) % members_->size(); }
  const char* At(int position) const { return blocks_.data() + static_cast<size_t>(position) * block_bytes_; }
  char* At(int position) { return blocks_.data() + static_cast<size_t>(position) * block_bytes_; }
  RankId MemberAt(int position) const { return (*members_)[(members_->self() + position) % members_->size()]; }

  // Sends the first `held` blocks to other members, and receives from them the blocks that follow in ring order.
  absl::Status Step(int held, const RunningCollective& running);
  // Returns the combined votes of all members.
  Vote CollectVotes() const;

  MessageLink& link_;
  const Members* members_ = nullptr;
  size_t block_bytes_ = 0;    // with the vote
  std::vector<char> blocks_;  // by position: this rank's block, then the other members' in ring order
  TransferSet sends_;
  TransferSet receives_;
};

// Executes the collectives that only move bytes, directly between the callers' buffers.
//
// - broadcast: small data travels down a binomial tree. Large data is divided into one share per member. Chunk by
//   chunk, the root sends each member its share, and the member forwards it to all other members. So the root sends
//   each byte about once.
// - allgather: each block travels directly to all other members, or by Dissemination if the blocks are small.
// - alltoall: each piece travels directly.
//
// Reuses its memory for each call. Thread-compatible.
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
