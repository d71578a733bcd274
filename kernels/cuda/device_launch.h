#ifndef RONDA_KERNELS_CUDA_DEVICE_LAUNCH_H_
#define RONDA_KERNELS_CUDA_DEVICE_LAUNCH_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device_block.h"
#include "kernels/cuda/tiling.h"

namespace ronda::kernels::cuda {

// Blocks that a multiprocessor shall have room for: enough threads for their accesses to keep its memory busy.
inline constexpr int kBlocksAtOnce = 4;

template <class Body>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce) BodyKernel(const __grid_constant__ Body body) {
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

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_DEVICE_LAUNCH_H_
