#include "runtime/collectives/nccl/nccl_exchanges.h"

#include <algorithm>
#include <numeric>

#include "absl/types/span.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

size_t Sum(absl::Span<const size_t> bytes) { return std::accumulate(bytes.begin(), bytes.end(), size_t{0}); }

bool Goes(NcclResult result) { return result == NcclResult::kSuccess || result == NcclResult::kInProgress; }

}  // namespace

bool NcclExchanges::IsNeeded(const BroadcastCall& call) { return call.bytes > 0; }
bool NcclExchanges::IsNeeded(const AllgatherCall& call) { return Sum(call.bytes_per_rank) > 0; }
bool NcclExchanges::IsNeeded(const AlltoallCall& call) { return Sum(call.bytes) > 0; }

absl::Status NcclExchanges::Broadcast(const BroadcastCall& call, const Members& members, Entry* entry) {
  if (members.size() == 1) return absl::OkStatus();
  return options_.groups->Run(call.info, entry, [&](const NcclFunctions& nccl, NcclHandle handle) {
    return nccl.Broadcast(call.data, call.data, call.bytes, NcclDataType::kUint8, call.root, handle, options_.stream);
  });
}

absl::Status NcclExchanges::Allgather(const AllgatherCall& call, const Members& members, Entry* entry) {
  if (members.size() == 1) return Copy(call.output, call.input, call.bytes_per_rank.front());
  if (call.receiver.has_value()) return GatherForOne(call, members, entry);
  const bool is_equal = std::all_of(call.bytes_per_rank.begin(), call.bytes_per_rank.end(),
                                    [&](size_t bytes) { return bytes == call.bytes_per_rank.front(); });
  return is_equal ? GatherEqual(call, entry) : GatherByBroadcasts(call, members, entry);
}

absl::Status NcclExchanges::GatherEqual(const AllgatherCall& call, Entry* entry) {
  return options_.groups->Run(call.info, entry, [&](const NcclFunctions& nccl, NcclHandle handle) {
    return nccl.AllGather(call.input, call.output, call.bytes_per_rank.front(), NcclDataType::kUint8, handle,
                          options_.stream);
  });
}

absl::Status NcclExchanges::GatherByBroadcasts(const AllgatherCall& call, const Members& members, Entry* entry) {
  return options_.groups->Run(call.info, entry, [&](const NcclFunctions& nccl, NcclHandle handle) {
    NcclResult result = NcclResult::kSuccess;
    auto* to = static_cast<std::byte*>(call.output);
    for (int root = 0; root < members.size() && Goes(result); ++root) {
      const size_t bytes = call.bytes_per_rank[static_cast<size_t>(root)];
      const void* const from = root == members.self() ? call.input : to;
      if (bytes > 0) result = nccl.Broadcast(from, to, bytes, NcclDataType::kUint8, root, handle, options_.stream);
      to += bytes;
    }
    return result;
  });
}

absl::Status NcclExchanges::GatherForOne(const AllgatherCall& call, const Members& members, Entry* entry) {
  const int receiver = *call.receiver;
  pieces_.assign(static_cast<size_t>(members.size()), {});
  pieces_[static_cast<size_t>(receiver)].from = static_cast<const std::byte*>(call.input);
  pieces_[static_cast<size_t>(receiver)].sent = call.bytes_per_rank[static_cast<size_t>(members.self())];
  if (receiver == members.self()) {
    auto* to = static_cast<std::byte*>(call.output);
    for (size_t sender = 0; sender < pieces_.size(); ++sender) {
      pieces_[sender].to = to;
      pieces_[sender].received = call.bytes_per_rank[sender];
      to += call.bytes_per_rank[sender];
    }
  }
  return Exchange(call.info, members, entry);
}

absl::Status NcclExchanges::Alltoall(const AlltoallCall& call, const Members& members, Entry* entry) {
  const auto n = static_cast<size_t>(members.size());
  const auto self = static_cast<size_t>(members.self());
  const auto* from = static_cast<const std::byte*>(call.input);
  auto* to = static_cast<std::byte*>(call.output);
  pieces_.assign(n, {});
  for (size_t peer = 0; peer < n; ++peer) {
    pieces_[peer] = {
        .from = from, .sent = call.bytes[self * n + peer], .to = to, .received = call.bytes[peer * n + self]};
    from += pieces_[peer].sent;
    to += pieces_[peer].received;
  }
  return Exchange(call.info, members, entry);
}

absl::Status NcclExchanges::Exchange(const CallInfo& info, const Members& members, Entry* entry) {
  const Piece& own = pieces_[static_cast<size_t>(members.self())];
  if (own.sent > 0) RONDA_RETURN_IF_ERROR(Copy(own.to, own.from, own.sent));
  if (members.size() == 1) return absl::OkStatus();
  return options_.groups->Run(info, entry, [&](const NcclFunctions& nccl, NcclHandle handle) {
    NcclResult result = NcclResult::kSuccess;
    for (int peer = 0; peer < members.size() && Goes(result); ++peer) {
      if (peer == members.self()) continue;
      const Piece& piece = pieces_[static_cast<size_t>(peer)];
      if (piece.sent > 0) {
        result = nccl.Send(piece.from, piece.sent, NcclDataType::kUint8, peer, handle, options_.stream);
      }
      if (piece.received > 0 && Goes(result)) {
        result = nccl.Recv(piece.to, piece.received, NcclDataType::kUint8, peer, handle, options_.stream);
      }
    }
    return result;
  });
}

absl::Status NcclExchanges::Copy(void* to, const void* from, size_t bytes) {
  return options_.device->Call(
      "copying", [&](const ronda_cuda_plugin& cuda) { return cuda.copy(to, from, bytes, options_.stream); });
}

}  // namespace ronda
