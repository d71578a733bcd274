// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/adasum.h"

#include <cstddef>
#include <cstdint>
#include <new>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/gradients.h"
#include "kernels/cuda/calls.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda {
namespace {

namespace cuda = kernels::cuda;

template <typename T>
absl::Span<const T> SpanOf(const T* first, int count) {
  return {first, static_cast<size_t>(count)};
}

namespace cuda = kernels::cuda;

// The number of dot products of two vectors: ab, aa and bb.
constexpr size_t kDots = 3;

// Executes one call to Adasum() on one rank.
class AdasumRun {
 public:
  AdasumRun(Communicator& communicator, AdasumOps& ops, const ReduceCall& call)
      : communicator_(communicator),
        ops_(ops),
        call_(call),
        members_(call.info, communicator.rank(), communicator.size()),
        wire_(WireDType(call.dtype, call.wire)),
        dtype_(call.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32),
        layout_(call.segments, members_.size(), wire_) {
    for (int member = 0; member < members_.size(); ++member) {
      shard_bytes_.push_back(layout_.Elements(member) * SizeOf(wire_));
    }
    if (members_.IncludeSelf()) own_elements_ = layout_.Elements(members_.self());
  }
  ~AdasumRun() { ops_.Release(); }

  absl::Status Run() {
    if (members_.IncludeSelf()) RONDA_RETURN_IF_ERROR(Allocate());
    RONDA_RETURN_IF_ERROR(ExchangeShards());
    RONDA_RETURN_IF_ERROR(CombineAll());
    return GatherResult();
  }

 private:
  absl::Status Allocate();

  absl::Status ExchangeShards();
  absl::Status PackContribution();
  absl::Status CombineAll();
  // Combines the first 2 * `pairs` partial results in `left_` pairwise.
  absl::Status CombinePairs(size_t pairs);
  // Lists this rank's shards of the partial result that started as the contribution of `member`.
  void ListShards(int member, std::vector<cuda::Extent>& shards) const;
  absl::Status GatherResult();
  absl::Status UnpackResult();

  // Convert all `elements` between the wire format and dtype_.
  absl::Status Widen(const std::byte* from, std::byte* to, size_t elements);
  absl::Status RoundToWire(const std::byte* from, std::byte* to, size_t elements);

  Communicator& communicator_;
  AdasumOps& ops_;
  const ReduceCall& call_;
  const Members members_;
  const DType wire_;   // the type of elements on the wire
  const DType dtype_;  // the type in which elements are combined
  const AdasumLayout layout_;
  std::vector<size_t> shard_bytes_;  // bytes of each member's shards on the wire
  size_t own_elements_ = 0;          // elements of this rank's shards

  // These point into the memory of `ops_`.
  std::byte* whole_ = nullptr;     // all members' shards on the wire: first to be sent, then the result
  std::byte* shards_ = nullptr;    // this rank's shards on the wire: first all members', then the result
  std::byte* partials_ = nullptr;  // this rank's shards of all members
  double* dots_ = nullptr;         // by pair and tensor

