// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/staged/staged_communicator.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/staged/staged_reduce.h"
#include "runtime/collectives/staged/staging.h"

namespace ronda {
namespace {

// Copies between a device and a slot. Merges copies that are adjacent both on the device and in the slot.
class Copies {
 public:
  void Add(void* dst, const void* src, size_t bytes) {
    if (bytes == 0) return;
    auto* const to = static_cast<std::byte*>(dst);
    const auto* const from = static_cast<const std::byte*>(src);
    if (!copies_.empty() && copies_.back().dst + copies_.back().bytes == to &&
        copies_.back().src + copies_.back().bytes == from) {
      copies_.back().bytes += bytes;
    } else {
      copies_.push_back({.dst = to, .src = from, .bytes = bytes});
    }
  }

  absl::Status Enqueue(Staging& staging) const {
    return staging.OnStream("copying between device and host",
                            [this](const ronda_cuda_plugin& cuda, StreamHandle stream) {
                              for (const Copy& copy : copies_) {
                                const int error = cuda.copy(copy.dst, copy.src, copy.bytes, stream);
                                if (error != 0) return error;
                              }
                              return 0;
                            });
  }

 private:
  struct Copy {
    std::byte* dst;
    const std::byte* src;
    size_t bytes;
  };
  std::vector<Copy> copies_;
};

size_t RoundsFor(absl::Span<const size_t> bytes, size_t share) {
  const size_t most = bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
  return (most + share - 1) / share;
}

// Returns the number of bytes that `round` transfers, if `bytes` bytes are transferred in rounds of at most `share`
// bytes.
size_t ShareOf(size_t bytes, size_t round, size_t share) {
  const size_t begin = round * share;
  return bytes > begin ? std::min(bytes - begin, share) : 0;
}

std::vector<size_t> SharesOf(absl::Span<const size_t> bytes, size_t round, size_t share) {
  std::vector<size_t> shares;
  shares.reserve(bytes.size());
  for (size_t each : bytes) shares.push_back(ShareOf(each, round, share));
  return shares;
}

// The classes below keep references to their arguments, which must outlive them.

class StagedBroadcast : public StagedCall {
 public:
  StagedBroadcast(const BroadcastCall& call, const Members& members, Communicator* host, Staging* staging)
      : call_(call), is_root_(members.IncludeSelf() && members.self() == call.root), host_(host), staging_(staging) {}

  size_t rounds() const override;
  absl::Status CopyOut(size_t round, std::byte* slot) override;
  absl::Status Exchange(size_t round, std::byte* slot) override;
  absl::Status CopyBack(size_t round, std::byte* slot) override;

 private:
  size_t BytesOf(size_t round) const;
  std::byte* DataOf(size_t round) const;

  const BroadcastCall& call_;
  const bool is_root_;
  Communicator* const host_;
  Staging* const staging_;
};

// An allgather in rounds: in each, every member sends the next bytes of its input. The bytes of all members together
// fit into a slot.
class StagedAllgather : public StagedCall {
 public:
  StagedAllgather(const AllgatherCall& call, const Members& members, Communicator* host, Staging* staging);

  size_t rounds() const override { return rounds_; }
  absl::Status CopyOut(size_t round, std::byte* slot) override;
  absl::Status Exchange(size_t round, std::byte* slot) override;
  absl::Status CopyBack(size_t round, std::byte* slot) override;

 private:
  const AllgatherCall& call_;
  const Members& members_;
  Communicator* const host_;
  Staging* const staging_;
  const size_t share_;  // maximum bytes per member and round
  const size_t rounds_;
};

// An alltoall in rounds: in each, every member sends each receiver the next bytes of its piece.
class StagedAlltoall : public StagedCall {
 public:
  StagedAlltoall(const AlltoallCall& call, const Members& members, Communicator* host, Staging* staging);

  size_t rounds() const override { return rounds_; }
  absl::Status CopyOut(size_t round, std::byte* slot) override;
  absl::Status Exchange(size_t round, std::byte* slot) override;
  absl::Status CopyBack(size_t round, std::byte* slot) override;

 private:
  size_t PieceBytes(int sender, int receiver) const { return call_.bytes[sender * members_.size() + receiver]; }
  // Returns the offset of the received pieces in a slot.
  size_t ReceivedAt() const { return share_ * members_.size(); }

