// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/nccl_reduce.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda {
namespace {

namespace cuda = kernels::cuda;

// Up to this number of vetoes add up to a value other than 0 in 8 bits, which wrap around at 256. Sums of wider types
// do not come back to 0.
constexpr int kVotersPerElement = 255;

// Of each slot, and one more.
constexpr int kEvents = 2 * 2 + 1;

constexpr size_t kAlignment = 16;

const std::byte* ElementOf(const void* tensor, size_t element, DType dtype) {
  return static_cast<const std::byte*>(tensor) + element * SizeOf(dtype);
}
std::byte* ElementOf(void* tensor, size_t element, DType dtype) {
  return static_cast<std::byte*>(tensor) + element * SizeOf(dtype);
}

constexpr size_t RoundUp(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

bool Stays(const CallInfo& info) { return info.ballot == nullptr || info.ballot->own == Ballot::Vote::kApprove; }

bool IsEmpty(const ReduceCall& call) {
  return std::all_of(call.segments.begin(), call.segments.end(),
                     [](const Segment& segment) { return segment.count == 0; });
}

bool DeliversAll(const ReduceCall& call) { return call.delivery == ReduceCall::Delivery::kAll; }

// Whether residuals must stay unchanged until the vote is won.
bool Borrows(const ReduceCall& call) {
  return call.info.ballot != nullptr && IsNarrowed(call.dtype, call.wire) && Stays(call.info);
}

// Whether all members receive equally many elements of the only tensor, one after the other.
bool HasEqualParts(const ReduceCall& call, int members) {
  const size_t each = call.segments.front().count / static_cast<size_t>(members);
  if (call.part_of == nullptr || members == 1 || each * static_cast<size_t>(members) != call.segments.front().count) {
    return false;
  }
  for (int member = 0; member < members; ++member) {
    const PartRange part = (*call.part_of)(0, member);
    if (part.begin != each * static_cast<size_t>(member) || part.count != each) return false;
  }
  return true;
}

// Whether NCCL can work on the tensor itself; equal on all members. With a vote it cannot. After a veto the output must
// be unchanged, and the rank that vetoes may have no tensor. Also, NCCL must not get memory that is registered only on
// that rank.
bool IsPlain(const WireLayout& layout, const ReduceCall& call, int members) {
  return call.segments.size() == 1 && call.info.ballot == nullptr && layout.dtype == call.dtype &&
         FactorsOf(layout, call).before.IsIdentity() && (DeliversAll(call) || HasEqualParts(call, members));
}

// The elements of a tensor's result that this rank receives.
PartRange WantedOf(const ReduceCall& call, const Segment& segment) {
  if (DeliversAll(call)) return {.begin = 0, .count = segment.count};
  return {.begin = segment.part_begin, .count = segment.part_count};
}

// The elements that hold votes in front of data that NCCL adds up.
int VoteElements(const ReduceCall& call, int members) {
  if (call.info.ballot == nullptr) return 0;
  const bool may_wrap = call.op == ReduceOp::kSum && SizeOf(LayoutOf(call.dtype, call.wire).dtype) == 1;
  return may_wrap ? (members + kVotersPerElement - 1) / kVotersPerElement : 1;
}

// Whether ones approve. Sums and maxima of zeros are zero, products and minima of ones are one, and one other vote
// changes them.
bool StaysByOne(ReduceOp op) { return op == ReduceOp::kProduct || op == ReduceOp::kMin; }

// Votes where they are kept: in the wire's format, and then in float32 for the residuals.
struct VoteOffsets {
  VoteOffsets(const WirePlan& plan, int n)
      : dtype(plan.layout().fp8.has_value() ? DType::kUint8 : plan.layout().dtype),
        element_bytes(SizeOf(dtype)),
        of_residuals(RoundUp(element_bytes * static_cast<size_t>(n), kAlignment)) {}

  const DType dtype;
  const size_t element_bytes;
  const size_t of_residuals;
};

// Room for the votes of `size` ranks in the widest format, and in float32.
size_t MostVoteBytes(int size) {
  return RoundUp(sizeof(double) * static_cast<size_t>(size), kAlignment) + sizeof(float) * static_cast<size_t>(size);
}

// Collects the result of the calls of one NCCL group, up to the first failure.
class Batch {
 public:
  bool Goes() const { return result_ == NcclResult::kSuccess || result_ == NcclResult::kInProgress; }
  void Add(NcclResult result) {
    if (Goes()) result_ = result;
  }
  NcclResult result() const { return result_; }

 private:
  NcclResult result_ = NcclResult::kSuccess;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NcclReduce>> NcclReduce::Create(Options options) {
  Device& device = *options.device;
  RONDA_ASSIGN_OR_RETURN(VoteValues values, VoteValues::Create(&device, options.stream));
  RONDA_ASSIGN_OR_RETURN(DeviceMemory arrivals, device.Allocate(RONDA_CUDA_DEVICE_MEMORY, sizeof(uint32_t), "votes"));
  RONDA_RETURN_IF_ERROR(device.Call("copying", [&](const ronda_cuda_plugin& cuda) {
    return cuda.copy(arrivals.data(), values.Zero(), arrivals.size(), options.stream);
  }));
  RONDA_ASSIGN_OR_RETURN(DeviceMemory arrived_votes,
                         device.Allocate(RONDA_CUDA_DEVICE_MEMORY, MostVoteBytes(options.size), "votes"));
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<DeviceStream> kernel_stream, DeviceStream::Create(&device));
  Parts parts = {.values = std::move(values),
                 .arrivals = std::move(arrivals),
                 .arrived_votes = std::move(arrived_votes),
                 .kernel_stream = std::move(kernel_stream),
                 .events = {}};
  for (int i = 0; i < kEvents; ++i) {
    RONDA_ASSIGN_OR_RETURN(std::unique_ptr<DeviceEvent> event, device.NewEvent());
    parts.events.push_back(std::move(event));
  }
  return std::unique_ptr<NcclReduce>(new NcclReduce(std::move(options), std::move(parts)));
}

NcclReduce::NcclReduce(Options options, Parts parts)
    : options_(std::move(options)),
      values_(std::move(parts.values)),
      votes_(options_.device),
      arrivals_(std::move(parts.arrivals)),
      arrived_votes_(std::move(parts.arrived_votes)),
      kernel_stream_(std::move(parts.kernel_stream)),
      joint_(std::move(parts.events[0])),
      slots_{MakeSlot(std::move(parts.events[1]), std::move(parts.events[2])),
             MakeSlot(std::move(parts.events[3]), std::move(parts.events[4]))},
      known_(options_.chunk_bytes) {}

NcclReduce::Slot NcclReduce::MakeSlot(std::unique_ptr<DeviceEvent> packed, std::unique_ptr<DeviceEvent> moved) const {
  const auto buffer = [this](const char* purpose) {
    return StreamBuffer::Options{.device = options_.device.get(),
                                 .stream = options_.stream,
                                 .nccl = options_.nccl,
                                 .groups = options_.groups,
                                 .purpose = purpose,
                                 .most_bytes = options_.chunk_bytes};
  };
  return {.wire = StreamBuffer(buffer("the fusion buffer")),
          .arrived = StreamBuffer(buffer("other ranks' contributions")),
          .residuals = StreamBuffer(buffer("residuals")),
          .packed = std::move(packed),
          .moved = std::move(moved)};
}

bool NcclReduce::IsNeeded(const ReduceCall& call) { return call.info.ballot != nullptr || !IsEmpty(call); }

absl::Status NcclReduce::TakeVote(const CallInfo& info) {
  if (info.ballot == nullptr || vote_ != nullptr) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(vote_, votes_.New());
  return absl::OkStatus();
}

absl::Status NcclReduce::Run(const ReduceCall& call, const Members& members, Entry* entry) {
  if (IsEmpty(call)) return Meet(call.info, members, entry);
  const WireLayout layout = LayoutOf(call.dtype, call.wire);
  // NCCL adds integers up in their own type.
  const std::optional<NcclRedOp> op = kernels::AddsWide(call.op, layout.dtype, call.postscale)
                                          ? std::nullopt
                                          : NcclOpOf(layout, call.op, options_.order);
  if (op.has_value() && IsPlain(layout, call, members.size())) return RunPlain(call, *op, members, entry);
  Plan(call, op.has_value() ? VoteElements(call, members.size()) : 0, members);
  // Ronda's own reductions have both factors in their order.
  const WireFactors factors =
      op.has_value() ? FactorsOf(layout, call) : WireFactors{.before = call.prescale, .after = {}};
  return RunChunks({.call = call, .members = members, .entry = entry, .op = op, .factors = factors});
}

void NcclReduce::Plan(const ReduceCall& call, int votes, const Members& members) {
  const auto vote_elements = static_cast<size_t>(votes);
  tables_ = nullptr;
  // A rank that vetoes has no tensors.
  if (DeliversAll(call) && Stays(call.info)) {
    ReductionPlan& known = known_.Find(call, vote_elements);
    plan_ = &known.wire;
    tables_ = &known.chunks;
    return;
  }
  plan_ = &own_plan_;
  if (votes > 1 || DeliversAll(call)) {
    own_plan_.Lay(call, vote_elements, options_.chunk_bytes);
  } else {
    own_plan_.LayByMember(call, vote_elements, options_.chunk_bytes, members.size());
  }
}

absl::Status NcclReduce::Meet(const CallInfo& info, const Members& members, Entry* entry) {
  RONDA_RETURN_IF_ERROR(TakeVote(info));
  // No data, and votes in int32.
  const ReduceCall empty = {.info = info, .dtype = DType::kInt32};
  own_plan_.Lay(empty, static_cast<size_t>(std::max(1, VoteElements(empty, members.size()))), options_.chunk_bytes);
  plan_ = &own_plan_;
  tables_ = nullptr;
  return RunChunks({.call = empty, .members = members, .entry = entry, .op = NcclRedOp::kSum, .factors = {}});
}

absl::Status NcclReduce::RunPlain(const ReduceCall& call, NcclRedOp op, const Members& members, Entry* entry) {
  const Segment& tensor = call.segments.front();
  const size_t count = DeliversAll(call) ? tensor.count : tensor.count / static_cast<size_t>(members.size());
  const WireLayout layout = LayoutOf(call.dtype, call.wire);
  const kernels::Scale scale = FactorsOf(layout, call).after;
  RONDA_RETURN_IF_ERROR(DeliversAll(call)
                            ? AllReduce(call.info, entry, tensor.input, tensor.output, count, call.dtype, op)
                            : ReduceScatter(call.info, entry, tensor.input, tensor.output, count, call.dtype, op));
  if (scale.IsIdentity()) return absl::OkStatus();
  return LaunchReduce("scaling", {.sources = tensor.output,
                                  .source_count = 1,
                                  .wire = {.dtype = layout.dtype},
                                  .op = call.op,
                                  .scale = scale,
                                  .dst = tensor.output,
                                  .granules = count});
}

absl::Status NcclReduce::RunChunks(Reduction run) {
  const size_t chunks = plan_->chunks();
  run.kernels = chunks == 1 ? options_.stream : kernel_stream_->handle();
  RONDA_RETURN_IF_ERROR(HandOver(*joint_, options_.stream, run.kernels, StreamPhase::kWaitForData));
  for (size_t i = 0; i < chunks; ++i) {
    RONDA_RETURN_IF_ERROR(Begin(run, slots_[i % 2], i));
    RONDA_RETURN_IF_ERROR(Move(run, slots_[i % 2], i));
    if (i > 0) RONDA_RETURN_IF_ERROR(End(run, slots_[(i - 1) % 2], i - 1));
  }
  RONDA_RETURN_IF_ERROR(End(run, slots_[(chunks - 1) % 2], chunks - 1));
  RONDA_RETURN_IF_ERROR(HandOver(*joint_, run.kernels, options_.stream, StreamPhase::kUnpack));
  if (run.call.info.ballot == nullptr) return absl::OkStatus();
  run.call.info.ballot->result = Ballot::Result::kOpen;
  run.call.info.ballot->open_vote = std::move(vote_);
  return absl::OkStatus();
}

absl::Status NcclReduce::Join() {
  return HandOver(*joint_, kernel_stream_->handle(), options_.stream, StreamPhase::kUnpack);
}

absl::Status NcclReduce::Begin(const Reduction& run, Slot& slot, size_t chunk) {
  slot.chunk = plan_->ChunkOf(chunk);
  const int n = run.members.size();
  const size_t bytes =
      run.op.has_value() ? plan_->BytesOf(slot.chunk) : plan_->ShardBytes(slot.chunk, n) * static_cast<size_t>(n);
  RONDA_ASSIGN_OR_RETURN(slot.data, slot.wire.GetFor(run.entry, bytes));
  if (!run.op.has_value()) {
    RONDA_ASSIGN_OR_RETURN(slot.others, slot.arrived.GetFor(run.entry, bytes));
  }
  RONDA_RETURN_IF_ERROR(BorrowResiduals(run, slot));
  RONDA_RETURN_IF_ERROR(Pack(run, slot, chunk));
  return HandOver(*slot.packed, run.kernels, options_.stream, StreamPhase::kPack);
}

absl::Status NcclReduce::Move(Reduction& run, const Slot& slot, size_t chunk) {
  if (run.op.has_value()) {
    RONDA_RETURN_IF_ERROR(MoveByNccl(run, slot));
  } else {
    RONDA_RETURN_IF_ERROR(Scatter(run, slot, chunk == 0 && run.call.info.ballot != nullptr));
    RONDA_RETURN_IF_ERROR(ReduceShard(run, slot));
    RONDA_RETURN_IF_ERROR(Gather(run, slot));
  }
  if (chunk == 0) RONDA_RETURN_IF_ERROR(TakeVotes(run, slot));
  return run.kernels == options_.stream ? absl::OkStatus() : slot.moved->Record(options_.stream);
}

absl::Status NcclReduce::End(const Reduction& run, const Slot& slot, size_t chunk) {
  // Only now, because the next chunk is packed before this one is unpacked.
  if (run.kernels != options_.stream) RONDA_RETURN_IF_ERROR(slot.moved->OrderBefore(run.kernels));
  RONDA_RETURN_IF_ERROR(KeepResiduals(run, slot));
  return Unpack(run, slot, chunk);
}

absl::Status NcclReduce::MoveByNccl(const Reduction& run, const Slot& slot) {
  const WireLayout& layout = plan_->layout();
  const size_t count = slot.chunk.bytes / layout.granule_bytes;
  if (plan_->regions() == 1) {
    return AllReduce(run.call.info, run.entry, slot.data, slot.data, count, layout.dtype, *run.op);
  }
  std::byte* const own = slot.data + static_cast<size_t>(run.members.self()) * slot.chunk.bytes;
  return ReduceScatter(run.call.info, run.entry, slot.data, own, count, layout.dtype, *run.op);
}

absl::Status NcclReduce::Scatter(const Reduction& run, const Slot& slot, bool votes) {
  const ReduceCall& call = run.call;
  const int n = run.members.size();
  const VoteOffsets offsets(*plan_, n);
  const bool keeps_residuals = votes && IsNarrowed(call.dtype, call.wire);
  const void* const vote = Stays(call.info) ? values_.One(offsets.dtype) : values_.Zero();
  const void* const float_vote = Stays(call.info) ? values_.One(DType::kFloat32) : values_.Zero();
  if (run.entry == nullptr) {
    RONDA_RETURN_IF_ERROR(Copy(slot.others, slot.data, plan_->BytesOf(slot.chunk), options_.stream));
    if (!votes) return absl::OkStatus();
    RONDA_RETURN_IF_ERROR(Copy(arrived_votes_.data(), vote, offsets.element_bytes, options_.stream));
    return Copy(arrived_votes_.data() + offsets.of_residuals, float_vote, sizeof(float), options_.stream);
  }
  const size_t shard = plan_->ShardBytes(slot.chunk, n);
  const size_t own = plan_->ShardOf(slot.chunk, run.members.self(), n).bytes;
  const auto scatter = [&](const NcclFunctions& nccl, NcclHandle handle) {
    Batch batch;
    const auto exchange = [&](int peer, const void* from, size_t sent, std::byte* to, size_t received) {
      if (sent > 0) batch.Add(nccl.Send(from, sent, NcclDataType::kUint8, peer, handle, options_.stream));
      if (received > 0) batch.Add(nccl.Recv(to, received, NcclDataType::kUint8, peer, handle, options_.stream));
    };
    for (int i = 0; i < n && batch.Goes(); ++i) {
      const auto at = static_cast<size_t>(i);
      const WirePlan::Range theirs = plan_->ShardOf(slot.chunk, i, n);
      exchange(i, slot.data + theirs.begin, theirs.bytes, slot.others + shard * at, own);
      if (!votes) continue;
      // Votes come from memory that is not registered, and go to such memory, on all ranks.
      exchange(i, vote, offsets.element_bytes, arrived_votes_.data() + offsets.element_bytes * at,
               offsets.element_bytes);
      if (!keeps_residuals) continue;
      exchange(i, float_vote, sizeof(float), arrived_votes_.data() + offsets.of_residuals + sizeof(float) * at,
               sizeof(float));
    }
    return batch.result();
  };
  return Mark(StreamPhase::kTransfer, options_.stream, options_.groups->Run(call.info, run.entry, scatter));
}

absl::Status NcclReduce::ReduceShard(const Reduction& run, const Slot& slot) {
  const int n = run.members.size();
  const WirePlan::Range own = plan_->ShardOf(slot.chunk, run.members.self(), n);
  if (own.bytes == 0) return absl::OkStatus();
  return LaunchReduce("reducing", {.sources = slot.others,
                                   .stride = plan_->ShardBytes(slot.chunk, n),
                                   .source_count = n,
                                   .wire = plan_->wire(),
                                   .op = run.call.op,
                                   .scale = run.call.postscale,
                                   .dst = slot.data + own.begin,
                                   .granules = own.bytes / plan_->layout().granule_bytes});
}

absl::Status NcclReduce::Gather(const Reduction& run, const Slot& slot) {
  // The shards of several regions are what their members receive.
  if (run.entry == nullptr || plan_->regions() > 1) return absl::OkStatus();
  const size_t shard = plan_->ShardBytes(slot.chunk, run.members.size());
  const std::byte* const own = slot.data + shard * static_cast<size_t>(run.members.self());
  const auto gather = [&](const NcclFunctions& nccl, NcclHandle handle) {
    return nccl.AllGather(own, slot.data, shard, NcclDataType::kUint8, handle, options_.stream);
  };
  return Mark(StreamPhase::kTransfer, options_.stream, options_.groups->Run(run.call.info, run.entry, gather));
}

absl::Status NcclReduce::AllReduce(const CallInfo& info, Entry* entry, const void* input, void* output, size_t count,
                                   DType dtype, NcclRedOp op) {
  if (entry == nullptr) {
    return input == output ? absl::OkStatus() : Copy(output, input, count * SizeOf(dtype), options_.stream);
  }
  const auto all_reduce = [&](const NcclFunctions& nccl, NcclHandle handle) {
    return nccl.AllReduce(input, output, count, *NcclTypeOf(dtype), op, handle, options_.stream);
  };
  return Mark(StreamPhase::kTransfer, options_.stream, options_.groups->Run(info, entry, all_reduce));
}

absl::Status NcclReduce::ReduceScatter(const CallInfo& info, Entry* entry, const void* input, void* output,
                                       size_t count, DType dtype, NcclRedOp op) {
  const auto reduce_scatter = [&](const NcclFunctions& nccl, NcclHandle handle) {
    return nccl.ReduceScatter(input, output, count, *NcclTypeOf(dtype), op, handle, options_.stream);
  };
  return Mark(StreamPhase::kTransfer, options_.stream, options_.groups->Run(info, entry, reduce_scatter));
}

absl::Status NcclReduce::Pack(const Reduction& run, const Slot& slot, size_t chunk) {
  cuda::PackCall pack = {
      .dtype = run.call.dtype, .wire = plan_->wire(), .scale = run.factors.before, .buffer = slot.data};
  if (chunk == 0) pack.vote = CastVote(run, slot);
  if (!Stays(run.call.info)) return LaunchPack(pack, {}, run.kernels);
  // Copies of residuals are elsewhere in every call.
  ReductionPlan::Tables* const known = tables_ != nullptr && slot.borrowed.empty() ? &(*tables_)[chunk] : nullptr;
  PackSegments& segments = known != nullptr ? known->packed : packed_;
  if (known == nullptr || !std::exchange(known->has_packed, true)) FillPacked(run, slot, &segments);
  return LaunchPack(pack, segments, run.kernels);
}

void NcclReduce::FillPacked(const Reduction& run, const Slot& slot, PackSegments* segments) const {
  const ReduceCall& call = run.call;
  const bool rounds = IsNarrowed(call.dtype, call.wire);
  segments->clear();
  for (int region = 0; region < plan_->regions(); ++region) {
    plan_->ForEachPiece(slot.chunk, region, [&](const WirePlan::Piece& piece) {
      const Segment& segment = call.segments[piece.tensor];
      float* residual = nullptr;
      if (rounds && segment.residual != nullptr) {
        residual = slot.borrowed.empty() ? segment.residual + piece.begin : slot.borrowed[segments->size()].copy;
      }
      segments->push_back({.input = ElementOf(segment.input, piece.begin, call.dtype),
                           .residual = residual,
                           .count = piece.count,
                           .offset = piece.offset});
    });
  }
}

absl::Status NcclReduce::LaunchPack(cuda::PackCall call, const PackSegments& segments, StreamHandle stream) {
  if (segments.empty() && call.vote.votes == nullptr) return absl::OkStatus();
  call.segments = segments.data();
  call.segment_count = static_cast<int>(segments.size());
  return Mark(StreamPhase::kPack, stream,
              Launch("packing", [&](const ronda_cuda_plugin& kernels) { return kernels.pack(&call, stream); }));
}

absl::Status NcclReduce::BorrowResiduals(const Reduction& run, Slot& slot) {
  const ReduceCall& call = run.call;
  slot.borrowed.clear();
  if (!Borrows(call)) return absl::OkStatus();
  packed_.clear();
  size_t bytes = 0;
  for (int region = 0; region < plan_->regions(); ++region) {
    plan_->ForEachPiece(slot.chunk, region, [&](const WirePlan::Piece& piece) {
      float* const residual = call.segments[piece.tensor].residual;
      slot.borrowed.push_back(
          {.residual = residual == nullptr ? nullptr : residual + piece.begin, .count = piece.count, .offset = bytes});
      if (residual == nullptr) return;
      packed_.push_back({.input = residual + piece.begin, .count = piece.count, .offset = bytes});
      bytes += RoundUp(piece.count * sizeof(float), kAlignment);
    });
  }
  if (packed_.empty()) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(std::byte* const copies, slot.residuals.Get(bytes));
  for (Borrowed& each : slot.borrowed) each.copy = reinterpret_cast<float*>(copies + each.offset);
  return LaunchPack({.buffer = copies}, packed_, run.kernels);
}

absl::Status NcclReduce::KeepResiduals(const Reduction& run, const Slot& slot) {
  unpacked_.clear();
  for (const Borrowed& each : slot.borrowed) {
    if (each.residual == nullptr) continue;
    unpacked_.push_back({.output = each.residual, .count = each.count, .offset = each.offset});
  }
  if (unpacked_.empty()) return absl::OkStatus();
  // The copies lie one after the other: the first begins their memory.
  return LaunchUnpack({.buffer = slot.borrowed.front().copy}, unpacked_, run.residual_votes, run.kernels);
}

absl::Status NcclReduce::TakeVotes(Reduction& run, const Slot& slot) {
  if (run.call.info.ballot == nullptr) return absl::OkStatus();
  const int n = run.members.size();
  const VoteOffsets offsets(*plan_, n);
  std::byte* const kept = arrived_votes_.data();
  if (!run.op.has_value()) {
    run.votes = {.elements = kept, .count = n, .stay = 1};
    run.residual_votes = {.elements = kept + offsets.of_residuals, .count = n, .stay = 1};
    return absl::OkStatus();
  }
  const size_t region = plan_->regions() == 1 ? 0 : static_cast<size_t>(run.members.self());
  const std::byte* const arrived = slot.data + region * slot.chunk.bytes;
  run.votes = {.elements = arrived, .count = VoteElements(run.call, n), .stay = StaysByOne(run.call.op) ? 1.0 : 0.0};
  run.residual_votes = run.votes;
  run.residual_votes.elements = kept + offsets.of_residuals;
  if (Borrows(run.call)) {
    unpacked_.assign(1, {.output = kept + offsets.of_residuals, .count = static_cast<uint64_t>(run.votes.count)});
    RONDA_RETURN_IF_ERROR(LaunchUnpack({.wire = plan_->wire(), .buffer = arrived}, unpacked_, {}, options_.stream));
  }
  if (plan_->chunks() == 1) return absl::OkStatus();
  // The slot is used again before the last chunk is unpacked.
  run.votes.elements = kept;
  return Copy(kept, arrived, static_cast<size_t>(run.votes.count) * offsets.element_bytes, options_.stream);
}

absl::Status NcclReduce::Unpack(const Reduction& run, const Slot& slot, size_t chunk) {
  const ReduceCall& call = run.call;
  ReductionPlan::Tables* const known = tables_ != nullptr ? &(*tables_)[chunk] : nullptr;
  UnpackSegments& segments = known != nullptr ? known->unpacked : unpacked_;
  if (known == nullptr || !std::exchange(known->has_unpacked, true)) FillUnpacked(run, slot, &segments);
  const bool decides = chunk + 1 == plan_->chunks() && call.info.ballot != nullptr;
  if (segments.empty() && !decides) return absl::OkStatus();
  cuda::UnpackCall unpack = {
      .dtype = call.dtype, .wire = plan_->wire(), .scale = run.factors.after, .buffer = slot.data};
  if (decides) {
    unpack.vote = {.decision = vote_->decision(),
                   .gate = vote_->gate(),
                   .opens_at = vote_->opens_at(),
                   .arrivals = reinterpret_cast<uint32_t*>(arrivals_.data())};
  }
  return LaunchUnpack(unpack, segments, run.votes, run.kernels);
}

void NcclReduce::FillUnpacked(const Reduction& run, const Slot& slot, UnpackSegments* segments) const {
  const ReduceCall& call = run.call;
  segments->clear();
  if (!Stays(call.info)) return;
  const int region = plan_->regions() == 1 ? 0 : run.members.self();
  plan_->ForEachPiece(slot.chunk, region, [&](const WirePlan::Piece& piece) {
    const Segment& segment = call.segments[piece.tensor];
    const PartRange wanted = WantedOf(call, segment);
    const size_t begin = std::max(piece.begin, wanted.begin);
    const size_t end = std::min(piece.begin + piece.count, wanted.begin + wanted.count);
    if (begin >= end) return;
    segments->push_back({.output = ElementOf(segment.output, begin - wanted.begin, call.dtype),
                         .count = end - begin,
                         .offset = piece.offset,
                         .skip = begin - piece.begin});
  });
}

absl::Status NcclReduce::LaunchUnpack(cuda::UnpackCall call, const UnpackSegments& segments, const Votes& votes,
                                      StreamHandle stream) {
  call.segments = segments.data();
  call.segment_count = static_cast<int>(segments.size());
  call.vote.votes = votes.elements;
  call.vote.count = votes.count;
  call.vote.stay = votes.stay;
  return Mark(StreamPhase::kUnpack, stream,
              Launch("unpacking", [&](const ronda_cuda_plugin& kernels) { return kernels.unpack(&call, stream); }));
}

absl::Status NcclReduce::LaunchReduce(absl::string_view what, const cuda::ReduceCall& call) {
  return Mark(StreamPhase::kReduce, options_.stream,
              Launch(what, [&](const ronda_cuda_plugin& kernels) { return kernels.reduce(&call, options_.stream); }));
}

absl::Status NcclReduce::Mark(StreamPhase phase, StreamHandle stream, absl::Status status) {
  return Marked(stream == options_.stream ? options_.marks : nullptr, phase, std::move(status));
}

absl::Status NcclReduce::HandOver(DeviceEvent& event, StreamHandle from, StreamHandle to, StreamPhase phase) {
  if (from == to) return absl::OkStatus();
  RONDA_RETURN_IF_ERROR(event.Record(from));
  return Mark(phase, to, event.OrderBefore(to));
}

cuda::VoteCast NcclReduce::CastVote(const Reduction& run, const Slot& slot) const {
  const int elements = run.op.has_value() ? VoteElements(run.call, run.members.size()) : 0;
  if (elements == 0) return {};
  const bool is_one = Stays(run.call.info) == StaysByOne(run.call.op);
  cuda::VoteCast vote = {.votes = slot.data, .count = elements, .value = is_one ? 1.0 : 0.0};
  if (plan_->regions() > 1) {
    vote.count = plan_->regions();
    vote.stride = slot.chunk.bytes;
  } else if (elements > 1) {
    vote.stride = SizeOf(plan_->layout().dtype);
    vote.own = run.members.self() / kVotersPerElement;
  }
  return vote;
}

absl::Status NcclReduce::Copy(void* to, const void* from, size_t bytes, StreamHandle stream) {
  return Launch("copying", [&](const ronda_cuda_plugin& kernels) { return kernels.copy(to, from, bytes, stream); });
}

template <typename Function>
absl::Status NcclReduce::Launch(absl::string_view what, const Function& function) {
  return options_.device->Call(what, function);
}

}  // namespace ronda
