// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_KERNELS_CUDA_DEVICE_LAUNCH_H_
#define RONDA_KERNELS_CUDA_DEVICE_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/block.h"

namespace ronda::kernels::cuda {

// The GPU's warp and block for a body (block.h). Each thread has its own part of a PerLane or PerThread.
class DeviceWarp {
 public:
  // Holds the value of this lane only.
  template <class T>
  class PerLane {
   public:
    __device__ T& operator[](int /*lane*/) { return own_; }
    __device__ const T& operator[](int /*lane*/) const { return own_; }

   private:
    T own_;
  };

  template <class Step>
  __device__ void ForEachLane(const Step& step) const {
    step(static_cast<int>(threadIdx.x % kLanes));
  }

  template <class Of>
  __device__ uint32_t Max(const Of& of) const {
    uint32_t largest = of(static_cast<int>(threadIdx.x % kLanes));
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xFFFFFFFF, largest);
#else
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      largest = max(largest, __shfl_xor_sync(0xFFFFFFFF, largest, distance));
    }
    return largest;
#endif
  }
};

class DeviceBlock {
 public:
  template <class T>
  using PerThread = DeviceWarp::PerLane<T>;

  __device__ uint32_t index() const { return blockIdx.x; }
  __device__ uint32_t grid() const { return gridDim.x; }

  template <class Step>
  __device__ void ForEachThread(const Step& step) const {
    step(static_cast<int>(threadIdx.x));
  }

  template <class Step>
  __device__ void ForEachWarp(const Step& step) const {
    step(DeviceWarp(), static_cast<int>(threadIdx.x / kLanes));
  }

  template <class Of>
  __device__ double Total(const Of& of) const {
    __shared__ double sums[kThreads];
    const auto thread = static_cast<int>(threadIdx.x);
    __syncthreads();  // all threads have read the previous totals
    sums[thread] = of(thread);
    for (int half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (thread < half) sums[thread] += sums[thread + half];
    }
    __syncthreads();
    return sums[0];
  }
};

template <class Body>
constexpr int BlocksAtOnce() {
  if constexpr (requires { Body::kBlocksAtOnce; }) return Body::kBlocksAtOnce;
  return kBlocksAtOnceIfSmall;
}

template <class Body>
__global__ void __launch_bounds__(kThreads, BlocksAtOnce<Body>()) BodyKernel(const __grid_constant__ Body body) {
  body(DeviceBlock());
}

// Runs bodies on a stream (map_launches.h).
struct DeviceLaunch {
  template <class Body>
  int operator()(const Body& body, uint32_t blocks) const {
    static_assert(sizeof(Body) <= kMaxParameterBytes);
    void* parameters[] = {const_cast<Body*>(&body)};
    // Does not use <<<>>>, because cudaLaunchKernel returns only this launch's errors, and leaves none for a later
    // call.
    return cudaLaunchKernel(reinterpret_cast<const void*>(&BodyKernel<Body>), dim3(blocks), dim3(kThreads), parameters,
                            0, stream);
  }

  cudaStream_t stream;
};

// Loads the kernels of bodies onto the current device without running them. Stores the first error in `*error`.
struct DeviceLoad {
  template <class Body>
  int operator()(const Body& /*body*/, uint32_t /*blocks*/) const {
    cudaFuncAttributes attributes;
    const cudaError_t loaded = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&BodyKernel<Body>));
    if (*error == cudaSuccess) *error = loaded;
    return 0;
  }

  cudaError_t* error;
};

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_DEVICE_LAUNCH_H_
