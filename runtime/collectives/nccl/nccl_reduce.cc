#include "runtime/collectives/nccl/nccl_reduce.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

namespace cuda = kernels::cuda;

// Up to this number of vetoes add up to a value other than 0 in every type: 8 bits overflow at 256.
constexpr int kVotersPerElement = 255;

constexpr size_t kAlignment = 16;

constexpr size_t RoundUp(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

bool Stays(const CallInfo& info) { return info.ballot == nullptr || info.ballot->own == Ballot::Vote::kApprove; }

bool IsEmpty(const ReduceCall& call) {
  return std::all_of(call.segments.begin(), call.segments.end(),
                     [](const Segment& segment) { return segment.count == 0; });
}

bool DeliversAll(const ReduceCall& call) { return call.delivery == ReduceCall::Delivery::kAll; }

// Whether NCCL can work on the tensor itself. The same on all members. With a vote it cannot: the output must stay as
// it is if there is a veto, the rank that vetoes may have no tensor, and NCCL must not be given memory that is
// registered on that rank alone.
bool IsPlain(const WireLayout& layout, const ReduceCall& call) {
  return call.segments.size() == 1 && call.info.ballot == nullptr && layout.dtype == call.dtype &&
         FactorsOf(layout, call).before.IsIdentity() && DeliversAll(call);
}

// The elements of the fusion buffer that hold votes.
int VoteElements(const ReduceCall& call, int members) {
  if (call.info.ballot == nullptr) return 0;
  return call.op == ReduceOp::kSum ? (members + kVotersPerElement - 1) / kVotersPerElement : 1;
}

// Whether ones approve. Sums and maxima of zeros are zero, products and minima of ones are one, and one other vote
// changes them.
bool StaysByOne(ReduceOp op) { return op == ReduceOp::kProduct || op == ReduceOp::kMin; }

// An exchange's votes where they arrive: in the wire's format, and then in float32 for the residuals.
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
  RONDA_ASSIGN_OR_RETURN(VoteValues values, VoteValues::Create(options.device.get(), options.stream));
  RONDA_ASSIGN_OR_RETURN(DeviceMemory unseen, options.device->Allocate(RONDA_CUDA_PINNED_HOST_MEMORY, sizeof(uint32_t),
                                                                       "outcomes that are not read"));
  RONDA_ASSIGN_OR_RETURN(DeviceMemory arrived_votes,
                         options.device->Allocate(RONDA_CUDA_DEVICE_MEMORY, MostVoteBytes(options.size), "votes"));
  return std::unique_ptr<NcclReduce>(
      new NcclReduce(std::move(options), std::move(values), std::move(unseen), std::move(arrived_votes)));
}

NcclReduce::NcclReduce(Options options, VoteValues values, DeviceMemory unseen, DeviceMemory arrived_votes)
    : options_(std::move(options)),
      values_(std::move(values)),
      votes_(options_.device),
      unseen_(std::move(unseen)),
      arrived_votes_(std::move(arrived_votes)),
      wire_({options_.device.get(), options_.stream, options_.nccl, options_.groups, "the fusion buffer"}),
      arrived_({options_.device.get(), options_.stream, options_.nccl, options_.groups, "other ranks' contributions"}),
      residuals_({options_.device.get(), options_.stream, options_.nccl, options_.groups, "residuals"}),
      parts_({.device = options_.device.get(),
              .stream = options_.stream,
              .groups = options_.groups,
              .host = options_.host,
              .marks = options_.marks,
              .packed = &wire_,
              .arrived = &arrived_}) {}

bool NcclReduce::IsNeeded(const ReduceCall& call) { return call.info.ballot != nullptr || !IsEmpty(call); }

absl::Status NcclReduce::Prepare(const ReduceCall& call, const Members& members) {
  RONDA_RETURN_IF_ERROR(TakeVote(call.info));
  return parts_.Agree(call, members);
}

absl::Status NcclReduce::TakeVote(const CallInfo& info) {
  if (info.ballot == nullptr || vote_ != nullptr) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(vote_, votes_.New());
  return absl::OkStatus();
}

