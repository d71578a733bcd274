// SPDX-License-Identifier: Apache-2.0

// A libcudart.so.13 for PyTorch's CUDA build on a machine without a GPU. tests/testing/fake_cuda provides memory,
// copies, streams and events. Kernel launches are counted and ignored, except PyTorch's sleep, which keeps its stream
// busy.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tests/testing/fake_cudart/fake_device.h"
#include "tests/testing/fake_cudart/results.h"

namespace {

using ronda::testing::DefaultOr;
using ronda::testing::FakeDevices;
using ronda::testing::LastError;
using ronda::testing::Result;

constexpr int kVersion = 13000;

const ronda_cuda_plugin& Table() { return *FakeDevices::Get().table; }

// Makes a call that a capture, by this or another thread, may forbid.
template <typename Call>
cudaError_t Unsafe(const Call& call) {
  const int refused = FakeDevices::Get().begin_unsafe_call();
  return Result(refused != cudaSuccess ? refused : call());
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
  return device < 0 && FakeDevices::Get().is_pinned(address) == 0;
}

// The priorities of the streams that this runtime has created; other streams have priority 0. If a new stream reuses a
// handle, its priority replaces the old one.
class Priorities {
 public:
  static void Set(cudaStream_t stream, int priority) {
    const std::lock_guard<std::mutex> lock(mu());
    of_stream()[stream] = priority;
  }
  static int Get(cudaStream_t stream) {
    const std::lock_guard<std::mutex> lock(mu());
    const auto found = of_stream().find(stream);
    return found == of_stream().end() ? 0 : found->second;
  }

 private:
  static std::mutex& mu() {
    static auto* const mu = new std::mutex;
    return *mu;
  }
  static std::map<cudaStream_t, int>& of_stream() {
    static auto* const priorities = new std::map<cudaStream_t, int>;
    return *priorities;
  }
};

// The device addresses of registered host memory.
class RegisteredAddresses {
 public:
  static int Add(void* memory, size_t bytes) {
    void* on_device = nullptr;
    const int error = Table().register_host(memory, bytes, &on_device);
    const std::lock_guard<std::mutex> lock(mu());
    if (error == cudaSuccess) on_devices()[memory] = on_device;
    return error;
  }
  static int Remove(void* memory) {
    const std::lock_guard<std::mutex> lock(mu());
    on_devices().erase(memory);
    return Table().unregister_host(memory);
  }
  static void* Get(void* memory) {
    const std::lock_guard<std::mutex> lock(mu());
    const auto found = on_devices().find(memory);
    return found == on_devices().end() ? nullptr : found->second;
  }

 private:
  static std::mutex& mu() {
    static auto* const mu = new std::mutex;
    return *mu;
  }
  static std::map<void*, void*>& on_devices() {
    static auto* const on_devices = new std::map<void*, void*>;
    return *on_devices;
  }
};

// Waits until the stream has completed its work so far. Returns 0 or an error, as the table's functions do.
int WaitForStream(void* stream) {
  if (const int error = FakeDevices::Get().begin_wait_for_stream(stream); error != cudaSuccess) return error;
  const auto done = std::make_shared<std::promise<void>>();
  const int error = FakeDevices::Get().Enqueue(stream, [done] { done->set_value(); });
  if (error == 0) done->get_future().wait();
  return error;
}

// Copies memory. Reads pageable host memory before it returns, and has completed a copy to pageable host memory when it
// returns.
int Copy(void* dst, const void* src, size_t bytes, void* stream) {
  if (bytes == 0) return cudaSuccess;
  const FakeDevices& devices = FakeDevices::Get();
  if (!IsPageable(dst) && !IsPageable(src)) return Table().copy(dst, src, bytes, stream);
  if (const int error = devices.begin_wait_for_stream(stream); error != cudaSuccess) return error;
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
  std::sscanf(description.pci_bus, "%*x:%x", reinterpret_cast<unsigned*>(&properties->pciBusID));
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
  return Unsafe([] {
    FakeDevices::Get().wait_for_device();
    return cudaSuccess;
  });
}

EXPORTED cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaProfilerStart() { return cudaSuccess; }
EXPORTED cudaError_t cudaProfilerStop() { return cudaSuccess; }

// -- Errors --

EXPORTED cudaError_t cudaPeekAtLastError() { return static_cast<cudaError_t>(LastError()); }
EXPORTED cudaError_t cudaGetLastError() { return static_cast<cudaError_t>(std::exchange(LastError(), 0)); }
EXPORTED const char* cudaGetErrorString(cudaError_t error) {
  thread_local char text[256];
  if (error == cudaErrorNotSupported) return "the fake CUDA runtime lacks this function";
  Table().error_text(error, text, sizeof(text));
  return text;
}
EXPORTED const char* cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }

// -- Memory --

EXPORTED cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return Unsafe([=] { return Table().allocate(RONDA_CUDA_DEVICE_MEMORY, bytes, memory); });
}

