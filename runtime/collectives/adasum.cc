#include "runtime/collectives/adasum.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/cpu/adasum.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/feedback.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/members.h"
#include "runtime/collectives/wire_layout.h"

namespace ronda {
namespace {

using Bytes = std::unique_ptr<std::byte[]>;

// One Adasum on one rank. Lives as long as the call.
class AdasumRun {
 public:
  AdasumRun(Communicator& communicator, const ReduceCall& call)
      : communicator_(communicator),
        call_(call),
        members_(call.info, communicator.rank(), communicator.size()),
        wire_(WireDType(call.dtype, call.wire)),
        dtype_(call.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32) {}

  absl::Status Run() {
    if (members_.IncludeSelf()) RONDA_RETURN_IF_ERROR(Allocate());
    RONDA_RETURN_IF_ERROR(ExchangeShards());
    RONDA_RETURN_IF_ERROR(CombineAll());
    return GatherResult();
  }

 private:
  // Elements of a segment that a member's shard holds.
  struct Shard {
    size_t begin;
    size_t count;
  };
  Shard ShardOf(const Segment& segment, int member) const {
    const size_t members = static_cast<size_t>(members_.size());
    const size_t begin = segment.count * static_cast<size_t>(member) / members;
    return {.begin = begin, .count = segment.count * static_cast<size_t>(member + 1) / members - begin};
  }
  size_t ShardElements(int member) const {
    size_t elements = 0;
    for (const Segment& segment : call_.segments) elements += ShardOf(segment, member).count;
    return elements;
  }
  // The bytes of each member's shards on the wire.
  std::vector<size_t> ShardBytes() const {
    std::vector<size_t> bytes;
    for (int member = 0; member < members_.size(); ++member) bytes.push_back(ShardElements(member) * SizeOf(wire_));
    return bytes;
  }

  absl::Status Allocate();
  absl::Status AllocateBytes(size_t bytes, Bytes& memory) const;

  absl::Status ExchangeShards();
  void PackContribution();
  absl::Status CombineAll();
  // Combines each of the first `pairs` * 2 of the partial results in `left_` with its neighbour.
  absl::Status CombinePairs(size_t pairs);
  void ComputeDots(size_t pairs, absl::Span<kernels::AdasumDots> dots) const;
  void ApplyDots(size_t pairs, absl::Span<const kernels::AdasumDots> dots);
  absl::Status GatherResult();
  void UnpackResult();

  // The partial result that began as the contribution of `member`: this rank's shards, one a segment.
  std::byte* Partial(int member) const {
    return partials_.get() + static_cast<size_t>(member) * ShardElements(members_.self()) * SizeOf(dtype_);
  }