absl::Status NcclReduce::Run(const ReduceCall& call, const Members& members, Entry* entry) {
  if (IsEmpty(call)) return Meet(call.info, members, entry);
  if (parts_.fits()) return parts_.Run(call, members, entry);
  const WireLayout layout = LayoutOf(call.dtype, call.wire);
  const std::optional<NcclRedOp> op = NcclOpOf(layout, call.op, options_.order);
  if (!op.has_value()) return RunExchange(call, members, entry);
  return IsPlain(layout, call) ? RunPlain(call, *op, entry) : RunFused(call, *op, members, entry);
}

absl::Status NcclReduce::Meet(const CallInfo& info, const Members& members, Entry* entry) {
  RONDA_RETURN_IF_ERROR(TakeVote(info));
  // No data, and votes in int32.
  const ReduceCall empty = {.info = info, .dtype = DType::kInt32};
  plan_.Lay(empty, static_cast<size_t>(std::max(1, VoteElements(empty, members.size()))));
  RONDA_ASSIGN_OR_RETURN(std::byte* const wire, wire_.GetFor(entry, plan_.bytes()));
  RONDA_RETURN_IF_ERROR(PutVote(empty, members, wire));
  RONDA_RETURN_IF_ERROR(
      AllReduce(info, entry, wire, wire, plan_.bytes() / sizeof(int32_t), DType::kInt32, NcclRedOp::kSum));
  return Unpack(empty, wire, {}, FusedVotes(empty, members, wire));
}

absl::Status NcclReduce::RunPlain(const ReduceCall& call, NcclRedOp op, Entry* entry) {
  const Segment& tensor = call.segments.front();
  plan_.Lay(call, 0);
  const kernels::Scale scale = FactorsOf(plan_.layout(), call).after;
  RONDA_RETURN_IF_ERROR(AllReduce(call.info, entry, tensor.input, tensor.output, tensor.count, call.dtype, op));
  if (scale.IsIdentity()) return absl::OkStatus();
  const cuda::ReduceCall scaling = {.sources = tensor.output,
                                    .source_count = 1,
                                    .wire = plan_.wire(),
                                    .op = call.op,
                                    .scale = scale,
                                    .dst = tensor.output,
                                    .granules = tensor.count};
  return LaunchReduce("scaling", scaling);
}

absl::Status NcclReduce::RunFused(const ReduceCall& call, NcclRedOp op, const Members& members, Entry* entry) {
  plan_.Lay(call, static_cast<size_t>(VoteElements(call, members.size())));
  RONDA_ASSIGN_OR_RETURN(std::byte* const wire, wire_.GetFor(entry, plan_.bytes()));
  const WireLayout& layout = plan_.layout();
  const WireFactors factors = FactorsOf(layout, call);
  const Votes votes = FusedVotes(call, members, wire);
  RONDA_RETURN_IF_ERROR(BorrowResiduals(call));
  RONDA_RETURN_IF_ERROR(PutVote(call, members, wire));
  RONDA_RETURN_IF_ERROR(Pack(call, factors.before, wire));
  RONDA_RETURN_IF_ERROR(
      AllReduce(call.info, entry, wire, wire, plan_.bytes() / layout.granule_bytes, layout.dtype, op));
  if (HasBorrowed()) {
    RONDA_RETURN_IF_ERROR(WidenVotes(votes));
    RONDA_RETURN_IF_ERROR(KeepResiduals(call, {arrived_votes_.data(), votes.count, votes.stay}));
  }
  return Unpack(call, wire, factors.after, votes);
}

absl::Status NcclReduce::RunExchange(const ReduceCall& call, const Members& members, Entry* entry) {
  plan_.Lay(call, 0);
  const int n = members.size();
  const VoteOffsets offsets(plan_, n);
  const bool votes = call.info.ballot != nullptr;
  const size_t bytes = plan_.ShardBytes(n) * static_cast<size_t>(n);
  RONDA_ASSIGN_OR_RETURN(std::byte* const wire, wire_.GetFor(entry, bytes));
  RONDA_ASSIGN_OR_RETURN(std::byte* const arrived, arrived_.GetFor(entry, bytes));
  RONDA_RETURN_IF_ERROR(BorrowResiduals(call));
  RONDA_RETURN_IF_ERROR(Pack(call, call.prescale, wire));
  RONDA_RETURN_IF_ERROR(Scatter(call, members, entry, wire, arrived));
  RONDA_RETURN_IF_ERROR(ReduceShard(call, members, wire, arrived));
  RONDA_RETURN_IF_ERROR(Gather(call, members, entry, wire));
  if (!votes) return Unpack(call, wire, {}, {});
  const std::byte* const counted = arrived_votes_.data();
  RONDA_RETURN_IF_ERROR(KeepResiduals(call, {.elements = counted + offsets.of_residuals, .count = n, .stay = 1}));
  return Unpack(call, wire, {}, {.elements = counted, .count = n, .stay = 1});
}

