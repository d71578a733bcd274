// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/messages/message_exchanges.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr int kFanOut = 8;

// Up to this size, a broadcast down a tree is faster than a broadcast by shares, although it takes log N consecutive
// messages instead of two.
constexpr size_t kTreeBytes = 64 << 10;
// Up to this size, Dissemination, in which members forward blocks, is faster than sending each block directly to each
// member.
constexpr size_t kSmallBlockBytes = 1024;

const char* At(const void* base, size_t offset) { return static_cast<const char*>(base) + offset; }
char* At(void* base, size_t offset) { return static_cast<char*>(base) + offset; }

void Copy(const void* from, size_t bytes, void* to) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

size_t Sum(absl::Span<const size_t> bytes) { return std::accumulate(bytes.begin(), bytes.end(), size_t{0}); }

// Executes one broadcast by shares on one rank.
class SharedBroadcast {
 public:
  SharedBroadcast(const BroadcastCall& call, const Members& members, size_t chunk_bytes, MessageLink& link)
      : call_(call), members_(members), chunk_bytes_(chunk_bytes), link_(link) {}

  uint64_t chunks() const { return (call_.bytes + chunk_bytes_ - 1) / chunk_bytes_; }

  // On the root, starts sending each member its share of chunk k, and the root's own share to all. On other members,
  // starts receiving all shares. Adds the transfer of this member's share to `own`, and all others to `others`.
  absl::Status Begin(uint64_t k, TransferSet& own, TransferSet& others) {
    const bool is_root = members_.self() == call_.root;
    for (int i = 1; i < members_.size(); ++i) {
      const int peer = (members_.self() + i) % members_.size();
      if (is_root) {
        RONDA_RETURN_IF_ERROR(Send(k, peer, peer, others));
        RONDA_RETURN_IF_ERROR(Send(k, call_.root, peer, others));
      } else if (peer == call_.root) {
        RONDA_RETURN_IF_ERROR(Receive(k, members_.self(), peer, own));
        RONDA_RETURN_IF_ERROR(Receive(k, peer, peer, others));
      } else {
        RONDA_RETURN_IF_ERROR(Receive(k, peer, peer, others));
      }
    }
    return absl::OkStatus();
  }

  // Sends this member's share of chunk k to all members except the root. The share must have arrived.
  absl::Status PassOn(uint64_t k, TransferSet& transfers) {
    for (int i = 1; i < members_.size() && members_.self() != call_.root; ++i) {
      const int peer = (members_.self() + i) % members_.size();
      if (peer != call_.root) RONDA_RETURN_IF_ERROR(Send(k, members_.self(), peer, transfers));
    }
    return absl::OkStatus();
  }

 private:
  struct Piece {
    size_t begin;
    size_t bytes;
  };
  Piece ShareOf(uint64_t k, int member) const {
    const size_t begin = k * chunk_bytes_;
    const size_t bytes = std::min(chunk_bytes_, call_.bytes - begin);
    const auto cut = [&](int i) { return bytes * static_cast<size_t>(i) / static_cast<size_t>(members_.size()); };
    return {.begin = begin + cut(member), .bytes = cut(member + 1) - cut(member)};
  }

  absl::Status Send(uint64_t k, int share, int to, TransferSet& transfers) {
    const Piece piece = ShareOf(k, share);
    return link_.Send(At(call_.data, piece.begin), piece.bytes, members_[to], transfers);
  }
  absl::Status Receive(uint64_t k, int share, int from, TransferSet& transfers) {
    const Piece piece = ShareOf(k, share);
    return link_.Receive(At(call_.data, piece.begin), piece.bytes, members_[from], transfers);
  }

  const BroadcastCall& call_;
  const Members& members_;
  const size_t chunk_bytes_;
  MessageLink& link_;
};

}  // namespace

