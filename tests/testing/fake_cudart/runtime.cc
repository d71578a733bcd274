// SPDX-License-Identifier: Apache-2.0

// libcudart.so.13 for PyTorch's CUDA build on a machine without a GPU. Memory, copies, streams and events are those of
// tests/testing/fake_cuda. Kernels are counted and dropped, except PyTorch's own sleep, which keeps its stream busy.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "tests/testing/fake_cudart/fake_device.h"
#include "tests/testing/fake_cudart/waiting.h"

namespace {

using ronda::testing::FakeDevices;
using ronda::testing::HostMemory;
using ronda::testing::WaitForStream;

constexpr int kVersion = 13000;

thread_local cudaError_t last_error = cudaSuccess;

const ronda_cuda_plugin& Table() { return *FakeDevices::Get().table; }

cudaError_t Result(int error) {
  if (error != cudaSuccess) last_error = static_cast<cudaError_t>(error);
  return static_cast<cudaError_t>(error);
}

// The fake has one default stream per device; CUDA has names for its two kinds.
void* Handle(cudaStream_t stream) {
  return stream == cudaStreamLegacy || stream == cudaStreamPerThread ? nullptr : stream;
}

int CurrentDevice() {
  int device = 0;
  Table().current_device(&device);
  return device;
}

size_t MemoryBytes(int device) {
  ronda_cuda_device description{};
  return Table().describe(device, &description) == cudaSuccess ? description.memory_bytes : 0;
}

bool IsPageable(const void* address) {
  int device = -1;
  Table().device_of(address, &device);
  return device < 0 && !HostMemory::IsPinned(address);
}

// If the host may overwrite memory after the call, the call reads it first. If the host may read memory, the data is
// there when the call ends.
int Copy(void* dst, const void* src, size_t bytes, void* stream) {
  if (bytes == 0) return cudaSuccess;
  const FakeDevices& devices = FakeDevices::Get();
  if (!IsPageable(dst) && !IsPageable(src)) return Table().copy(dst, src, bytes, stream);
  if (IsPageable(dst)) {
    const void* const from = devices.view(src);
    const int error = devices.Enqueue(stream, [=] { std::memcpy(dst, from, bytes); });
    return error == cudaSuccess ? WaitForStream(stream) : error;
  }
  auto content = std::make_shared<std::string>(static_cast<const char*>(src), bytes);
  return devices.Enqueue(stream, [=, to = devices.view(dst)] { std::memcpy(to, content->data(), content->size()); });
}

int Fill(void* dst, int value, size_t bytes, void* stream) {
  if (value == 0) return Table().fill_zero(dst, bytes, stream);
  const FakeDevices& devices = FakeDevices::Get();
  return devices.Enqueue(stream, [=, to = devices.view(dst)] { std::memset(to, value, bytes); });
}

}  // namespace

// -- Devices --

EXPORTED cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaGetDeviceCount(int* count) { return Result(Table().device_count(count)); }
EXPORTED cudaError_t cudaGetDevice(int* device) { return Result(Table().current_device(device)); }
EXPORTED cudaError_t cudaSetDevice(int device) { return Result(Table().use_device(device)); }

EXPORTED cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  ronda_cuda_device description{};
  if (const int error = Table().describe(device, &description); error != cudaSuccess) return Result(error);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "%s", description.name);
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  properties->major = description.capability_major;
  properties->minor = description.capability_minor;
  properties->multiProcessorCount = description.multiprocessors;
  properties->totalGlobalMem = description.memory_bytes;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->regsPerBlock = 65536;
  properties->regsPerMultiprocessor = 65536;
  properties->sharedMemPerBlock = size_t{48} << 10;
  properties->sharedMemPerBlockOptin = size_t{227} << 10;
  properties->sharedMemPerMultiprocessor = size_t{228} << 10;
  for (int& size : properties->maxThreadsDim) size = 1024;
  for (int& size : properties->maxGridSize) size = 65535;
  properties->maxGridSize[0] = 2147483647;
  properties->unifiedAddressing = 1;
  properties->concurrentKernels = 1;
  properties->pciBusID = device;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      break;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      break;
    default:
      *value = 0;  // not available
  }
  return cudaSuccess;
}

EXPORTED cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  ronda_cuda_device description{};
  if (const int error = Table().describe(device, &description); error != cudaSuccess) return Result(error);
  std::snprintf(text, static_cast<size_t>(size), "%s", description.pci_bus);
  return cudaSuccess;
}

EXPORTED cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaDeviceSynchronize() {
  FakeDevices::Get().wait_for_device();
  return cudaSuccess;
}

EXPORTED cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaProfilerStart() { return cudaSuccess; }
EXPORTED cudaError_t cudaProfilerStop() { return cudaSuccess; }

// -- Errors --

EXPORTED cudaError_t cudaPeekAtLastError() { return last_error; }
EXPORTED cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
EXPORTED const char* cudaGetErrorString(cudaError_t error) {
  thread_local char text[256];
  if (error == cudaErrorNotSupported) return "the fake CUDA runtime lacks this function";
  Table().error_text(error, text, sizeof(text));
  return text;
}
EXPORTED const char* cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }

