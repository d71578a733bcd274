#ifndef RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_EXCHANGES_H_
#define RONDA_RUNTIME_COLLECTIVES_MESSAGES_MESSAGE_EXCHANGES_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/members.h"
#include "runtime/collectives/messages/dissemination.h"
#include "runtime/collectives/messages/message_link.h"
#include "runtime/monitor/wait_watch.h"

namespace ronda {

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
