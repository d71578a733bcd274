// SPDX-License-Identifier: Apache-2.0

// Divides tensors into tiles, and defines the blocks of threads that work on the tiles.
#ifndef RONDA_KERNELS_CUDA_BLOCK_H_
#define RONDA_KERNELS_CUDA_BLOCK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/elements.h"

namespace ronda::kernels::cuda {

// The number of threads of one block of a grid. A warp has 32 threads.
inline constexpr int kThreads = 256;
// The number of accesses of each thread to a tile, counted for the source or the destination, whichever has the wider
// elements. All these accesses are in flight together, which hides the latency of memory.
inline constexpr int kAccessesInFlight = 4;

// The number of blocks that must fit on a multiprocessor together. The threads of so many blocks keep the memory busy,
// and each thread has registers for its accesses in flight. Bodies that hold two or three vectors for each vector that
// they load set their own number (Body::kBlocksAtOnce). With fewer registers these bodies would spill registers to
// memory, and a launch may have to wait for this memory.
inline constexpr int kBlocksAtOnceIfSmall = 4;
inline constexpr int kBlocksAtOnceIfLarge = 3;

// Returns the number of elements of a tile whose widest element has `bytes` bytes.
constexpr uint32_t TileElements(size_t bytes) {
  return static_cast<uint32_t>(kThreads * kAccessesInFlight * kAccessBytes / bytes);
}

// Returns the number of tiles for `count` elements. The last tile may be only partly full.
RONDA_HOST_DEVICE constexpr uint64_t TileCount(uint64_t count, uint64_t tile_elements) {
  return (count + tile_elements - 1) / tile_elements;
}

// The largest number of blocks, and therefore of tiles, in a launch.
inline constexpr uint64_t kMaxTiles = 0x7FFFFFFF;
// The largest size of the parameters of a launch, which are passed by value, from CUDA 12.1 on.
inline constexpr size_t kMaxParameterBytes = 32764;
// The largest number of segments in a launch. It is enough for BERT-large, which has 398 gradients. More segments would
// fit, but each launch copies all parameters of a kernel, including unused segments. So the kernels of gradients are
// compiled for two numbers of segments: kFewSegments for a bucket of a backward pass, and kMaxSegments for a whole
// model.
inline constexpr int kMaxSegments = 448;
inline constexpr int kFewSegments = 64;

// Holds up to `kCapacity` segments (tensors) as one sequence of tiles. The blocks of a grid share the tiles evenly, for
// any sizes of the segments. The device gets the tiling by value, as a parameter of the kernel, so the host need not
// copy it to the device, free it or wait for it.
template <class Segment, int kCapacity = kMaxSegments>
class Tiling {
 public:
  // Names a tile: it is tile `index` of segment `segment`.
  struct Position {
    int segment;
    uint32_t index;
  };

  // Returns whether a segment of `tiles` tiles still fits.
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
  // Only the first count_ entries are valid. The constructor does not clear the other entries, because that would take
  // as long as the rest of a launch.
  uint32_t first_tiles_[kCapacity];
  Segment segments_[kCapacity];
};

// Fills tilings with `count` segments: `describe(index, segment)` fills in a segment and returns its number of tiles.
// Calls `run(tiling)` for each tiling, with as few tilings as possible. Stops at the first error.
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

// Divides the code of a kernel into steps, so that a GPU and a CPU can run the same code.
//
// A kernel is a *body*: a struct that holds the parameters of a launch. Its
//
//   template <class Block> RONDA_HOST_DEVICE void operator()(Block& block) const
//
// is the work of one block of a grid. The work consists of steps. Every thread (or, in a warp, every lane) finishes a
// step before any thread begins the next step. ForEachThread runs a step: on a GPU with the number of this thread, on
// the CPU with all numbers one after the other. A PerThread or PerLane holds the values that a thread keeps between
// steps. A block has
//
//   index(), grid()           the number of this block, and of all blocks
//   ForEachThread(step)       step(thread) for thread in [0, kThreads)
//   ForEachWarp(step)         step(warp, index) for index in [0, kWarps)
//   Total(of)                 of(thread) of all threads, doubles, added pairwise
//
// and a warp
//
//   PerLane<T>, ForEachLane(step), Max(of).
//
// This file has the CPU's block and warp. The block and the warp of a GPU are in device_launch.h.

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

// For each i in [begin, end) that is a multiple of kStep from `begin`, calls `load(i)`, then `store(i, loaded value)`.
// A thread starts kAhead loads before its first store.
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