char* Dissemination::Begin(const Members& members, size_t bytes) {
  members_ = &members;
  block_bytes_ = (sizeof(Vote) + bytes + alignof(Vote) - 1) / alignof(Vote) * alignof(Vote);
  const size_t needed = block_bytes_ * static_cast<size_t>(members.size());
  if (blocks_.size() < needed) blocks_.resize(needed);
  return At(0) + sizeof(Vote);
}

absl::Status Dissemination::Run(const CallInfo& info, size_t bytes_total) {
  Ballot* const ballot = info.ballot;
  const Vote own = ballot != nullptr ? ballot->word() : 0;
  std::memcpy(At(0), &own, sizeof(own));
  std::optional<LateCall> late_call;
  if (ballot != nullptr) late_call.emplace(ballot->when_late);
  int steps = 0;
  for (int held = 1; held < members_->size(); held *= kFanOut) {
    RunningCollective running = link_.Running(info, bytes_total, steps++);
    if (late_call.has_value()) running.late_call = &*late_call;
    RONDA_RETURN_IF_ERROR(Step(held, running));
  }
  RONDA_RETURN_IF_ERROR(link_.Wait(sends_, link_.Running(info, bytes_total, steps)));
  if (ballot != nullptr) ballot->Decide(static_cast<uint8_t>(CollectVotes()));
  return absl::OkStatus();
}

absl::Status Dissemination::Step(int held, const RunningCollective& running) {
  const int size = members_->size();
  for (int position = held; position < std::min(size, kFanOut * held); position += held) {
    const size_t bytes = static_cast<size_t>(std::min(held, size - position)) * block_bytes_;
    RONDA_RETURN_IF_ERROR(link_.Receive(At(position), bytes, MemberAt(position), receives_));
    RONDA_RETURN_IF_ERROR(link_.Send(At(0), bytes, MemberAt(size - position), sends_));
  }
  return link_.Wait(receives_, running);
}

Dissemination::Vote Dissemination::CollectVotes() const {
  Vote all = 0;
  for (int position = 0; position < members_->size(); ++position) {
    Vote vote = 0;
    std::memcpy(&vote, At(position), sizeof(vote));
    all |= vote;
  }
  return all;
}

absl::Status MessageExchanges::Broadcast(const BroadcastCall& call, const Members& members, size_t chunk_bytes) {
  if (call.bytes <= kTreeBytes || members.size() <= 2) return BroadcastDownTree(call, members);
  RunningCollective running = link_.Running(call.info, call.bytes);
  SharedBroadcast broadcast(call, members, chunk_bytes, link_);
  for (uint64_t step = 0; step < broadcast.chunks() + 1; ++step) {
    if (step < broadcast.chunks()) {
      RONDA_RETURN_IF_ERROR(broadcast.Begin(step, own_shares_[step % 2], transfers_[step % 2]));
    }
    if (step == 0) continue;
    const uint64_t k = step - 1;
    RONDA_RETURN_IF_ERROR(link_.Wait(own_shares_[k % 2], running));
    RONDA_RETURN_IF_ERROR(broadcast.PassOn(k, transfers_[k % 2]));
    RONDA_RETURN_IF_ERROR(link_.Wait(transfers_[k % 2], running));
    running.bytes_done = std::min(call.bytes, (k + 1) * chunk_bytes);
  }
  return absl::OkStatus();
}

