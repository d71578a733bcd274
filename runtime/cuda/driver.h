#ifndef RONDA_RUNTIME_CUDA_DRIVER_H_
#define RONDA_RUNTIME_CUDA_DRIVER_H_

#include <cuda.h>

namespace ronda {

// What the CUDA runtime cannot be asked without creating a context on the current device, which costs hundreds of
// megabytes there, is asked of the driver; and what it does not know.
struct CudaDriver {
  CUresult (*pointer_attribute)(void* data, CUpointer_attribute attribute, CUdeviceptr pointer);
  CUresult (*context_state)(CUdevice device, unsigned int* flags, int* active);  // of its primary context
  CUresult (*device_uuid)(CUuuid* uuid, CUdevice device);  // of a part of a GPU, the part's; nullptr: an old driver

  // nullptr where there is no driver.
  static const CudaDriver* Get();
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CUDA_DRIVER_H_