absl::Status NcclReduce::Scatter(const ReduceCall& call, const Members& members, Entry* entry, const std::byte* wire,
                                 std::byte* arrived) {
  const int n = members.size();
  const VoteOffsets offsets(plan_, n);
  const bool votes = call.info.ballot != nullptr;
  const bool keeps_residuals = votes && IsNarrowed(call.dtype, call.wire);
  const void* const vote = Stays(call.info) ? values_.One(offsets.dtype) : values_.Zero();
  const void* const float_vote = Stays(call.info) ? values_.One(DType::kFloat32) : values_.Zero();
  if (entry == nullptr) {
    RONDA_RETURN_IF_ERROR(Copy(arrived, wire, plan_.bytes()));
    if (!votes) return absl::OkStatus();
    RONDA_RETURN_IF_ERROR(Copy(arrived_votes_.data(), vote, offsets.element_bytes));
    return Copy(arrived_votes_.data() + offsets.of_residuals, float_vote, sizeof(float));
  }
  const size_t shard = plan_.ShardBytes(n);
  const size_t own = plan_.Shard(members.self(), n).bytes;
  return MarkedTransfer(options_.groups->Run(call.info, entry, [&](const NcclFunctions& nccl, NcclHandle handle) {
    Batch batch;
    const auto exchange = [&](int peer, const void* from, size_t sent, std::byte* to, size_t received) {
      if (sent > 0) batch.Add(nccl.Send(from, sent, NcclDataType::kUint8, peer, handle, options_.stream));
      if (received > 0) batch.Add(nccl.Recv(to, received, NcclDataType::kUint8, peer, handle, options_.stream));
    };
    for (int i = 0; i < n && batch.Goes(); ++i) {
      const auto at = static_cast<size_t>(i);
      const WirePlan::Range theirs = plan_.Shard(i, n);
      exchange(i, wire + theirs.begin, theirs.bytes, arrived + shard * at, own);
      if (!votes) continue;
      // Votes come from memory that is not registered, and go to such memory, on all ranks.
      exchange(i, vote, offsets.element_bytes, arrived_votes_.data() + offsets.element_bytes * at,
               offsets.element_bytes);
      if (!keeps_residuals) continue;
      exchange(i, float_vote, sizeof(float), arrived_votes_.data() + offsets.of_residuals + sizeof(float) * at,
               sizeof(float));
    }
    return batch.result();
  }));
}

absl::Status NcclReduce::ReduceShard(const ReduceCall& call, const Members& members, std::byte* wire,
                                     const std::byte* arrived) {
  const WirePlan::Range own = plan_.Shard(members.self(), members.size());
  if (own.bytes == 0) return absl::OkStatus();
  const cuda::ReduceCall reduce = {.sources = arrived,
                                   .stride = plan_.ShardBytes(members.size()),
                                   .source_count = members.size(),
                                   .wire = plan_.wire(),
                                   .op = call.op,
                                   .scale = call.postscale,
                                   .dst = wire + own.begin,
                                   .granules = own.bytes / plan_.layout().granule_bytes};
  return LaunchReduce("reducing", reduce);
}

absl::Status NcclReduce::Gather(const ReduceCall& call, const Members& members, Entry* entry, std::byte* wire) {
  if (entry == nullptr) return absl::OkStatus();
  const size_t shard = plan_.ShardBytes(members.size());
  const std::byte* const own = wire + shard * static_cast<size_t>(members.self());
  return MarkedTransfer(options_.groups->Run(call.info, entry, [&](const NcclFunctions& nccl, NcclHandle handle) {
    return nccl.AllGather(own, wire, shard, NcclDataType::kUint8, handle, options_.stream);
  }));
}

