// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/staged/staged_reduce.h"

#include <algorithm>
#include <type_traits>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

using kernels::cuda::PackCall;
using kernels::cuda::PackSegment;
using kernels::cuda::UnpackCall;
using kernels::cuda::UnpackSegment;

constexpr size_t kAlignment = 16;

// Up to this number of tensors, those that need no conversion are copied one by one, because the copy engine is faster
// than a kernel. For more tensors, one kernel launch is faster.
constexpr size_t kFewTensors = 4;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

template <typename T>
T* Advance(T* pointer, size_t elements, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(pointer) + elements * SizeOf(dtype);
}

absl::Status Gather(Staging& staging, const PackCall& call) {
  const bool is_copy = call.scale.IsIdentity() && call.wire.dtype == call.dtype;
  return staging.OnStream("copying tensors to the host", [&](const ronda_cuda_plugin& cuda, StreamHandle stream) {
    if (!is_copy || static_cast<size_t>(call.segment_count) > kFewTensors) return cuda.pack(&call, stream);
    int error = 0;
    for (const PackSegment& segment : absl::MakeSpan(call.segments, call.segment_count)) {
      if (error != 0) break;
      error = cuda.copy(static_cast<std::byte*>(call.buffer) + segment.offset, segment.input,
                        segment.count * SizeOf(call.dtype), stream);
    }
    return error;
  });
}

absl::Status Scatter(Staging& staging, const UnpackCall& call) {
  const bool is_copy = call.wire.dtype == call.dtype;
  return staging.OnStream("copying tensors from the host", [&](const ronda_cuda_plugin& cuda, StreamHandle stream) {
    if (!is_copy || static_cast<size_t>(call.segment_count) > kFewTensors) return cuda.unpack(&call, stream);
    int error = 0;
    for (const UnpackSegment& segment : absl::MakeSpan(call.segments, call.segment_count)) {
      if (error != 0) break;
      error = cuda.copy(segment.output, static_cast<const std::byte*>(call.buffer) + segment.offset,
                        segment.count * SizeOf(call.dtype), stream);
    }
    return error;
  });
}

}  // namespace

StagedReduce::StagedReduce(const ReduceCall& call, Communicator* host, Staging* staging)
    : call_(call),
      host_(host),
      staging_(staging),
      layout_(LayoutOf(call.dtype, call.wire)),
      staged_(layout_.fp8.has_value() ? call.dtype : layout_.dtype),
      has_residuals_(layout_.fp8.has_value()),
      has_parts_(call.delivery == ReduceCall::Delivery::kParts) {
  Plan();
}

void StagedReduce::Plan() {
  size_t used = 0;
  round_begins_.push_back(0);
  for (const Segment& segment : call_.segments) {
    for (size_t begin = 0; begin < segment.count;) {
      const size_t count = CountThatFits(segment.count - begin, used);
      if (count == 0) {
        round_begins_.push_back(pieces_.size());
        used = 0;
        continue;
      }
      pieces_.push_back(PieceAt(segment, begin, count, used));
      used = EndOf(pieces_.back());
      begin += count;
    }
  }
  if (!pieces_.empty()) round_begins_.push_back(pieces_.size());
}

size_t StagedReduce::CountThatFits(size_t left, size_t used) const {
  const size_t padding = 3 * kAlignment;
  if (used + padding >= staging_->slot_bytes()) return 0;
  const size_t element = SizeOf(staged_) * (has_parts_ ? 2 : 1) + (has_residuals_ ? sizeof(float) : 0);
  const size_t room = (staging_->slot_bytes() - used - padding) / element;
  return room >= left ? left : room / layout_.granule_elements * layout_.granule_elements;
}

StagedReduce::Piece StagedReduce::PieceAt(const Segment& segment, size_t begin, size_t count, size_t offset) const {
  const size_t behind = offset + Aligned(count * SizeOf(staged_));
  return {.segment = &segment,
          .begin = begin,
          .count = count,
          .input = offset,
          .residual = behind,
          .output = has_parts_ ? behind + (has_residuals_ ? Aligned(count * sizeof(float)) : 0) : offset};
}

size_t StagedReduce::EndOf(const Piece& piece) const {
  if (has_parts_) return piece.output + Aligned(piece.count * SizeOf(staged_));
  return piece.residual + (has_residuals_ ? Aligned(piece.count * sizeof(float)) : 0);
}

absl::Span<const StagedReduce::Piece> StagedReduce::PiecesOf(size_t round) const {
  return absl::MakeSpan(pieces_).subspan(round_begins_[round], round_begins_[round + 1] - round_begins_[round]);
}