  std::vector<int> left_;  // the members whose partial results have not been merged into others
};

absl::Status AdasumRun::Allocate() {
  const auto n = static_cast<size_t>(members_.size());
  const size_t whole = std::accumulate(shard_bytes_.begin(), shard_bytes_.end(), size_t{0});
  const size_t shards = own_elements_ * n * SizeOf(wire_);
  const size_t partials = own_elements_ * n * SizeOf(dtype_);
  const size_t pairs = n / 2 * call_.segments.size();
  const size_t dots = pairs * kDots * sizeof(double);
  RONDA_ASSIGN_OR_RETURN(
      whole_, ops_.Allocate({.bytes = whole + shards + partials + dots, .pairs = pairs, .label = call_.info.label}));
  shards_ = whole_ + whole;
  partials_ = shards_ + shards;
  dots_ = reinterpret_cast<double*>(partials_ + partials);
  return absl::OkStatus();
}

absl::Status AdasumRun::ExchangeShards() {
  std::vector<size_t> bytes;
  for (int sender = 0; sender < members_.size(); ++sender) {
    bytes.insert(bytes.end(), shard_bytes_.begin(), shard_bytes_.end());
  }
  if (members_.IncludeSelf()) RONDA_RETURN_IF_ERROR(PackContribution());
  RONDA_RETURN_IF_ERROR(
      communicator_.Alltoall({.info = call_.info, .input = whole_, .output = shards_, .bytes = bytes}));
  if (!members_.IncludeSelf()) return absl::OkStatus();
  return Widen(shards_, partials_, own_elements_ * static_cast<size_t>(members_.size()));
}

absl::Status AdasumRun::PackContribution() {
  std::vector<cuda::PackSegment> pieces;
  size_t offset = 0;
  for (int member = 0; member < members_.size(); ++member) {
    layout_.ForEach(member, [&](const Segment& segment, const AdasumLayout::Shard& shard) {
      if (shard.count == 0) return;
      const bool has_residual = segment.residual != nullptr && wire_ != call_.dtype;
      pieces.push_back({.input = static_cast<const std::byte*>(segment.input) + shard.begin * SizeOf(call_.dtype),
                        .residual = has_residual ? segment.residual + shard.begin : nullptr,
                        .count = shard.count,
                        .offset = offset + shard.offset * SizeOf(wire_)});
    });
    offset += shard_bytes_[static_cast<size_t>(member)];
  }
  return ops_.Pack({.segments = pieces.data(),
                    .segment_count = static_cast<int>(pieces.size()),
                    .dtype = call_.dtype,
                    .wire = {.dtype = wire_},
                    .scale = call_.prescale,
                    .buffer = whole_});
}

absl::Status AdasumRun::Widen(const std::byte* from, std::byte* to, size_t elements) {
  const cuda::UnpackSegment all = {.output = to, .count = elements};
  return ops_.Unpack({.segments = &all, .segment_count = 1, .dtype = dtype_, .wire = {.dtype = wire_}, .buffer = from});
}

absl::Status AdasumRun::RoundToWire(const std::byte* from, std::byte* to, size_t elements) {
  const cuda::PackSegment all = {.input = from, .count = elements};
  return ops_.Pack({.segments = &all,
                    .segment_count = 1,
                    .dtype = dtype_,
                    .wire = {.dtype = wire_},
                    .scale = call_.postscale,
                    .buffer = to});
}

absl::Status AdasumRun::CombineAll() {
  left_.resize(static_cast<size_t>(members_.size()));
  std::iota(left_.begin(), left_.end(), 0);
  while (left_.size() > 1) {
    const size_t pairs = left_.size() / 2;
    RONDA_RETURN_IF_ERROR(CombinePairs(pairs));
    // The first member of each pair stays in `left_`. If the number of members is odd, the last member also stays.
    for (size_t pair = 0; pair < pairs; ++pair) left_[pair] = left_[2 * pair];
    if (left_.size() % 2 == 1) left_[pairs] = left_.back();
    left_.resize(left_.size() - pairs);
  }
  return absl::OkStatus();
}

absl::Status AdasumRun::CombinePairs(size_t pairs) {
  std::vector<cuda::Extent> a;
  std::vector<cuda::Extent> b;
  for (size_t pair = 0; pair < pairs && members_.IncludeSelf(); ++pair) {
    ListShards(left_[2 * pair], a);
    ListShards(left_[2 * pair + 1], b);
  }
  const auto count = static_cast<int>(a.size());
  if (members_.IncludeSelf()) {
    RONDA_RETURN_IF_ERROR(
        ops_.Dots({.a = a.data(), .b = b.data(), .pair_count = count, .dtype = dtype_, .dots = dots_}));
  }
  const Segment all = {.input = dots_, .output = dots_, .count = pairs * call_.segments.size() * kDots};
  RONDA_RETURN_IF_ERROR(communicator_.Reduce({.info = call_.info, .segments = {&all, 1}, .dtype = DType::kFloat64}));
  if (!members_.IncludeSelf()) return absl::OkStatus();
  return ops_.Combine({.a = a.data(), .b = b.data(), .pair_count = count, .dtype = dtype_, .dots = dots_});
}

void AdasumRun::ListShards(int member, std::vector<cuda::Extent>& shards) const {
  const size_t first = static_cast<size_t>(member) * own_elements_;
  layout_.ForEach(members_.self(), [&](const Segment&, const AdasumLayout::Shard& shard) {
    shards.push_back({.data = partials_ + (first + shard.offset) * SizeOf(dtype_), .count = shard.count});
  });
}

absl::Status AdasumRun::GatherResult() {
  // Only one partial result is left: the one that started with the first member.
  if (members_.IncludeSelf()) RONDA_RETURN_IF_ERROR(RoundToWire(partials_, shards_, own_elements_));
  RONDA_RETURN_IF_ERROR(communicator_.Allgather(
      {.info = call_.info, .input = shards_, .output = whole_, .bytes_per_rank = shard_bytes_}));
  return members_.IncludeSelf() ? UnpackResult() : absl::OkStatus();
}

absl::Status AdasumRun::UnpackResult() {
  std::vector<cuda::UnpackSegment> pieces;
  size_t offset = 0;
  for (int member = 0; member < members_.size(); ++member) {
    layout_.ForEach(member, [&](const Segment& segment, const AdasumLayout::Shard& shard) {
      if (shard.count == 0) return;
      pieces.push_back({.output = static_cast<std::byte*>(segment.output) + shard.begin * SizeOf(call_.dtype),
                        .count = shard.count,
                        .offset = offset + shard.offset * SizeOf(wire_)});
    });
    offset += shard_bytes_[static_cast<size_t>(member)];
  }
  return ops_.Unpack({.segments = pieces.data(),
                      .segment_count = static_cast<int>(pieces.size()),
                      .dtype = call_.dtype,
                      .wire = {.dtype = wire_},
                      .buffer = whole_});
}

}  // namespace

