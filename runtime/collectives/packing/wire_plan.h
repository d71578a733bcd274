// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_PACKING_WIRE_PLAN_H_
#define RONDA_RUNTIME_COLLECTIVES_PACKING_WIRE_PLAN_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/cuda/calls.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda {

// The offsets of a reduction's tensors in the fusion buffer, and the chunks in which it is sent.
//
// Usually the buffer is one region. If every member receives a different part of the result, the buffer can have one
// region per member, all of the same length. Region m contains the elements of all tensors that member m receives. Each
// piece of a tensor starts a new granule, at an address that suits the device's kernels. A chunk contains the same
// range of every region.
//
// A WirePlan can be reused for each call, and keeps its memory.
class WirePlan {
 public:
  // Consecutive elements of a tensor.
  struct Piece {
    size_t tensor;  // which segment
    size_t begin;   // the first element's index in the tensor
    size_t count;   // elements
    size_t offset;  // bytes from the start of the region (in the plan) or of the buffer (in a chunk)
  };
  // The range of bytes of each region in the chunk.
  struct Chunk {
    size_t begin = 0;
    size_t bytes = 0;
  };

  // Lays the buffer out as one region. A chunk has at most `chunk_bytes`, but at least one unit().
  void Lay(const ReduceCall& call, size_t chunk_bytes);

  // Lays the buffer out as one region per member, if this is possible and sends no more bytes than one region would.
  // Otherwise does the same as Lay(). All members make the same choice.
  void LayByMember(const ReduceCall& call, size_t chunk_bytes, int members);

  const WireLayout& layout() const { return layout_; }
  kernels::cuda::Wire wire() const;

  int regions() const { return static_cast<int>(ends_.size()); }
  // Returns the total size of all regions in bytes, a multiple of unit().
  size_t bytes() const { return region_bytes_ * ends_.size(); }
  // Returns the alignment, in bytes, of tensors and of the boundaries of chunks and shards: a multiple of 16 and of the
  // granule size.
  size_t unit() const { return unit_; }

  size_t chunks() const { return (region_bytes_ + chunk_bytes_ - 1) / chunk_bytes_; }
  Chunk ChunkOf(size_t i) const;
  // Returns the total size of a chunk in all regions, in bytes.
  size_t BytesOf(const Chunk& chunk) const { return chunk.bytes * ends_.size(); }

  // Calls visit(piece) for each piece of `region` in a chunk.
  template <typename Visit>
  void ForEachPiece(const Chunk& chunk, int region, const Visit& visit) const {
    const size_t first = region == 0 ? 0 : ends_[static_cast<size_t>(region) - 1];
    const auto end = pieces_.begin() + static_cast<ptrdiff_t>(ends_[static_cast<size_t>(region)]);
    auto piece = std::partition_point(pieces_.begin() + static_cast<ptrdiff_t>(first), end,
                                      [&](const Piece& at) { return at.offset + BytesOf(at) <= chunk.begin; });
    const size_t in_buffer = chunk.bytes * static_cast<size_t>(region);
    for (; piece != end && piece->offset < chunk.begin + chunk.bytes; ++piece) visit(Cut(*piece, chunk, in_buffer));
  }

  // Returns shard `i` of `n` of a chunk's buffer. All shards have the same size, except that the last ones may be
  // shorter or empty. If there are `n` regions, each region is a shard.
  struct Range {
    size_t begin;
    size_t bytes;
  };
  Range ShardOf(const Chunk& chunk, int i, int n) const;
  size_t ShardBytes(const Chunk& chunk, int n) const;

 private:
  void Begin(const ReduceCall& call);
  // Adds a piece to the last region, which ends at `*end`.
  void Add(size_t tensor, size_t begin, size_t count, size_t* end);
  // Lays out one region per member. Returns false if this is impossible, or would send more bytes than one region
  // would.
  bool LayRegions(const ReduceCall& call, int members);
  void SetChunks(size_t chunk_bytes);
  size_t BytesOf(const Piece& piece) const;
  Piece Cut(const Piece& piece, const Chunk& chunk, size_t in_buffer) const;

  WireLayout layout_ = {};
  size_t unit_ = 1;
  size_t region_bytes_ = 0;
  size_t chunk_bytes_ = 1;     // of each region
  std::vector<Piece> pieces_;  // by region, in order
  std::vector<size_t> ends_;   // the end of each region's pieces
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_PACKING_WIRE_PLAN_H_