absl::Status MessageExchanges::BroadcastDownTree(const BroadcastCall& call, const Members& members) {
  const int size = members.size();
  // The root is at position 0 in the tree. Clearing the lowest set bit of a position yields the parent's position.
  const int position = (members.self() - call.root + size) % size;
  // So each of the position's other set bits stands for one member between this member and the root.
  const int between = std::max(0, std::popcount(static_cast<unsigned>(position)) - 1);
  const RunningCollective running = link_.Running(call.info, call.bytes, between);
  const auto rank_at = [&](int at) { return members[(at + call.root) % size]; };
  int distance = 1;
  while (distance < size && (position & distance) == 0) distance *= 2;
  if (position != 0) {
    RONDA_RETURN_IF_ERROR(link_.Receive(call.data, call.bytes, rank_at(position - distance), transfers_[0]));
    RONDA_RETURN_IF_ERROR(link_.Wait(transfers_[0], running));
  }
  for (distance /= 2; distance > 0; distance /= 2) {
    if (position + distance >= size) continue;
    RONDA_RETURN_IF_ERROR(link_.Send(call.data, call.bytes, rank_at(position + distance), transfers_[0]));
  }
  return link_.Wait(transfers_[0], running);
}

absl::Status MessageExchanges::Allgather(const AllgatherCall& call, const Members& members) {
  const absl::Span<const size_t> bytes = call.bytes_per_rank;
  const size_t most_bytes = *std::max_element(bytes.begin(), bytes.end());
  if (!call.receiver.has_value() && most_bytes <= kSmallBlockBytes) return GatherSmall(call, members, most_bytes);
  const int size = members.size();
  const int self = members.self();
  const bool receives = call.receiver.value_or(self) == self;
  size_t offset = 0;
  for (int sender = 0; sender < size && receives; ++sender) {
    char* const to = At(call.output, offset);
    offset += bytes[sender];
    if (sender == self) continue;
    RONDA_RETURN_IF_ERROR(link_.Receive(to, bytes[sender], members[sender], transfers_[0]));
  }
  for (int i = 1; i < size; ++i) {
    const int peer = (self + i) % size;
    if (call.receiver.value_or(peer) != peer) continue;
    RONDA_RETURN_IF_ERROR(link_.Send(call.input, bytes[self], members[peer], transfers_[0]));
  }
  if (receives) Copy(call.input, bytes[self], At(call.output, Sum(bytes.first(static_cast<size_t>(self)))));
  return link_.Wait(transfers_[0], link_.Running(call.info, Sum(bytes)));
}

absl::Status MessageExchanges::GatherSmall(const AllgatherCall& call, const Members& members, size_t most_bytes) {
  const absl::Span<const size_t> bytes = call.bytes_per_rank;
  if (most_bytes == 0) return absl::OkStatus();
  Copy(call.input, bytes[members.self()], exchange_.Begin(members, most_bytes));
  RONDA_RETURN_IF_ERROR(exchange_.Run(call.info, Sum(bytes)));
  char* to = static_cast<char*>(call.output);
  for (int member = 0; member < members.size(); ++member) {
    Copy(exchange_.BlockOf(member), bytes[member], to);
    to += bytes[member];
  }
  return absl::OkStatus();
}

absl::Status MessageExchanges::Alltoall(const AlltoallCall& call, const Members& members) {
  const size_t size = static_cast<size_t>(members.size());
  const size_t self = static_cast<size_t>(members.self());
  const auto bytes_from = [&](size_t sender) { return call.bytes[sender * size + self]; };
  const absl::Span<const size_t> row = call.bytes.subspan(self * size, size);
  size_t total = 0;
  for (size_t sender = 0; sender < size; ++sender) {
    char* const to = At(call.output, total);
    total += bytes_from(sender);
    if (sender == self) {
      Copy(At(call.input, Sum(row.first(self))), row[self], to);
    } else {
      RONDA_RETURN_IF_ERROR(link_.Receive(to, bytes_from(sender), members[static_cast<int>(sender)], transfers_[0]));
    }
  }
  size_t begin = 0;
  for (size_t receiver = 0; receiver < size; ++receiver) {
    if (receiver != self) {
      RONDA_RETURN_IF_ERROR(
          link_.Send(At(call.input, begin), row[receiver], members[static_cast<int>(receiver)], transfers_[0]));
    }
    begin += row[receiver];
  }
  return link_.Wait(transfers_[0], link_.Running(call.info, total));
}

}  // namespace ronda
