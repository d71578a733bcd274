#include "runtime/collectives/messages/message_communicator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/members.h"
#include "runtime/collectives/messages/dissemination.h"
#include "runtime/collectives/messages/message_exchanges.h"
#include "runtime/collectives/messages/message_reduce.h"
#include "runtime/collectives/reduce_arithmetic.h"
#include "runtime/collectives/wire_layout.h"

namespace ronda {
namespace {

// With two ranks on one host, pieces of half of this or less take 5 to 15 % longer at 4 MiB, as each is a hand-shake;
// larger ones leave nothing to overlap.
constexpr size_t kChunkBytes = 2 << 20;
constexpr size_t kMinChunkBytes = 4096;
// Up to here a reduction sends all contributions to all: each alone, or those of all members together.
constexpr size_t kShortBytes = 2048;
constexpr size_t kShortBytesOfAll = 64 << 10;

}  // namespace

class MessageCommunicator::Impl {
 public:
  explicit Impl(Options options) : link_(std::move(options)), exchange_(link_), exchanges_(link_, exchange_) {}

  const MessageLink& link() const { return link_; }
  MessageExchanges& exchanges() { return exchanges_; }
  size_t chunk_bytes() const { return chunk_bytes_; }
  void set_chunk_bytes(size_t bytes) { chunk_bytes_ = bytes == 0 ? kChunkBytes : std::max(bytes, kMinChunkBytes); }

  // Runs `collective(members)`, if this rank is one.
  template <typename Collective>
  absl::Status AsMember(const CallInfo& info, const Collective& collective) {
    RONDA_RETURN_IF_ERROR(link_.failure());
    const Members members(info, link_.rank(), link_.size());
    return members.IncludeSelf() ? collective(members) : absl::OkStatus();
  }

  // REQUIRES: the call has no ballot if packing has effects that a veto would have to undo.
  absl::Status Reduce(const ReduceCall& call, const Members& members) {
    const ReduceArithmetic reduction(call, &reduction_memory_);
    if (reduction.granules() == 0 && call.info.ballot == nullptr) return absl::OkStatus();
    const size_t bytes = reduction.wire_bytes();
    if (bytes <= kShortBytes || bytes * static_cast<size_t>(members.size()) <= kShortBytesOfAll) {
      return ReduceShort(reduction, members);
    }
    return MessageReduce(reduction, members, chunk_bytes_, link_, exchange_, memory_).Run();
  }

  absl::Status Meet(const CallInfo& info, const Members& members) {
    exchange_.Begin(members, 0);
    return exchange_.Run(info, /*bytes_total=*/0);
  }

 private:
  // All contributions travel to all, and the votes with them.
  absl::Status ReduceShort(const ReduceArithmetic& reduction, const Members& members) {
    const CallInfo& info = reduction.call().info;
    const size_t granules = reduction.granules();
    char* const own = exchange_.Begin(members, reduction.wire_bytes());
    if (info.ballot == nullptr || info.ballot->own == Ballot::Vote::kStay) reduction.Pack(0, granules, own);
    RONDA_RETURN_IF_ERROR(exchange_.Run(info, reduction.input_bytes()));
    if (IsVetoed(info)) return absl::OkStatus();
    memory_.sources.resize(static_cast<size_t>(members.size()));
    reduction.buffer().ForEachRun(0, granules, [&](const ReduceArithmetic::Run& run) {
      const size_t offset = run.offset * reduction.layout().granule_bytes;
      for (int member = 0; member < members.size(); ++member) {
        memory_.sources[static_cast<size_t>(member)] = exchange_.BlockOf(member) + offset;
      }
      reduction.Deliver(run, memory_.sources);
    });
    return absl::OkStatus();
  }

  MessageLink link_;
  Dissemination exchange_;
  MessageExchanges exchanges_;
  MessageReduceMemory memory_;
  LogicalBuffer::Memory reduction_memory_;
  size_t chunk_bytes_ = kChunkBytes;
};

MessageCommunicator::MessageCommunicator(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
MessageCommunicator::~MessageCommunicator() = default;

Capabilities MessageCommunicator::capabilities() const {
  return {.name = impl_->link().name(), .max_ranks_per_process = std::numeric_limits<int>::max()};
}

RankId MessageCommunicator::rank() const { return impl_->link().rank(); }
int MessageCommunicator::size() const { return impl_->link().size(); }

absl::Status MessageCommunicator::Reduce(const ReduceCall& call) {
  return impl_->AsMember(call.info, [&](const Members& members) -> absl::Status {
    // Packing updates residuals: then the votes must be known before. (Only who has residuals knows that there are
    // any.)
    if (call.info.ballot == nullptr || !RoundsContributions(call.dtype, call.wire)) return impl_->Reduce(call, members);
    RONDA_RETURN_IF_ERROR(impl_->Meet(call.info, members));
    if (IsVetoed(call.info)) return absl::OkStatus();
    ReduceCall decided = call;
    decided.info.ballot = nullptr;
    return impl_->Reduce(decided, members);
  });
}

absl::Status MessageCommunicator::Broadcast(const BroadcastCall& call) {
  return impl_->AsMember(call.info, [&](const Members& members) {
    return impl_->exchanges().Broadcast(call, members, impl_->chunk_bytes());
  });
}

absl::Status MessageCommunicator::Allgather(const AllgatherCall& call) {
  return impl_->AsMember(call.info,
                         [&](const Members& members) { return impl_->exchanges().Allgather(call, members); });
}

absl::Status MessageCommunicator::Alltoall(const AlltoallCall& call) {
  return impl_->AsMember(call.info, [&](const Members& members) { return impl_->exchanges().Alltoall(call, members); });
}

absl::Status MessageCommunicator::Barrier(const CallInfo& info) {
  return impl_->AsMember(info, [&](const Members& members) { return impl_->Meet(info, members); });
}

void MessageCommunicator::Tune(const Tuning& tuning) { impl_->set_chunk_bytes(tuning.chunk_bytes); }

}  // namespace ronda
