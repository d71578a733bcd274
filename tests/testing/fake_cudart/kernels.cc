// SPDX-License-Identifier: Apache-2.0

// Registers and launches the kernels of PyTorch's libraries. Launches are ignored, because the fake devices cannot run
// these kernels. Only PyTorch's sleep (torch.cuda._sleep) has an effect.
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "tests/testing/fake_cudart/fake_device.h"

namespace {

using ronda::testing::FakeDevices;

std::atomic<uint64_t> dropped_kernels{0};

struct Launch {
  dim3 grid, block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};
thread_local Launch next_launch;

std::atomic<const void*> the_sleep{nullptr};

// Keeps the stream busy for as long as a 2 GHz GPU would take.
int Sleep(const int64_t cycles, cudaStream_t stream) {
  return FakeDevices::Get().Enqueue(stream, [=] { std::this_thread::sleep_for(std::chrono::nanoseconds(cycles / 2)); });
}

cudaError_t LaunchOrDrop(const void* function, void** arguments, cudaStream_t stream) {
  if (function != nullptr && function == the_sleep.load()) {
    return static_cast<cudaError_t>(Sleep(*static_cast<const int64_t*>(arguments[0]), stream));
  }
  dropped_kernels.fetch_add(1);
  return cudaSuccess;
}

}  // namespace

// Returns how many kernel launches have been ignored so far.
EXPORTED uint64_t fake_cudart_dropped_kernels() { return dropped_kernels.load(); }

EXPORTED void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
EXPORTED void __cudaRegisterFatBinaryEnd(void**) {}
EXPORTED void __cudaUnregisterFatBinary(void**) {}
EXPORTED void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
EXPORTED void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*,
                                     dim3*, int*) {
  if (std::string(name).find("spin_kernel") != std::string::npos) the_sleep.store(function);
}

EXPORTED unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
  next_launch = {.grid = grid, .block = block, .shared_bytes = shared_bytes, .stream = stream};
  return 0;
}
EXPORTED cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  *grid = next_launch.grid;
  *block = next_launch.block;
  *shared_bytes = next_launch.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = next_launch.stream;
  return cudaSuccess;
}

// A kernel's handle is the address of its host function.
EXPORTED cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
EXPORTED cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void** arguments, size_t,
                                        cudaStream_t stream) {
  return LaunchOrDrop(kernel, arguments, stream);
}
EXPORTED cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void** arguments, size_t, cudaStream_t stream) {
  return LaunchOrDrop(function, arguments, stream);
}
EXPORTED cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  return LaunchOrDrop(function, arguments, config->stream);
}

EXPORTED cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
EXPORTED cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 2;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t,
                                                                            unsigned int) {
  *blocks = 2;
  return cudaSuccess;
}
