// SPDX-License-Identifier: Apache-2.0

// Divides tensors into tiles, and defines the thread blocks that work on them.
#ifndef RONDA_KERNELS_CUDA_BLOCK_H_
#define RONDA_KERNELS_CUDA_BLOCK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/elements.h"

namespace ronda::kernels::cuda {

// The number of threads per block. A warp has 32 threads.
inline constexpr int kThreads = 256;
// The number of accesses per thread and tile, to the source or the destination, whichever has the wider elements. They
// are all in flight at the same time, which hides the memory latency.
inline constexpr int kAccessesInFlight = 4;

// The number of blocks that must fit on a multiprocessor at the same time: enough to keep the memory busy, and few
// enough that each thread has registers for its accesses in flight. Bodies that hold two or three vectors for each
// vector that they load set a number of their own (Body::kBlocksAtOnce). With fewer registers they would spill to
// memory, for which a launch may have to wait.
inline constexpr int kBlocksAtOnceIfSmall = 4;
inline constexpr int kBlocksAtOnceIfLarge = 3;

// Returns the number of elements per tile if the widest element has `bytes` bytes.
constexpr uint32_t TileElements(size_t bytes) {
  return static_cast<uint32_t>(kThreads * kAccessesInFlight * kAccessBytes / bytes);
}

// Returns the number of tiles for `count` elements. The last tile may be partly filled.
RONDA_HOST_DEVICE constexpr uint64_t TileCount(uint64_t count, uint64_t tile_elements) {
  return (count + tile_elements - 1) / tile_elements;
}

// The maximum number of blocks, and therefore of tiles, per launch.
inline constexpr uint64_t kMaxTiles = 0x7FFFFFFF;
// The maximum size of a launch's parameters, which are passed by value, since CUDA 12.1.
inline constexpr size_t kMaxParameterBytes = 32764;
// The maximum number of segments per launch: enough for BERT-large, which has 398 gradients. More would fit, but each
// launch copies all parameters, including unused segments. So kernels for gradients are compiled for two numbers of
// segments: kFewSegments for a bucket of a backward pass, and kMaxSegments for a whole model.
inline constexpr int kMaxSegments = 448;
inline constexpr int kFewSegments = 64;

// Up to `kCapacity` segments (tensors) as one sequence of tiles, which the blocks of a grid share evenly, whatever the
// sizes of the segments. It is passed to the kernel by value, so the host need not copy it to the device, free it or
// wait for it.
template <class Segment, int kCapacity = kMaxSegments>
class Tiling {
 public:
  // Tile `index` of segment `segment`.
  struct Position {
    int segment;
    uint32_t index;
  };

  // Returns whether a segment with `tiles` tiles still fits.
  bool Fits(uint64_t tiles) const { return count_ < kCapacity && tiles <= kMaxTiles - tiles_; }

  // REQUIRES: `tiles` > 0, and Fits(tiles).
  void Add(const Segment& segment, uint64_t tiles) {
    segments_[count_] = segment;
    first_tiles_[count_] = tiles_;
    ++count_;
    tiles_ += static_cast<uint32_t>(tiles);
  }

  RONDA_HOST_DEVICE int count() const { return count_; }
  RONDA_HOST_DEVICE uint32_t tiles() const { return tiles_; }
  RONDA_HOST_DEVICE const Segment& segment(int index) const { return segments_[index]; }

  // REQUIRES: `tile` < tiles().
  RONDA_HOST_DEVICE Position Find(uint32_t tile) const {
    int low = 0;
    int high = count_;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first_tiles_[middle] <= tile) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return {low, tile - first_tiles_[low]};
  }

 private:
  int count_ = 0;
  uint32_t tiles_ = 0;
  // Only the first count_ entries are valid. Clearing the others would take as long as the rest of a launch.
  uint32_t first_tiles_[kCapacity];
  Segment segments_[kCapacity];
};

