// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/nccl_communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/nccl/nccl_memory.h"

namespace ronda {
namespace {

constexpr absl::Duration kPollInterval = absl::Microseconds(100);

constexpr char kMemorySetting[] = "RONDA_GRADIENT_MEMORY_MB";

size_t Sum(absl::Span<const size_t> bytes) { return std::accumulate(bytes.begin(), bytes.end(), size_t{0}); }

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(Options options) {
  std::unique_ptr<NcclCommunicator> communicator(new NcclCommunicator(std::move(options)));
  const Options& own = communicator->options_;
  RONDA_ASSIGN_OR_RETURN(communicator->reduce_, NcclReduce::Create({.device = own.device,
                                                                    .stream = own.stream,
                                                                    .nccl = &own.library->functions,
                                                                    .groups = &communicator->groups_,
                                                                    .marks = own.marks,
                                                                    .order = own.order,
                                                                    .chunk_bytes = own.chunk_bytes}));
  return communicator;
}

NcclCommunicator::NcclCommunicator(Options options)
    : options_(std::move(options)),
      groups_({.rank = options_.rank,
               .size = options_.size,
               .job_ranks = options_.job_ranks,
               .device = options_.device,
               .library = options_.library,
               .windows = options_.windows,
               .memory_setting = kMemorySetting,
               .share =
                   [host = options_.host](const CallInfo& info, void* data, size_t bytes) {
                     return host->Broadcast({.info = info, .data = data, .bytes = bytes, .root = 0});
                   },
               .init_deadline = options_.init_deadline,
               .job_failure = options_.job_failure,
               .fail_job = options_.fail_job}) {}

NcclCommunicator::~NcclCommunicator() {
  // The stream and NCCL must stop using the memory before the data members' destructors free it.
  if (!AwaitStream().ok()) groups_.Abort();
  groups_.End();
}

absl::Status NcclCommunicator::AwaitStream() {
  RONDA_RETURN_IF_ERROR(groups_.failure());  // the device may be stuck
  if (reduce_ != nullptr) RONDA_RETURN_IF_ERROR(reduce_->Join());
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceEvent> end, options_.device->NewEvent());
  RONDA_RETURN_IF_ERROR(end->Record(options_.stream));
  const absl::Duration begin = MonotonicTime();
  while (true) {
    RONDA_RETURN_IF_ERROR(groups_.failure());
    RONDA_ASSIGN_OR_RETURN(const bool is_done, end->done());
    if (is_done) return absl::OkStatus();
    RONDA_RETURN_IF_ERROR(options_.job_failure());
    if (MonotonicTime() - begin > options_.init_deadline) {
      Log(LogLevel::kWarning, groups_.self(), "NCCL is ended while the device still works for it");
      return absl::DeadlineExceededError("the device has not come to an end");
    }
    absl::SleepFor(kPollInterval);
  }
}

absl::Status NcclCommunicator::CanMakeMemory() const {
  if (HasNcclMemory(options_.library->functions)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(kMemorySetting, " needs NCCL 2.19 or later, and this is ", options_.library->version));
}

absl::Status NcclCommunicator::RegisterMemory(const CallInfo& info, DirectMemory memory) {
  const CallInfo of_all = {.label = info.label, .op = info.op, .limits = info.limits};
  RONDA_ASSIGN_OR_RETURN(Entry* const entry,
                         groups_.For(of_all, Members(of_all, options_.rank, options_.size), NcclUse::kMemory));
  memory_ = std::move(memory);
  RONDA_RETURN_IF_ERROR(groups_.RegisterInTime(entry, memory_.data.get(), memory_.bytes, info.limits));
  reduce_->UseForAdjacent(entry);
  return absl::OkStatus();
}

template <typename Collective>
absl::Status NcclCommunicator::AsMember(const CallInfo& info, const Collective& collective) {
  RONDA_RETURN_IF_ERROR(groups_.failure());
  const Members members(info, options_.rank, options_.size);
  RONDA_ASSIGN_OR_RETURN(Entry* const entry, groups_.For(info, members));
  return members.IncludeSelf() ? collective(members, entry) : absl::OkStatus();
}

absl::Status NcclCommunicator::Reduce(const ReduceCall& call) {
  if (!NcclReduce::IsNeeded(call)) return groups_.failure();
  return AsMember(call.info, [&](const Members& members, Entry* entry) { return reduce_->Run(call, members, entry); });
}

absl::Status NcclCommunicator::Barrier(const CallInfo& info) {
  return AsMember(info, [&](const Members&, Entry* entry) { return reduce_->Meet(info, entry); });
}

absl::Status NcclCommunicator::Broadcast(const BroadcastCall& call) {
  if (call.bytes == 0) return groups_.failure();
  return AsMember(call.info, [&](const Members&, Entry* entry) -> absl::Status {
    if (entry == nullptr) return absl::OkStatus();
    return groups_.Run(call.info, entry, [&](const NcclFunctions& nccl, NcclHandle handle) {
      return nccl.Broadcast(call.data, call.data, call.bytes, NcclDataType::kUint8, call.root, handle, options_.stream);
    });
  });
}

absl::Status NcclCommunicator::Allgather(const AllgatherCall& call) {
  const absl::Span<const size_t> bytes = call.bytes_per_rank;
  if (Sum(bytes) == 0) return groups_.failure();
  return AsMember(call.info, [&](const Members& members, Entry* entry) {
    if (entry == nullptr) return Copy(call.output, call.input, bytes.front());
    if (call.receiver.has_value()) return GatherForOne(call, members, entry);
    const bool is_equal = std::all_of(bytes.begin(), bytes.end(), [&](size_t each) { return each == bytes.front(); });
    return is_equal ? GatherEqual(call, entry) : GatherByBroadcasts(call, members, entry);
  });
}

absl::Status NcclCommunicator::GatherEqual(const AllgatherCall& call, Entry* entry) {
  return groups_.Run(call.info, entry, [&](const NcclFunctions& nccl, NcclHandle handle) {
    return nccl.AllGather(call.input, call.output, call.bytes_per_rank.front(), NcclDataType::kUint8, handle,
                          options_.stream);
  });
}

absl::Status NcclCommunicator::GatherByBroadcasts(const AllgatherCall& call, const Members& members, Entry* entry) {
  return groups_.Run(call.info, entry, [&](const NcclFunctions& nccl, NcclHandle handle) {
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

absl::Status NcclCommunicator::GatherForOne(const AllgatherCall& call, const Members& members, Entry* entry) {
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

absl::Status NcclCommunicator::Alltoall(const AlltoallCall& call) {
  if (Sum(call.bytes) == 0) return groups_.failure();
  return AsMember(call.info, [&](const Members& members, Entry* entry) {
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
  });
}

absl::Status NcclCommunicator::Exchange(const CallInfo& info, const Members& members, Entry* entry) {
  const Piece& own = pieces_[static_cast<size_t>(members.self())];
  if (own.sent > 0) RONDA_RETURN_IF_ERROR(Copy(own.to, own.from, own.sent));
  if (members.size() == 1) return absl::OkStatus();
  return groups_.Run(info, entry, [&](const NcclFunctions& nccl, NcclHandle handle) {
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

absl::Status NcclCommunicator::Copy(void* to, const void* from, size_t bytes) {
  return options_.device->Call(
      "copying", [&](const ronda_cuda_plugin& cuda) { return cuda.copy(to, from, bytes, options_.stream); });
}

}  // namespace ronda
