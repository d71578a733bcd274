#include "runtime/collectives/staged/staged_exchanges.h"

#include <algorithm>

#include "absl/types/span.h"

namespace ronda {
namespace {

// Copies between a device and a slot, in which bytes that follow each other on both sides are one copy.
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

// Of `bytes`, those that have their turn in `round`.
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

}  // namespace

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

}  // namespace ronda
