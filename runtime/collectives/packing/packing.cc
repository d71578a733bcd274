// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/packing/packing.h"

#include <algorithm>

namespace ronda {
namespace {

const std::byte* ElementOf(const void* tensor, size_t element, DType dtype) {
  return static_cast<const std::byte*>(tensor) + element * SizeOf(dtype);
}
std::byte* ElementOf(void* tensor, size_t element, DType dtype) {
  return static_cast<std::byte*>(tensor) + element * SizeOf(dtype);
}

// Returns the range of a tensor's result that this rank receives.
PartRange WantedOf(const ReduceCall& call, const Segment& segment) {
  if (DeliversAll(call)) return {.begin = 0, .count = segment.count};
  return {.begin = segment.part_begin, .count = segment.part_count};
}

}  // namespace

bool IsEmpty(const ReduceCall& call) {
  return std::all_of(call.segments.begin(), call.segments.end(),
                     [](const Segment& segment) { return segment.count == 0; });
}

void FillPacked(const ReduceCall& call, const WirePlan& plan, const WirePlan::Chunk& chunk, PackSegments* segments) {
  const bool rounds = IsNarrowed(call.dtype, call.wire);
  segments->clear();
  for (int region = 0; region < plan.regions(); ++region) {
    plan.ForEachPiece(chunk, region, [&](const WirePlan::Piece& piece) {
      const Segment& segment = call.segments[piece.tensor];
      segments->push_back({.input = ElementOf(segment.input, piece.begin, call.dtype),
                           .residual = rounds && segment.residual != nullptr ? segment.residual + piece.begin : nullptr,
                           .count = piece.count,
                           .offset = piece.offset});
    });
  }
}

void AddUnpacked(const ReduceCall& call, const WirePlan& plan, const WirePlan::Chunk& chunk, int region, size_t base,
                 UnpackSegments* segments) {
  plan.ForEachPiece(chunk, region, [&](const WirePlan::Piece& piece) {
    const Segment& segment = call.segments[piece.tensor];
    const PartRange wanted = WantedOf(call, segment);
    const size_t begin = std::max(piece.begin, wanted.begin);
    const size_t end = std::min(piece.begin + piece.count, wanted.begin + wanted.count);
    if (begin >= end) return;
    segments->push_back({.output = ElementOf(segment.output, begin - wanted.begin, call.dtype),
                         .count = end - begin,
                         .offset = base + piece.offset,
                         .skip = begin - piece.begin});
  });
}

}  // namespace ronda
