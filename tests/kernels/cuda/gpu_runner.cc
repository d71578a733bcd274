// SPDX-License-Identifier: Apache-2.0

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/kernels.h"
#include "tests/kernels/cuda/runner.h"

namespace ronda::kernels::cuda {
namespace {

// Waits for the kernel to finish, and returns the device's status.
int Finished(int error) { return error != 0 ? error : static_cast<int>(cudaDeviceSynchronize()); }

}  // namespace

std::string WhyNotHere() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return absl::StrCat("no CUDA device: ", cudaGetErrorString(error));
  return devices == 0 ? "no CUDA device" : "";
}

void* AllocateShared(size_t bytes) {
  void* memory = nullptr;
  cudaMallocManaged(&memory, bytes);
  return memory;
}

void ReleaseShared(void* memory) { cudaFree(memory); }

int RunCall(const PackCall& call) { return Finished(DevicePack(call, nullptr)); }
int RunCall(const UnpackCall& call) { return Finished(DeviceUnpack(call, nullptr)); }
int RunCall(const ReduceCall& call) { return Finished(DeviceReduce(call, nullptr)); }
int RunCall(const NonFiniteCall& call) { return Finished(DeviceFindNonFinite(call, nullptr)); }
int RunCall(const AddScaledCall& call) { return Finished(DeviceAddScaled(call, nullptr)); }
int RunCall(const DotsCall& call) { return Finished(DeviceDots(call, nullptr)); }
int RunCall(const CombineCall& call) { return Finished(DeviceCombine(call, nullptr)); }

}  // namespace ronda::kernels::cuda