EXPORTED cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  if (const int refused = FakeDevices::Get().begin_unsafe_call(); refused != cudaSuccess) return Result(refused);
  // The memory may be on a device other than the thread's current device.
  int device = 0;
  Table().device_of(memory, &device);
  const int before = CurrentDevice();
  Table().restore_device(device);
  const int error = Table().release(RONDA_CUDA_DEVICE_MEMORY, memory);
  Table().restore_device(before);
  return Result(error);
}

EXPORTED cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned int) {
  return Unsafe([=] { return Table().allocate(RONDA_CUDA_PINNED_HOST_MEMORY, bytes, memory); });
}

EXPORTED cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned int) {
  return Unsafe([=] { return RegisteredAddresses::Add(memory, bytes); });
}
EXPORTED cudaError_t cudaHostUnregister(void* memory) {
  return Unsafe([=] { return RegisteredAddresses::Remove(memory); });
}
EXPORTED cudaError_t cudaHostGetDevicePointer(void** on_device, void* memory, unsigned int) {
  *on_device = RegisteredAddresses::Get(memory);
  return Result(*on_device == nullptr ? cudaErrorInvalidValue : cudaSuccess);
}

EXPORTED cudaError_t cudaMallocHost(void** memory, size_t bytes) { return cudaHostAlloc(memory, bytes, 0); }

EXPORTED cudaError_t cudaFreeHost(void* memory) {
  return Unsafe([=] { return Table().release(RONDA_CUDA_PINNED_HOST_MEMORY, memory); });
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
  const bool is_pinned = FakeDevices::Get().is_pinned(pointer) != 0;
  attributes->type = device >= 0 ? cudaMemoryTypeDevice : is_pinned ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  if (attributes->type == cudaMemoryTypeUnregistered) return cudaSuccess;
  attributes->devicePointer = const_cast<void*>(pointer);
  if (device < 0) attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

EXPORTED cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return Result(Copy(dst, src, bytes, DefaultOr(stream)));
}

EXPORTED cudaError_t cudaMemcpyPeerAsync(void* dst, int, const void* src, int, size_t bytes, cudaStream_t stream) {
  const FakeDevices& devices = FakeDevices::Get();
  return Result(devices.Enqueue(
      DefaultOr(stream), [=, to = devices.view(dst), from = devices.view(src)] { std::memcpy(to, from, bytes); }));
}

EXPORTED cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind) {
  return Unsafe([=] {
    const int error = Copy(dst, src, bytes, nullptr);
    return error == cudaSuccess ? WaitForStream(nullptr) : error;
  });
}

EXPORTED cudaError_t cudaMemsetAsync(void* dst, int value, size_t bytes, cudaStream_t stream) {
  return Result(Fill(dst, value, bytes, DefaultOr(stream)));
}

EXPORTED cudaError_t cudaMemset(void* dst, int value, size_t bytes) {
  return Unsafe([=] { return Fill(dst, value, bytes, nullptr); });
}

// -- Streams --

EXPORTED cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  void* made = nullptr;
  const bool is_blocking = (flags & cudaStreamNonBlocking) == 0;
  const int error = is_blocking ? FakeDevices::Get().create_blocking_stream(&made) : Table().create_stream(&made);
  *stream = static_cast<cudaStream_t>(made);
  if (error == cudaSuccess) Priorities::Set(*stream, priority);
  return Result(error);
}
EXPORTED cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
EXPORTED cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
EXPORTED cudaError_t cudaStreamDestroy(cudaStream_t stream) { return Result(Table().destroy_stream(stream)); }
EXPORTED cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = Priorities::Get(stream);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  uint64_t number = 0;
  const int error = Table().stream_id(DefaultOr(stream), &number);
  *id = number;
  return Result(error);
}
EXPORTED cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Unsafe([=] { return WaitForStream(DefaultOr(stream)); });
}

EXPORTED cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return Unsafe([=] {
    int is_idle = 0;
    int error = FakeDevices::Get().begin_wait_for_stream(DefaultOr(stream));
    if (error == cudaSuccess) error = FakeDevices::Get().is_idle(DefaultOr(stream), &is_idle);
    return error != cudaSuccess || is_idle != 0 ? error : int{cudaErrorNotReady};
  });
}

EXPORTED cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  return Result(Table().wait_event(DefaultOr(stream), event));
}

EXPORTED cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* context) {
  return Result(FakeDevices::Get().Enqueue(DefaultOr(stream), [=] { function(context); }));
}
EXPORTED cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* context,
                                           unsigned int) {
  return Result(FakeDevices::Get().Enqueue(DefaultOr(stream), [=] { function(stream, cudaSuccess, context); }));
}

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
  return Result(Table().record_event(event, DefaultOr(stream)));
}
EXPORTED cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int) {
  return cudaEventRecord(event, stream);
}
EXPORTED cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Unsafe([=] {
    int is_done = 0;
    const int error = Table().query_event(event, &is_done);
    return error != cudaSuccess || is_done != 0 ? error : int{cudaErrorNotReady};
  });
}
EXPORTED cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Unsafe([=] { return Table().synchronize_event(event); });
}
EXPORTED cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  return Result(Table().elapsed_ms(begin, end, ms));
}