  const AlltoallCall& call_;
  const Members& members_;
  Communicator* const host_;
  Staging* const staging_;
  const size_t share_;  // maximum bytes per piece and round
  const size_t rounds_;
};

size_t StagedBroadcast::rounds() const { return (call_.bytes + staging_->slot_bytes() - 1) / staging_->slot_bytes(); }

absl::Status StagedBroadcast::CopyOut(size_t round, std::byte* slot) {
  Copies copies;
  if (is_root_) copies.Add(slot, DataOf(round), BytesOf(round));
  return copies.Enqueue(*staging_);
}

absl::Status StagedBroadcast::Exchange(size_t round, std::byte* slot) {
  BroadcastCall on_host = call_;
  on_host.data = slot;
  on_host.bytes = BytesOf(round);
  return host_->Broadcast(on_host);
}

absl::Status StagedBroadcast::CopyBack(size_t round, std::byte* slot) {
  Copies copies;
  if (!is_root_) copies.Add(DataOf(round), slot, BytesOf(round));
  return copies.Enqueue(*staging_);
}

size_t StagedBroadcast::BytesOf(size_t round) const { return ShareOf(call_.bytes, round, staging_->slot_bytes()); }

std::byte* StagedBroadcast::DataOf(size_t round) const {
  return static_cast<std::byte*>(call_.data) + round * staging_->slot_bytes();
}

StagedAllgather::StagedAllgather(const AllgatherCall& call, const Members& members, Communicator* host,
                                 Staging* staging)
    : call_(call),
      members_(members),
      host_(host),
      staging_(staging),
      share_(staging->slot_bytes() / (static_cast<size_t>(members.size()) + 1)),
      rounds_(RoundsFor(call.bytes_per_rank, share_)) {}

absl::Status StagedAllgather::CopyOut(size_t round, std::byte* slot) {
  Copies copies;
  const size_t bytes = call_.bytes_per_rank[members_.self()];
  copies.Add(slot, static_cast<const std::byte*>(call_.input) + round * share_, ShareOf(bytes, round, share_));
  return copies.Enqueue(*staging_);
}

absl::Status StagedAllgather::Exchange(size_t round, std::byte* slot) {
  const std::vector<size_t> shares = SharesOf(call_.bytes_per_rank, round, share_);
  AllgatherCall on_host = call_;
  on_host.input = slot;
  on_host.output = slot == nullptr ? nullptr : slot + share_;
  on_host.bytes_per_rank = shares;
  return host_->Allgather(on_host);
}

absl::Status StagedAllgather::CopyBack(size_t round, std::byte* slot) {
  Copies copies;
  if (call_.receiver.value_or(members_.self()) != members_.self()) return absl::OkStatus();
  const std::byte* from = slot + share_;
  auto* to = static_cast<std::byte*>(call_.output) + round * share_;
  for (size_t bytes : call_.bytes_per_rank) {
    const size_t now = ShareOf(bytes, round, share_);
    copies.Add(to, from, now);
    from += now;
    to += bytes;
  }
  return copies.Enqueue(*staging_);
}

StagedAlltoall::StagedAlltoall(const AlltoallCall& call, const Members& members, Communicator* host, Staging* staging)
    : call_(call),
      members_(members),
      host_(host),
      staging_(staging),
      share_(staging->slot_bytes() / (2 * static_cast<size_t>(members.size()))),
      rounds_(RoundsFor(call.bytes, share_)) {}

absl::Status StagedAlltoall::CopyOut(size_t round, std::byte* slot) {
  Copies copies;
  const auto* from = static_cast<const std::byte*>(call_.input) + round * share_;
  for (int receiver = 0; receiver < members_.size(); ++receiver) {
    const size_t bytes = PieceBytes(members_.self(), receiver);
    const size_t now = ShareOf(bytes, round, share_);
    copies.Add(slot, from, now);
    slot += now;
    from += bytes;
  }
  return copies.Enqueue(*staging_);
}

absl::Status StagedAlltoall::Exchange(size_t round, std::byte* slot) {
  const std::vector<size_t> shares = SharesOf(call_.bytes, round, share_);
  AlltoallCall on_host = call_;
  on_host.input = slot;
  on_host.output = slot == nullptr ? nullptr : slot + ReceivedAt();
  on_host.bytes = shares;
  return host_->Alltoall(on_host);
}

absl::Status StagedAlltoall::CopyBack(size_t round, std::byte* slot) {
  Copies copies;
  const std::byte* from = slot + ReceivedAt();
  auto* to = static_cast<std::byte*>(call_.output) + round * share_;
  for (int sender = 0; sender < members_.size(); ++sender) {
    const size_t bytes = PieceBytes(sender, members_.self());
    const size_t now = ShareOf(bytes, round, share_);
    copies.Add(to, from, now);
    from += now;
    to += bytes;
  }
  return copies.Enqueue(*staging_);
}

absl::Status Run(Staging& staging, const CallInfo& info, const Members& members, StagedCall& call) {
  return members.IncludeSelf() ? staging.Run(info, call) : Staging::RunOutside(call);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagedCommunicator>> StagedCommunicator::Create(Options options) {
  // Makes slots large enough for a piece of every member.
  const size_t smallest = std::max(StagedReduce::kMinSlotBytes, static_cast<size_t>(options.host->size()) * 64);
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<Staging> staging,
                         Staging::Create({.device = std::move(options.device),
                                          .stream = options.stream,
                                          .slot_bytes = std::max(options.slot_bytes, smallest),
                                          .marks = options.marks,
                                          .job_failure = std::move(options.job_failure)}));
  return std::unique_ptr<StagedCommunicator>(new StagedCommunicator(options.host, std::move(staging)));
}

absl::Status StagedCommunicator::Reduce(const ReduceCall& call) {
  StagedReduce staged(call, host_, staging_.get());
  return Run(*staging_, call.info, Members(call.info, rank(), size()), staged);
}

absl::Status StagedCommunicator::Broadcast(const BroadcastCall& call) {
  const Members members(call.info, rank(), size());
  StagedBroadcast staged(call, members, host_, staging_.get());
  return Run(*staging_, call.info, members, staged);
}

absl::Status StagedCommunicator::Allgather(const AllgatherCall& call) {
  const Members members(call.info, rank(), size());
  StagedAllgather staged(call, members, host_, staging_.get());
  return Run(*staging_, call.info, members, staged);
}

absl::Status StagedCommunicator::Alltoall(const AlltoallCall& call) {
  const Members members(call.info, rank(), size());
  StagedAlltoall staged(call, members, host_, staging_.get());
  return Run(*staging_, call.info, members, staged);
}

absl::Status StagedCommunicator::Barrier(const CallInfo& info) { return host_->Barrier(info); }

}  // namespace ronda