  Communicator& communicator_;
  const ReduceCall& call_;
  const Members members_;
  const DType wire_;       // in which elements travel
  const DType dtype_;      // in which they are combined
  Bytes whole_;            // all members' shards on the wire: what is sent, then the result
  Bytes shards_;           // this rank's shards on the wire: of all members, then the result
  Bytes partials_;         // this rank's shards of all members
  std::vector<int> left_;  // the members whose partials have not been combined into others
};

absl::Status AdasumRun::AllocateBytes(size_t bytes, Bytes& memory) const {
  memory.reset(new (std::nothrow) std::byte[bytes]);
  if (memory != nullptr) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for the ", bytes, " bytes that the Adasum of '", call_.info.label, "' needs"));
}

absl::Status AdasumRun::Allocate() {
  size_t whole = 0;
  for (int member = 0; member < members_.size(); ++member) whole += ShardElements(member);
  const size_t shards = ShardElements(members_.self()) * static_cast<size_t>(members_.size());
  RONDA_RETURN_IF_ERROR(AllocateBytes(whole * SizeOf(wire_), whole_));
  RONDA_RETURN_IF_ERROR(AllocateBytes(shards * SizeOf(wire_), shards_));
  return AllocateBytes(shards * SizeOf(dtype_), partials_);
}

absl::Status AdasumRun::ExchangeShards() {
  const int n = members_.size();
  const std::vector<size_t> row = ShardBytes();
  std::vector<size_t> bytes;
  for (int sender = 0; sender < n; ++sender) bytes.insert(bytes.end(), row.begin(), row.end());
  if (members_.IncludeSelf()) PackContribution();
  RONDA_RETURN_IF_ERROR(
      communicator_.Alltoall({.info = call_.info, .input = whole_.get(), .output = shards_.get(), .bytes = bytes}));
  if (!members_.IncludeSelf()) return absl::OkStatus();
  kernels::Convert(shards_.get(), wire_, partials_.get(), dtype_,
                   ShardElements(members_.self()) * static_cast<size_t>(n));
  return absl::OkStatus();
}

void AdasumRun::PackContribution() {
  std::byte* to = whole_.get();
  for (int member = 0; member < members_.size(); ++member) {
    for (const Segment& segment : call_.segments) {
      const Shard shard = ShardOf(segment, member);
      if (shard.count == 0) continue;
      const auto* const from = static_cast<const std::byte*>(segment.input) + shard.begin * SizeOf(call_.dtype);
      if (segment.residual != nullptr && wire_ != call_.dtype) {
        kernels::ConvertWithFeedback({.src = from,
                                      .src_dtype = call_.dtype,
                                      .dst = to,
                                      .dst_dtype = wire_,
                                      .count = shard.count,
                                      .scale = call_.prescale,
                                      .residual = segment.residual + shard.begin});
      } else {
        kernels::Convert(from, call_.dtype, to, wire_, shard.count, call_.prescale);
      }
      to += shard.count * SizeOf(wire_);
    }
  }
}

absl::Status AdasumRun::CombineAll() {
  left_.resize(static_cast<size_t>(members_.size()));
  std::iota(left_.begin(), left_.end(), 0);
  while (left_.size() > 1) {
    const size_t pairs = left_.size() / 2;
    RONDA_RETURN_IF_ERROR(CombinePairs(pairs));
    // The first of each pair goes on, and an odd last one.
    for (size_t pair = 0; pair < pairs; ++pair) left_[pair] = left_[2 * pair];
    if (left_.size() % 2 == 1) left_[pairs] = left_.back();
    left_.resize(left_.size() - pairs);
  }
  return absl::OkStatus();
}

absl::Status AdasumRun::CombinePairs(size_t pairs) {
  std::vector<kernels::AdasumDots> dots(pairs * call_.segments.size());
  constexpr size_t kDotsOfPair = sizeof(kernels::AdasumDots) / sizeof(double);
  if (members_.IncludeSelf()) ComputeDots(pairs, absl::MakeSpan(dots));
  const Segment all = {.input = dots.data(), .output = dots.data(), .count = dots.size() * kDotsOfPair};
  RONDA_RETURN_IF_ERROR(communicator_.Reduce({.info = call_.info, .segments = {&all, 1}, .dtype = DType::kFloat64}));
  if (members_.IncludeSelf()) ApplyDots(pairs, dots);
  return absl::OkStatus();
}

void AdasumRun::ComputeDots(size_t pairs, absl::Span<kernels::AdasumDots> dots) const {
  auto next = dots.begin();
  for (size_t pair = 0; pair < pairs; ++pair) {
    const std::byte* a = Partial(left_[2 * pair]);
    const std::byte* b = Partial(left_[2 * pair + 1]);
    for (const Segment& segment : call_.segments) {
      const size_t count = ShardOf(segment, members_.self()).count;
      *next++ = kernels::Dots(a, b, dtype_, count);
      a += count * SizeOf(dtype_);
      b += count * SizeOf(dtype_);
    }
  }
}

void AdasumRun::ApplyDots(size_t pairs, absl::Span<const kernels::AdasumDots> dots) {
  auto next = dots.begin();
  for (size_t pair = 0; pair < pairs; ++pair) {
    std::byte* a = Partial(left_[2 * pair]);
    const std::byte* b = Partial(left_[2 * pair + 1]);
    for (const Segment& segment : call_.segments) {
      const size_t count = ShardOf(segment, members_.self()).count;
      kernels::Combine(
          {.a = a, .b = b, .weights = kernels::WeightsOf(*next++), .dst = a, .dtype = dtype_, .count = count});
      a += count * SizeOf(dtype_);
      b += count * SizeOf(dtype_);
    }
  }
}

absl::Status AdasumRun::GatherResult() {
  const std::vector<size_t> bytes = ShardBytes();
  if (members_.IncludeSelf()) {
    kernels::Convert(Partial(0), dtype_, shards_.get(), wire_, ShardElements(members_.self()), call_.postscale);
  }
  RONDA_RETURN_IF_ERROR(communicator_.Allgather(
      {.info = call_.info, .input = shards_.get(), .output = whole_.get(), .bytes_per_rank = bytes}));
  if (members_.IncludeSelf()) UnpackResult();
  return absl::OkStatus();
}

void AdasumRun::UnpackResult() {
  const std::byte* from = whole_.get();
  for (int member = 0; member < members_.size(); ++member) {
    for (const Segment& segment : call_.segments) {
      const Shard shard = ShardOf(segment, member);
      auto* const to = static_cast<std::byte*>(segment.output) + shard.begin * SizeOf(call_.dtype);
      kernels::Convert(from, wire_, to, call_.dtype, shard.count);
      from += shard.count * SizeOf(wire_);
    }
  }
}

}  // namespace

absl::Status Adasum(Communicator* communicator, const ReduceCall& call) {
  if (!IsFloatingPoint(call.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("Adasum is not defined on ", Name(call.dtype)));
  }
  if (Fp8FormatOf(call.dtype, call.wire).has_value() || call.delivery != ReduceCall::Delivery::kAll) {
    return absl::InvalidArgumentError("Adasum has no 8-bit wires, and delivers all to all");
  }
  return AdasumRun(*communicator, call).Run();
}

}  // namespace ronda
