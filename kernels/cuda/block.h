// How the code of a kernel is cut up, so that a GPU and a CPU can run the same.
//
// A kernel is a *body*: a struct with the launch's parameters, whose
//
//   template <class Block> RONDA_HOST_DEVICE void operator()(Block& block) const
//
// is what one block of a grid does. It consists of steps that every thread (or, in a warp, every lane) takes before any
// takes the next: ForEachThread runs a step, on a GPU with this thread's number, on the CPU with one after the other.
// What a thread keeps from step to step is in a PerThread or PerLane. A block has
//
//   index(), grid()           which block this is, of how many
//   ForEachThread(step)       step(thread) for thread in [0, kThreads)
//   ForEachWarp(step)         step(warp, index) for index in [0, kWarps)
//   Any(of)                   whether of(thread) is true for any thread
//   Total(of)                 of(thread) of all threads, doubles, added pairwise
//   Publish(word, value)      stores what the host may be waiting for
//
// and a warp
//
//   PerLane<T>, ForEachLane(step), Max(of).
//
// This is the CPU's; device_block.cuh has the GPU's.
#ifndef RONDA_KERNELS_CUDA_BLOCK_H_
#define RONDA_KERNELS_CUDA_BLOCK_H_

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/host_device.h"
#include "kernels/cuda/tiling.h"

namespace ronda::kernels::cuda {

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
  bool Any(const Of& of) const {
    bool any = false;
    for (int thread = 0; thread < kThreads; ++thread) any |= of(thread);
    return any;
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

  void Publish(uint32_t* word, uint32_t value) const { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

 private:
  const uint32_t index_;
  const uint32_t grid_;
};

// Calls `load(i)`, then `store(i, what was loaded)` for each i in [begin, end) that is a multiple of kStep from
// `begin`; a thread has kAhead loads under way before it stores.
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
