// SPDX-License-Identifier: Apache-2.0

// libcuda.so.1 beside the fake libcudart.so.13: the functions that PyTorch calls in the driver directly. All others
// return "not supported" (refused_driver.cc).
#include <cuda.h>

#include "tests/testing/fake_cudart/fake_device.h"

namespace {

using ronda::testing::FakeDevices;

}  // namespace

EXPORTED CUresult cuInit(unsigned int) { return CUDA_SUCCESS; }

EXPORTED CUresult cuDeviceGet(CUdevice* device, int number) {
  *device = number;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* is_active) {
  *flags = 0;
  *is_active = FakeDevices::Get().has_context(device);
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "the fake CUDA driver lacks this function";
  return CUDA_SUCCESS;
}