StagedReduce::Part StagedReduce::PartOf(const Piece& piece) const {
  if (!has_parts_) return {.begin = piece.begin, .count = piece.count};
  const Segment& segment = *piece.segment;
  const size_t begin = std::max(segment.part_begin, piece.begin);
  const size_t end = std::min(segment.part_begin + segment.part_count, piece.begin + piece.count);
  return {.begin = begin, .count = end > begin ? end - begin : 0};
}

absl::Status StagedReduce::CopyOut(size_t round, std::byte* slot) {
  const absl::Span<const Piece> pieces = PiecesOf(round);
  const bool on_device = !layout_.fp8.has_value();
  std::vector<PackSegment> segments;
  segments.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    float* const residual = piece.segment->residual;
    const bool is_rounded = on_device && residual != nullptr && staged_ != call_.dtype;
    segments.push_back({.input = Advance(piece.segment->input, piece.begin, call_.dtype),
                        .residual = is_rounded ? residual + piece.begin : nullptr,
                        .count = piece.count,
                        .offset = piece.input});
  }
  RONDA_RETURN_IF_ERROR(Gather(*staging_, {.segments = segments.data(),
                                           .segment_count = static_cast<int>(segments.size()),
                                           .dtype = call_.dtype,
                                           .wire = {.dtype = staged_},
                                           .scale = on_device ? call_.prescale : kernels::Scale(),
                                           .buffer = slot}));
  return has_residuals_ ? CopyResidualsOut(pieces, slot) : absl::OkStatus();
}

absl::Status StagedReduce::Exchange(size_t round, std::byte* slot) {
  const absl::Span<const Piece> pieces = PiecesOf(round);
  std::vector<Segment> segments;
  segments.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    segments.push_back({.count = piece.count});
    if (slot == nullptr) continue;
    Segment& segment = segments.back();
    segment.input = slot + piece.input;
    segment.output = slot + piece.output;
    if (has_parts_) {
      const Part part = PartOf(piece);
      segment.part_begin = part.count > 0 ? part.begin - piece.begin : 0;
      segment.part_count = part.count;
    }
    const bool has_residual = has_residuals_ && piece.segment->residual != nullptr;
    if (has_residual) segment.residual = reinterpret_cast<float*>(slot + piece.residual);
  }
  ReduceCall on_host = call_;
  on_host.segments = segments;
  on_host.dtype = staged_;
  if (!layout_.fp8.has_value()) {
    on_host.wire = WireFormat::kNone;
    on_host.prescale = {};
  }
  return host_->Reduce(on_host);
}

absl::Status StagedReduce::CopyBack(size_t round, std::byte* slot) {
  const absl::Span<const Piece> pieces = PiecesOf(round);
  std::vector<UnpackSegment> segments;
  segments.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    const Part part = PartOf(piece);
    if (part.count == 0) continue;
    const size_t first = part.begin - (has_parts_ ? piece.segment->part_begin : 0);
    segments.push_back(
        {.output = Advance(piece.segment->output, first, call_.dtype), .count = part.count, .offset = piece.output});
  }
  RONDA_RETURN_IF_ERROR(Scatter(*staging_, {.segments = segments.data(),
                                            .segment_count = static_cast<int>(segments.size()),
                                            .dtype = call_.dtype,
                                            .wire = {.dtype = staged_},
                                            .buffer = slot}));
  return has_residuals_ ? CopyResidualsBack(pieces, slot) : absl::OkStatus();
}

absl::Status StagedReduce::CopyResidualsOut(absl::Span<const Piece> pieces, std::byte* slot) {
  std::vector<PackSegment> segments;
  for (const Piece& piece : pieces) {
    if (piece.segment->residual == nullptr) continue;
    segments.push_back(
        {.input = piece.segment->residual + piece.begin, .count = piece.count, .offset = piece.residual});
  }
  return Gather(*staging_,
                {.segments = segments.data(), .segment_count = static_cast<int>(segments.size()), .buffer = slot});
}

absl::Status StagedReduce::CopyResidualsBack(absl::Span<const Piece> pieces, std::byte* slot) {
  std::vector<UnpackSegment> segments;
  for (const Piece& piece : pieces) {
    if (piece.segment->residual == nullptr) continue;
    segments.push_back(
        {.output = piece.segment->residual + piece.begin, .count = piece.count, .offset = piece.residual});
  }
  return Scatter(*staging_,
                 {.segments = segments.data(), .segment_count = static_cast<int>(segments.size()), .buffer = slot});
}

}  // namespace ronda