absl::StatusOr<std::byte*> HostAdasumOps::Allocate(const Need& need) {
  memory_.reset(new (std::nothrow) std::byte[need.bytes]);
  if (memory_ != nullptr) return memory_.get();
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for the ", need.bytes, " bytes that the Adasum of '", need.label, "' needs"));
}

absl::Status HostAdasumOps::Pack(const cuda::PackCall& call) {
  for (const cuda::PackSegment& segment : SpanOf(call.segments, call.segment_count)) {
    std::byte* const to = static_cast<std::byte*>(call.buffer) + segment.offset;
    if (segment.residual != nullptr) {
      kernels::ConvertWithFeedback({.src = segment.input,
                                    .src_dtype = call.dtype,
                                    .dst = to,
                                    .dst_dtype = call.wire.dtype,
                                    .count = segment.count,
                                    .scale = call.scale,
                                    .residual = segment.residual});
    } else {
      kernels::Convert(segment.input, call.dtype, to, call.wire.dtype, segment.count, call.scale);
    }
  }
  return absl::OkStatus();
}

absl::Status HostAdasumOps::Unpack(const cuda::UnpackCall& call) {
  for (const cuda::UnpackSegment& segment : SpanOf(call.segments, call.segment_count)) {
    const std::byte* const from = static_cast<const std::byte*>(call.buffer) + segment.offset;
    kernels::Convert(from, call.wire.dtype, segment.output, call.dtype, segment.count, call.scale);
  }
  return absl::OkStatus();
}

absl::Status HostAdasumOps::Dots(const cuda::DotsCall& call) {
  for (int pair = 0; pair < call.pair_count; ++pair) {
    const cuda::Extent& a = call.a[pair];
    const kernels::AdasumDots dots = kernels::Dots(a.data, call.b[pair].data, call.dtype, a.count);
    double* const to = call.dots + 3 * int64_t{pair};
    to[0] = dots.ab;
    to[1] = dots.aa;
    to[2] = dots.bb;
  }
  return absl::OkStatus();
}

absl::Status HostAdasumOps::Combine(const cuda::CombineCall& call) {
  for (int pair = 0; pair < call.pair_count; ++pair) {
    const cuda::Extent& a = call.a[pair];
    const double* const dots = call.dots + 3 * int64_t{pair};
    kernels::Combine({.a = a.data,
                      .b = call.b[pair].data,
                      .weights = kernels::WeightsOf({.ab = dots[0], .aa = dots[1], .bb = dots[2]}),
                      .dst = const_cast<void*>(a.data),
                      .dtype = call.dtype,
                      .count = a.count});
  }
  return absl::OkStatus();
}

absl::Status Adasum(Communicator* communicator, AdasumOps* ops, const ReduceCall& call) {
  if (!IsFloatingPoint(call.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("Adasum is not defined on ", Name(call.dtype)));
  }
  if (Fp8FormatOf(call.dtype, call.wire).has_value() || call.delivery != ReduceCall::Delivery::kAll) {
    return absl::InvalidArgumentError("Adasum has no 8-bit wires, and delivers all to all");
  }
  return AdasumRun(*communicator, *ops, call).Run();
}

}  // namespace ronda