// Distributes `count` segments over as few tilings as possible, and calls `run(tiling)` for each. `describe(index,
// segment)` fills in a segment and returns its number of tiles. Stops at the first error.
template <class Segment, int kCapacity = kMaxSegments, class Describe, class Run>
int ForTilings(int count, const Describe& describe, const Run& run) {
  int next = 0;
  while (next < count) {
    Tiling<Segment, kCapacity> tiling;
    for (; next < count; ++next) {
      Segment segment;
      const uint64_t tiles = describe(next, segment);
      if (tiles > kMaxTiles) return kInvalidCall;
      if (tiles == 0) continue;
      if (!tiling.Fits(tiles)) break;
      tiling.Add(segment, tiles);
    }
    const int error = tiling.tiles() == 0 ? 0 : run(tiling);
    if (error != 0) return error;
  }
  return 0;
}

// Kernels are divided into steps, so that a GPU and a CPU can run the same code.
//
// A kernel is a *body*: a struct with the parameters of a launch. Its
//
//   template <class Block> RONDA_HOST_DEVICE void operator()(Block& block) const
//
// is the work of one block of a grid, in steps. Every thread (or, in a warp, every lane) finishes a step before any
// thread begins the next one. ForEachThread runs a step: on a GPU for this thread, on the CPU for all threads one after
// the other. A PerThread or PerLane holds the values that threads keep between steps. A block has
//
//   index(), grid()           the number of this block, and of all blocks
//   ForEachThread(step)       step(thread) for thread in [0, kThreads)
//   ForEachWarp(step)         step(warp, index) for index in [0, kWarps)
//   Total(of)                 the sum of of(thread) over all threads, as doubles, added pairwise
//
// and a warp
//
//   PerLane<T>, ForEachLane(step), Max(of).
//
// This file has the CPU's block and warp; those of a GPU are in device_launch.h.

inline constexpr int kLanes = 32;
inline constexpr int kWarps = kThreads / kLanes;

class HostWarp {
 public:
  template <class T>
  using PerLane = T[kLanes];

  template <class Step>
  void ForEachLane(const Step& step) const {
    for (int lane = 0; lane < kLanes; ++lane) step(lane);
  }

  template <class Of>
  uint32_t Max(const Of& of) const {
    uint32_t largest = 0;
    for (int lane = 0; lane < kLanes; ++lane) largest = std::max(largest, of(lane));
    return largest;
  }
};

class HostBlock {
 public:
  template <class T>
  using PerThread = T[kThreads];

  HostBlock(uint32_t index, uint32_t grid) : index_(index), grid_(grid) {}

  uint32_t index() const { return index_; }
  uint32_t grid() const { return grid_; }

  template <class Step>
  void ForEachThread(const Step& step) const {
    for (int thread = 0; thread < kThreads; ++thread) step(thread);
  }

  template <class Step>
  void ForEachWarp(const Step& step) const {
    const HostWarp warp;
    for (int index = 0; index < kWarps; ++index) step(warp, index);
  }

  template <class Of>
  double Total(const Of& of) const {
    double sums[kThreads];
    for (int thread = 0; thread < kThreads; ++thread) sums[thread] = of(thread);
    for (int half = kThreads / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    return sums[0];
  }

 private:
  const uint32_t index_;
  const uint32_t grid_;
};

// Calls `load(i)`, then `store(i, loaded value)`, for every kStep-th i in [begin, end), starting at `begin`. A thread
// starts kAhead loads before its first store.
template <int kStep, int kAhead = kAccessesInFlight, class Block, class Load, class Store>
RONDA_HOST_DEVICE inline void ForBatches(const Block& block, uint32_t begin, uint32_t end, const Load& load,
                                         const Store& store) {
  block.ForEachThread([&](int thread) {
    constexpr uint32_t kStride = kThreads * kStep;
    for (uint32_t at = begin + thread * kStep; at < end; at += kAhead * kStride) {
      decltype(load(at)) loaded[kAhead];
      for (int i = 0; i < kAhead; ++i) {
        if (at + i * kStride < end) loaded[i] = load(at + i * kStride);
      }
      for (int i = 0; i < kAhead; ++i) {
        if (at + i * kStride < end) store(at + i * kStride, loaded[i]);
      }
    }
  });
}

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_BLOCK_H_
