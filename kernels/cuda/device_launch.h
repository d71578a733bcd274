#ifndef RONDA_KERNELS_CUDA_DEVICE_LAUNCH_H_
#define RONDA_KERNELS_CUDA_DEVICE_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device_block.h"
#include "kernels/cuda/tiling.h"

namespace ronda::kernels::cuda {

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
    // Rather than <<<>>>: its errors are this launch's, and no call before it is blamed for them, or blames.
    return cudaLaunchKernel(reinterpret_cast<const void*>(&BodyKernel<Body>), dim3(blocks), dim3(kThreads), parameters,
                            0, stream);
  }

  cudaStream_t stream;
};

// Loads the kernels of bodies onto the current device, and runs nothing. `*error` is the first failure.
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
