#include "runtime/collectives/nccl/parts_reduce.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda {
namespace {

namespace cuda = kernels::cuda;

// Below this size, the bytes saved are not worth a round of messages between the hosts.
constexpr size_t kLeastBytes = 256 << 10;
// More tensors than these are not announced one by one.
constexpr size_t kMostTensors = 256;
// Up to this multiple of an equal share, each member is sent everything that it receives.
constexpr size_t kMostShares = 2;
constexpr size_t kAlignment = 16;

constexpr size_t RoundUp(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Whether the members announce their parts. The same on all ranks of the job.
bool IsWorthAsking(const ReduceCall& call) {
  const WireLayout layout = LayoutOf(call.dtype, call.wire);
  size_t elements = 0;
  for (const Segment& segment : call.segments) elements += segment.count;
  // Parts may begin inside a granule, which two members would then need.
  return call.delivery == ReduceCall::Delivery::kParts && call.info.ballot == nullptr && layout.granule_elements == 1 &&
         call.segments.size() <= kMostTensors && elements * layout.granule_bytes >= kLeastBytes;
}

const std::byte* ElementOf(const void* tensor, uint64_t element, DType dtype) {
  return static_cast<const std::byte*>(tensor) + element * SizeOf(dtype);
}

cuda::Wire WireOf(const ReduceCall& call) { return {.dtype = LayoutOf(call.dtype, call.wire).dtype}; }

}  // namespace

absl::Status PartsReduce::Agree(const ReduceCall& call, const Members& members) {
  fits_ = false;
  if (members.size() == 1 || !IsWorthAsking(call)) return absl::OkStatus();
  own_.clear();
  for (const Segment& segment : call.segments) {
    own_.push_back({.begin = segment.part_begin, .count = segment.part_count});
  }
  all_.resize(own_.size() * static_cast<size_t>(members.size()));
  all_bytes_.assign(static_cast<size_t>(members.size()), own_.size() * sizeof(Part));
  const CallInfo info = {
      .label = call.info.label, .group = call.info.group, .op = call.info.op, .limits = call.info.limits};
  RONDA_RETURN_IF_ERROR(options_.host->Allgather(
      {.info = info, .input = own_.data(), .output = all_.data(), .bytes_per_rank = all_bytes_}));
  if (!members.IncludeSelf()) return absl::OkStatus();
  RONDA_RETURN_IF_ERROR(Check(call));
  fits_ = Lay(call, members.size());
  return absl::OkStatus();
}

absl::Status PartsReduce::Check(const ReduceCall& call) const {
  for (size_t i = 0; i < all_.size(); ++i) {
    const size_t count = call.segments[i % call.segments.size()].count;
    if (all_[i].begin <= count && all_[i].count <= count - all_[i].begin) continue;
    return absl::InternalError(absl::StrCat("member ", i / call.segments.size(), " of '", call.info.label,
                                            "' wants elements that do not exist: ", all_[i].count, " elements from ",
                                            all_[i].begin, " of ", count));
  }
  return absl::OkStatus();
}

bool PartsReduce::Lay(const ReduceCall& call, int members) {
  const size_t tensors = call.segments.size();
  const size_t element_bytes = LayoutOf(call.dtype, call.wire).granule_bytes;
  regions_.assign(static_cast<size_t>(members), {});
  offsets_.resize(all_.size());
  size_t end = 0;
  size_t longest = 0;
  for (size_t i = 0; i < all_.size(); ++i) {
    Region& region = regions_[i / tensors];
    if (i % tensors == 0) region.begin = end;
    offsets_[i] = end;
    end += RoundUp(all_[i].count * element_bytes, kAlignment);
    region.bytes = end - region.begin;
    longest = std::max(longest, region.bytes);
  }
  return longest <= kMostShares * (end / static_cast<size_t>(members) + kAlignment);
}

absl::Status PartsReduce::Run(const ReduceCall& call, const Members& members, NcclGroups::Entry* entry) {
  const auto self = static_cast<size_t>(members.self());
  RONDA_ASSIGN_OR_RETURN(std::byte* const packed,
                         options_.packed->GetFor(entry, regions_.back().begin + regions_.back().bytes));
  RONDA_ASSIGN_OR_RETURN(std::byte* const arrived,
                         options_.arrived->GetFor(entry, regions_[self].bytes * regions_.size()));
  RONDA_RETURN_IF_ERROR(Pack(call, packed));
  RONDA_RETURN_IF_ERROR(Exchange(call, members, entry, packed, arrived));
  return Deliver(call, members, packed, arrived);
}

absl::Status PartsReduce::Pack(const ReduceCall& call, std::byte* packed) {
  const size_t tensors = call.segments.size();
  const bool rounds = IsNarrowed(call.dtype, call.wire);
  packs_.clear();
  for (size_t i = 0; i < all_.size(); ++i) {
    const Segment& segment = call.segments[i % tensors];
    if (all_[i].count == 0) continue;
    packs_.push_back({.input = ElementOf(segment.input, all_[i].begin, call.dtype),
                      .residual = rounds && segment.residual != nullptr ? segment.residual + all_[i].begin : nullptr,
                      .count = all_[i].count,
                      .offset = offsets_[i]});
  }
  const cuda::PackCall pack = {.segments = packs_.data(),
                               .segment_count = static_cast<int>(packs_.size()),
                               .dtype = call.dtype,
                               .wire = WireOf(call),
                               .scale = call.prescale,
                               .buffer = packed};
  if (packs_.empty()) return absl::OkStatus();
  return Marked(options_.marks, StreamPhase::kPack,
                options_.device->Call(
                    "packing", [&](const ronda_cuda_plugin& kernels) { return kernels.pack(&pack, options_.stream); }));
}

absl::Status PartsReduce::Exchange(const ReduceCall& call, const Members& members, NcclGroups::Entry* entry,
                                   const std::byte* packed, std::byte* arrived) {
  const size_t own = regions_[static_cast<size_t>(members.self())].bytes;
  const auto exchange = [&](const NcclFunctions& nccl, NcclHandle handle) {
    NcclResult result = NcclResult::kSuccess;
    const auto goes = [&] { return result == NcclResult::kSuccess || result == NcclResult::kInProgress; };
    for (int peer = 0; peer < members.size() && goes(); ++peer) {
      const Region& theirs = regions_[static_cast<size_t>(peer)];
      std::byte* const to = arrived + own * static_cast<size_t>(peer);
      if (theirs.bytes > 0) {
        result = nccl.Send(packed + theirs.begin, theirs.bytes, NcclDataType::kUint8, peer, handle, options_.stream);
      }
      if (own > 0 && goes()) result = nccl.Recv(to, own, NcclDataType::kUint8, peer, handle, options_.stream);
    }
    return result;
  };
  return Marked(options_.marks, StreamPhase::kTransfer, options_.groups->Run(call.info, entry, exchange));
}

absl::Status PartsReduce::Deliver(const ReduceCall& call, const Members& members, std::byte* packed,
                                  const std::byte* arrived) {
  const size_t tensors = call.segments.size();
  const auto self = static_cast<size_t>(members.self());
  const Region& own = regions_[self];
  if (own.bytes == 0) return absl::OkStatus();
  const cuda::ReduceCall reduce = {.sources = arrived,
                                   .stride = own.bytes,
                                   .source_count = members.size(),
                                   .wire = WireOf(call),
                                   .op = call.op,
                                   .scale = call.postscale,
                                   .dst = packed + own.begin,
                                   .granules = own.bytes / SizeOf(WireOf(call).dtype)};
  RONDA_RETURN_IF_ERROR(Marked(options_.marks, StreamPhase::kReduce,
                               options_.device->Call("reducing", [&](const ronda_cuda_plugin& kernels) {
                                 return kernels.reduce(&reduce, options_.stream);
                               })));
  unpacks_.clear();
  for (size_t i = 0; i < tensors; ++i) {
    const size_t part = self * tensors + i;
    if (all_[part].count == 0) continue;
    unpacks_.push_back({.output = call.segments[i].output, .count = all_[part].count, .offset = offsets_[part]});
  }
  const cuda::UnpackCall unpack = {.segments = unpacks_.data(),
                                   .segment_count = static_cast<int>(unpacks_.size()),
                                   .dtype = call.dtype,
                                   .wire = WireOf(call),
                                   .buffer = packed};
  return Marked(options_.marks, StreamPhase::kUnpack,
                options_.device->Call("unpacking", [&](const ronda_cuda_plugin& kernels) {
                  return kernels.unpack(&unpack, options_.stream);
                }));
}

}  // namespace ronda