absl::Status NcclReduce::AllReduce(const CallInfo& info, Entry* entry, const void* input, void* output, size_t count,
                                   DType dtype, NcclRedOp op) {
  if (entry == nullptr) return input == output ? absl::OkStatus() : Copy(output, input, count * SizeOf(dtype));
  return MarkedTransfer(options_.groups->Run(info, entry, [&](const NcclFunctions& nccl, NcclHandle handle) {
    return nccl.AllReduce(input, output, count, *NcclTypeOf(dtype), op, handle, options_.stream);
  }));
}

absl::Status NcclReduce::Pack(const ReduceCall& call, const kernels::Scale& scale, std::byte* wire) {
  if (!Stays(call.info)) return absl::OkStatus();
  const bool rounds = IsNarrowed(call.dtype, call.wire);
  packed_.clear();
  for (size_t i = 0; i < call.segments.size(); ++i) {
    const Segment& segment = call.segments[i];
    if (segment.count == 0) continue;
    float* const residual = call.info.ballot != nullptr && rounds ? residual_copies_[i] : segment.residual;
    packed_.push_back({.input = segment.input,
                       .residual = rounds ? residual : nullptr,
                       .count = segment.count,
                       .offset = plan_.OffsetOf(i)});
  }
  return LaunchPack({.dtype = call.dtype, .wire = plan_.wire(), .scale = scale, .buffer = wire});
}

absl::Status NcclReduce::LaunchPack(cuda::PackCall call) {
  call.segments = packed_.data();
  call.segment_count = static_cast<int>(packed_.size());
  return Marked(options_.marks, StreamPhase::kPack, Launch("packing", [&](const ronda_cuda_plugin& kernels) {
                  return kernels.pack(&call, options_.stream);
                }));
}

absl::Status NcclReduce::BorrowResiduals(const ReduceCall& call) {
  packed_.clear();
  residual_copies_.assign(call.segments.size(), nullptr);
  if (call.info.ballot == nullptr || !IsNarrowed(call.dtype, call.wire) || !Stays(call.info)) return absl::OkStatus();
  size_t bytes = 0;
  for (const Segment& segment : call.segments) {
    if (segment.residual == nullptr || segment.count == 0) continue;
    packed_.push_back({.input = segment.residual, .count = segment.count, .offset = bytes});
    bytes += RoundUp(segment.count * sizeof(float), kAlignment);
  }
  if (packed_.empty()) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(std::byte* const copies, residuals_.Get(bytes));
  size_t next = 0;
  for (size_t i = 0; i < call.segments.size(); ++i) {
    if (call.segments[i].residual == nullptr || call.segments[i].count == 0) continue;
    residual_copies_[i] = reinterpret_cast<float*>(copies + packed_[next++].offset);
  }
  return LaunchPack({.buffer = copies});
}

bool NcclReduce::HasBorrowed() const {
  return std::ranges::any_of(residual_copies_, [](const float* copy) { return copy != nullptr; });
}

absl::Status NcclReduce::WidenVotes(const Votes& votes) {
  unpacked_.assign(1, {.output = arrived_votes_.data(), .count = static_cast<uint64_t>(votes.count)});
  return LaunchUnpack({.wire = plan_.wire(), .buffer = votes.elements}, {}, nullptr);
}

absl::Status NcclReduce::KeepResiduals(const ReduceCall& call, const Votes& votes) {
  unpacked_.clear();
  std::byte* copies = nullptr;
  for (size_t i = 0; i < call.segments.size(); ++i) {
    if (residual_copies_[i] == nullptr) continue;
    auto* const copy = reinterpret_cast<std::byte*>(residual_copies_[i]);
    if (copies == nullptr) copies = copy;
    unpacked_.push_back({.output = call.segments[i].residual,
                         .count = call.segments[i].count,
                         .offset = static_cast<uint64_t>(copy - copies)});
  }
  if (unpacked_.empty()) return absl::OkStatus();
  return LaunchUnpack({.buffer = copies}, votes, reinterpret_cast<uint32_t*>(unseen_.data()));
}

