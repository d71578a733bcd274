// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/peer/peer_exchange.h"

#include <algorithm>

#include "absl/types/span.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

size_t Most(absl::Span<const size_t> bytes) { return *std::max_element(bytes.begin(), bytes.end()); }

// Returns how many of a piece's `bytes` bytes belong to the round that starts at `begin`.
size_t ShareOf(size_t bytes, size_t begin, size_t share) { return bytes > begin ? std::min(bytes - begin, share) : 0; }

// Return the address `offset` bytes after `data`, which may be nullptr if there are no bytes to copy.
const std::byte* At(const void* data, size_t offset) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + offset;
}
std::byte* At(void* data, size_t offset) { return data == nullptr ? nullptr : static_cast<std::byte*>(data) + offset; }

}  // namespace

absl::Status PeerExchange::RunRounds(const CallInfo& info, size_t most, size_t share, Put put, Get get) {
  for (size_t begin = 0; begin < most; begin += share) {
    const PeerGroup::Slot slot = group_->NextSlot();
    RONDA_RETURN_IF_ERROR(put(begin, slot.data + slot.stride * static_cast<size_t>(group_->self())));
    RONDA_RETURN_IF_ERROR(group_->Meet(info));
    RONDA_RETURN_IF_ERROR(get(begin, slot));
  }
  return Marked(options_.marks, StreamPhase::kTransfer, group_->EndReads());
}

absl::Status PeerExchange::Copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return options_.device->Call(
      "copying", [&](const ronda_cuda_plugin& cuda) { return cuda.copy(to, from, bytes, options_.stream); });
}

absl::Status PeerExchange::Broadcast(const BroadcastCall& call) {
  if (group_->size() == 1) return absl::OkStatus();
  const size_t share = group_->slot_bytes();
  const bool is_root = group_->self() == call.root;
  const auto put = [&](size_t begin, std::byte* slot) {
    return Copy(slot, At(call.data, begin), is_root ? ShareOf(call.bytes, begin, share) : 0);
  };
  const auto get = [&](size_t begin, const PeerGroup::Slot& slot) {
    const std::byte* const from = slot.data + slot.stride * static_cast<size_t>(call.root);
    return Copy(At(call.data, begin), from, is_root ? 0 : ShareOf(call.bytes, begin, share));
  };
  return RunRounds(call.info, call.bytes, share, put, get);
}

absl::Status PeerExchange::Allgather(const AllgatherCall& call) {
  const size_t share = group_->slot_bytes();
  const auto self = static_cast<size_t>(group_->self());
  const bool receives = call.receiver.value_or(group_->self()) == group_->self();
  const auto put = [&](size_t begin, std::byte* slot) {
    return Copy(slot, At(call.input, begin), ShareOf(call.bytes_per_rank[self], begin, share));
  };
  const auto get = [&](size_t begin, const PeerGroup::Slot& slot) {
    size_t to = begin;
    for (size_t sender = 0; sender < call.bytes_per_rank.size() && receives; ++sender) {
      const std::byte* const from = sender == self ? At(call.input, begin) : slot.data + slot.stride * sender;
      RONDA_RETURN_IF_ERROR(Copy(At(call.output, to), from, ShareOf(call.bytes_per_rank[sender], begin, share)));
      to += call.bytes_per_rank[sender];
    }
    return absl::OkStatus();
  };
  return RunRounds(call.info, Most(call.bytes_per_rank), share, put, get);
}

absl::Status PeerExchange::Alltoall(const AlltoallCall& call) {
  const auto n = static_cast<size_t>(group_->size());
  const auto self = static_cast<size_t>(group_->self());
  const size_t share = group_->slot_bytes() / n;
  size_t own = 0;  // offset in the input of the next bytes of this member's own piece
  const auto put = [&](size_t begin, std::byte* slot) {
    size_t from = begin;
    for (size_t receiver = 0; receiver < n; ++receiver) {
      const size_t bytes = call.bytes[self * n + receiver];
      if (receiver == self) {
        own = from;
      } else {
        const size_t now = ShareOf(bytes, begin, share);
        RONDA_RETURN_IF_ERROR(Copy(slot + share * receiver, At(call.input, from), now));
      }
      from += bytes;
    }
    return absl::OkStatus();
  };
  const auto get = [&](size_t begin, const PeerGroup::Slot& slot) {
    size_t to = begin;
    for (size_t sender = 0; sender < n; ++sender) {
      const size_t bytes = call.bytes[sender * n + self];
      const std::byte* const theirs = slot.data + slot.stride * sender + share * self;
      const std::byte* const from = sender == self ? At(call.input, own) : theirs;
      RONDA_RETURN_IF_ERROR(Copy(At(call.output, to), from, ShareOf(bytes, begin, share)));
      to += bytes;
    }
    return absl::OkStatus();
  };
  return RunRounds(call.info, Most(call.bytes), share, put, get);
}

}  // namespace ronda