// -- Memory --

EXPORTED cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return Result(Table().allocate(RONDA_CUDA_DEVICE_MEMORY, bytes, memory));
}

EXPORTED cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  // The memory's device may differ from the thread's.
  int device = 0;
  Table().device_of(memory, &device);
  const int before = CurrentDevice();
  Table().restore_device(device);
  const int error = Table().release(RONDA_CUDA_DEVICE_MEMORY, memory);
  Table().restore_device(before);
  return Result(error);
}

EXPORTED cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned int) {
  const int error = Table().allocate(RONDA_CUDA_PINNED_HOST_MEMORY, bytes, memory);
  if (error == cudaSuccess) HostMemory::Add(*memory, bytes);
  return Result(error);
}

EXPORTED cudaError_t cudaMallocHost(void** memory, size_t bytes) { return cudaHostAlloc(memory, bytes, 0); }

EXPORTED cudaError_t cudaFreeHost(void* memory) {
  HostMemory::Remove(memory);
  return Result(Table().release(RONDA_CUDA_PINNED_HOST_MEMORY, memory));
}

EXPORTED cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* all_bytes) {
  *free_bytes = *all_bytes = MemoryBytes(CurrentDevice());
  return cudaSuccess;
}

EXPORTED cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  int device = -1;
  if (const int error = Table().device_of(pointer, &device); error != cudaSuccess) return Result(error);
  *attributes = {};
  attributes->device = device;
  attributes->type = device >= 0                     ? cudaMemoryTypeDevice
                     : HostMemory::IsPinned(pointer) ? cudaMemoryTypeHost
                                                     : cudaMemoryTypeUnregistered;
  if (attributes->type == cudaMemoryTypeUnregistered) return cudaSuccess;
  attributes->devicePointer = const_cast<void*>(pointer);
  if (device < 0) attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

EXPORTED cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return Result(Copy(dst, src, bytes, Handle(stream)));
}

EXPORTED cudaError_t cudaMemcpyPeerAsync(void* dst, int, const void* src, int, size_t bytes, cudaStream_t stream) {
  const FakeDevices& devices = FakeDevices::Get();
  return Result(devices.Enqueue(
      Handle(stream), [=, to = devices.view(dst), from = devices.view(src)] { std::memcpy(to, from, bytes); }));
}

EXPORTED cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind) {
  const int error = Copy(dst, src, bytes, nullptr);
  return Result(error == cudaSuccess ? WaitForStream(nullptr) : error);
}

EXPORTED cudaError_t cudaMemsetAsync(void* dst, int value, size_t bytes, cudaStream_t stream) {
  return Result(Fill(dst, value, bytes, Handle(stream)));
}

EXPORTED cudaError_t cudaMemset(void* dst, int value, size_t bytes) { return Result(Fill(dst, value, bytes, nullptr)); }

// -- Streams --

EXPORTED cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int, int) {
  void* made = nullptr;
  const int error = Table().create_stream(&made);
  *stream = static_cast<cudaStream_t>(made);
  return Result(error);
}
EXPORTED cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
EXPORTED cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
EXPORTED cudaError_t cudaStreamDestroy(cudaStream_t stream) { return Result(Table().destroy_stream(stream)); }
EXPORTED cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return Result(WaitForStream(Handle(stream))); }

EXPORTED cudaError_t cudaStreamQuery(cudaStream_t stream) {
  int is_idle = 0;
  const int error = FakeDevices::Get().is_idle(Handle(stream), &is_idle);
  return Result(error != cudaSuccess || is_idle != 0 ? error : int{cudaErrorNotReady});
}

EXPORTED cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  return Result(Table().wait_event(Handle(stream), event));
}

EXPORTED cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* context) {
  return Result(FakeDevices::Get().Enqueue(Handle(stream), [=] { function(context); }));
}
EXPORTED cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* context,
                                           unsigned int) {
  return Result(FakeDevices::Get().Enqueue(Handle(stream), [=] { function(stream, cudaSuccess, context); }));
}

EXPORTED cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long*,
                                              cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                              size_t*) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

// -- Events --

EXPORTED cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  void* made = nullptr;
  const int error = Table().create_event((flags & cudaEventDisableTiming) == 0 ? 1 : 0, &made);
  *event = static_cast<cudaEvent_t>(made);
  return Result(error);
}
EXPORTED cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
EXPORTED cudaError_t cudaEventDestroy(cudaEvent_t event) { return Result(Table().destroy_event(event)); }
EXPORTED cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Result(Table().record_event(event, Handle(stream)));
}
EXPORTED cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int) {
  return cudaEventRecord(event, stream);
}
EXPORTED cudaError_t cudaEventQuery(cudaEvent_t event) {
  int is_done = 0;
  const int error = Table().query_event(event, &is_done);
  return Result(error != cudaSuccess || is_done != 0 ? error : int{cudaErrorNotReady});
}
EXPORTED cudaError_t cudaEventSynchronize(cudaEvent_t event) { return Result(Table().synchronize_event(event)); }
EXPORTED cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  return Result(Table().elapsed_ms(begin, end, ms));
}