absl::Status NcclReduce::Unpack(const ReduceCall& call, const std::byte* wire, const kernels::Scale& scale,
                                const Votes& votes) {
  unpacked_.clear();
  for (size_t i = 0; i < call.segments.size() && Stays(call.info); ++i) {
    const Segment& segment = call.segments[i];
    const size_t count = DeliversAll(call) ? segment.count : segment.part_count;
    if (count == 0) continue;
    unpacked_.push_back({.output = segment.output,
                         .count = count,
                         .offset = plan_.OffsetOf(i),
                         .skip = DeliversAll(call) ? 0 : segment.part_begin});
  }
  const cuda::UnpackCall unpack = {.dtype = call.dtype, .wire = plan_.wire(), .scale = scale, .buffer = wire};
  if (votes.elements == nullptr) return unpacked_.empty() ? absl::OkStatus() : LaunchUnpack(unpack, votes, nullptr);
  return Decide(call.info, unpack, votes);
}

absl::Status NcclReduce::Decide(const CallInfo& info, cuda::UnpackCall unpack, const Votes& votes) {
  unpack.vote = {.gate = vote_->gate(), .opens_at = vote_->opens_at()};
  RONDA_RETURN_IF_ERROR(LaunchUnpack(unpack, votes, vote_->decision()));
  info.ballot->result = Ballot::Result::kOpen;
  info.ballot->open_vote = std::move(vote_);
  return absl::OkStatus();
}

absl::Status NcclReduce::LaunchUnpack(cuda::UnpackCall call, const Votes& votes, uint32_t* decision) {
  call.segments = unpacked_.data();
  call.segment_count = static_cast<int>(unpacked_.size());
  call.vote.votes = votes.elements;
  call.vote.count = votes.count;
  call.vote.stay = votes.stay;
  call.vote.decision = decision;
  return Marked(options_.marks, StreamPhase::kUnpack, Launch("unpacking", [&](const ronda_cuda_plugin& kernels) {
                  return kernels.unpack(&call, options_.stream);
                }));
}

absl::Status NcclReduce::LaunchReduce(absl::string_view what, const cuda::ReduceCall& call) {
  return Marked(options_.marks, StreamPhase::kReduce,
                Launch(what, [&](const ronda_cuda_plugin& kernels) { return kernels.reduce(&call, options_.stream); }));
}

absl::Status NcclReduce::MarkedTransfer(absl::Status status) {
  return Marked(options_.marks, StreamPhase::kTransfer, std::move(status));
}

absl::Status NcclReduce::PutVote(const ReduceCall& call, const Members& members, std::byte* wire) {
  const int elements = VoteElements(call, members.size());
  if (elements == 0) return absl::OkStatus();
  const size_t bytes = SizeOf(plan_.layout().dtype);
  const void* const one = values_.One(plan_.layout().dtype);
  const bool stays = Stays(call.info);
  if (elements > 1) {
    RONDA_RETURN_IF_ERROR(Launch("voting", [&](const ronda_cuda_plugin& kernels) {
      return kernels.fill_zero(wire, static_cast<size_t>(elements) * bytes, options_.stream);
    }));
  }
  const auto own = static_cast<size_t>(elements > 1 ? members.self() / kVotersPerElement : 0);
  return Copy(wire + own * bytes, stays == StaysByOne(call.op) ? one : values_.Zero(), bytes);
}

NcclReduce::Votes NcclReduce::FusedVotes(const ReduceCall& call, const Members& members, const std::byte* wire) const {
  const int elements = VoteElements(call, members.size());
  if (elements == 0) return {};
  return {.elements = wire, .count = elements, .stay = StaysByOne(call.op) ? 1.0 : 0.0};
}

absl::Status NcclReduce::Copy(void* to, const void* from, size_t bytes) {
  return Launch("copying",
                [&](const ronda_cuda_plugin& kernels) { return kernels.copy(to, from, bytes, options_.stream); });
}

template <typename Function>
absl::Status NcclReduce::Launch(absl::string_view what, const Function& function) {
  return options_.device->Call(what, function);
}

}  // namespace ronda
