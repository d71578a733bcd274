// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/packing/wire_plan.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/logging.h"

namespace ronda {
namespace {

constexpr size_t kAccessBytes = 16;
// Tensors are not packed by member if that takes more pieces than this, because each piece needs an entry in a kernel's
// table.
constexpr size_t kMostPieces = 4096;

constexpr size_t RoundUp(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

void WirePlan::Begin(const ReduceCall& call) {
  layout_ = LayoutOf(call.dtype, call.wire);
  unit_ = std::lcm(kAccessBytes, layout_.granule_bytes);
  pieces_.clear();
  ends_.clear();
}

void WirePlan::Add(size_t tensor, size_t begin, size_t count, size_t* end) {
  if (count == 0) return;
  pieces_.push_back({.tensor = tensor, .begin = begin, .count = count, .offset = *end});
  *end += RoundUp(BytesOf(pieces_.back()), unit_);
}

void WirePlan::Lay(const ReduceCall& call, size_t chunk_bytes) {
  Begin(call);
  region_bytes_ = 0;
  for (size_t i = 0; i < call.segments.size(); ++i) Add(i, 0, call.segments[i].count, &region_bytes_);
  ends_.push_back(pieces_.size());
  SetChunks(chunk_bytes);
}

void WirePlan::LayByMember(const ReduceCall& call, size_t chunk_bytes, int members) {
  Begin(call);
  if (!LayRegions(call, members)) return Lay(call, chunk_bytes);
  SetChunks(chunk_bytes);
}

bool WirePlan::LayRegions(const ReduceCall& call, int members) {
  // If granules have several elements, a part may begin inside a granule, which two members would then need.
  if (call.part_of == nullptr || members == 1 || layout_.granule_elements != 1) return false;
  if (call.segments.size() * static_cast<size_t>(members) > kMostPieces) return false;
  region_bytes_ = 0;
  size_t wanted = 0;
  for (int member = 0; member < members; ++member) {
    size_t end = 0;
    for (size_t i = 0; i < call.segments.size(); ++i) {
      const PartRange part = (*call.part_of)(i, member);
      RONDA_CHECK(part.begin <= call.segments[i].count && part.count <= call.segments[i].count - part.begin);
      Add(i, part.begin, part.count, &end);
      wanted += part.count;
    }
    ends_.push_back(pieces_.size());
    region_bytes_ = std::max(region_bytes_, end);
  }
  // An allreduce sends every byte twice, and a reduce-scatter sends it once.
  const size_t total = wanted * layout_.granule_bytes + static_cast<size_t>(members) * unit_;
  return region_bytes_ * static_cast<size_t>(members) <= 2 * total;
}

void WirePlan::SetChunks(size_t chunk_bytes) {
  const size_t of_region = chunk_bytes / ends_.size() / unit_ * unit_;
  chunk_bytes_ = std::max(of_region, unit_);
}

kernels::cuda::Wire WirePlan::wire() const {
  using Blocks = kernels::cuda::Wire::Blocks;
  if (!layout_.fp8.has_value()) return {.dtype = layout_.dtype};
  return {.dtype = layout_.dtype, .blocks = *layout_.fp8 == kernels::Fp8Format::kE4M3 ? Blocks::kE4M3 : Blocks::kE5M2};
}

size_t WirePlan::BytesOf(const Piece& piece) const {
  return (piece.count + layout_.granule_elements - 1) / layout_.granule_elements * layout_.granule_bytes;
}

WirePlan::Chunk WirePlan::ChunkOf(size_t i) const {
  const size_t begin = i * chunk_bytes_;
  return {.begin = begin, .bytes = std::min(chunk_bytes_, region_bytes_ - begin)};
}

WirePlan::Piece WirePlan::Cut(const Piece& piece, const Chunk& chunk, size_t in_buffer) const {
  const size_t begin = std::max(piece.offset, chunk.begin);
  const size_t end = std::min(piece.offset + BytesOf(piece), chunk.begin + chunk.bytes);
  const auto elements = [&](size_t bytes) { return bytes / layout_.granule_bytes * layout_.granule_elements; };
  const size_t skipped = elements(begin - piece.offset);
  return {.tensor = piece.tensor,
          .begin = piece.begin + skipped,
          .count = std::min(elements(end - begin), piece.count - skipped),
          .offset = in_buffer + begin - chunk.begin};
}

size_t WirePlan::ShardBytes(const Chunk& chunk, int n) const {
  const auto shards = static_cast<size_t>(n);
  return RoundUp((BytesOf(chunk) + shards - 1) / shards, unit_);
}

WirePlan::Range WirePlan::ShardOf(const Chunk& chunk, int i, int n) const {
  const size_t begin = std::min(BytesOf(chunk), ShardBytes(chunk, n) * static_cast<size_t>(i));
  return {.begin = begin, .bytes = std::min(ShardBytes(chunk, n), BytesOf(chunk) - begin)};
}

}  // namespace ronda
