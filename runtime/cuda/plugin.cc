// SPDX-License-Identifier: Apache-2.0

#include "runtime/cuda/plugin.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "kernels/cuda/kernels.h"

namespace {

namespace cuda_kernels = ronda::kernels::cuda;

// Functions of CUDA's driver API. The first ones return facts about a device that the CUDA runtime lacks, or returns
// only after it has created a context, which takes hundreds of megabytes on the device. The others, which share memory
// between ranks and let streams operate on words, have no equivalent in the CUDA runtime.
struct CudaDriver {
  CUresult (*pointer_attribute)(void* data, CUpointer_attribute attribute, CUdeviceptr pointer);
  CUresult (*context_state)(CUdevice device, unsigned int* flags, int* active);  // of its primary context
  // For a part of a GPU, returns the part's own UUID. nullptr: the driver is too old.
  CUresult (*device_uuid)(CUuuid* uuid, CUdevice device);

  bool can_share = false;  // whether the driver has the functions below
  CUresult (*device_attribute)(int* value, CUdevice_attribute attribute, CUdevice device);
  CUresult (*granularity)(size_t* bytes, const CUmemAllocationProp* properties, CUmemAllocationGranularity_flags flags);
  CUresult (*create_memory)(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                            unsigned long long flags);
  CUresult (*export_memory)(void* file, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                            unsigned long long flags);
  CUresult (*import_memory)(CUmemGenericAllocationHandle* handle, void* file, CUmemAllocationHandleType type);
  CUresult (*release_memory)(CUmemGenericAllocationHandle handle);
  CUresult (*reserve_addresses)(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr address_hint,
                                unsigned long long flags);
  CUresult (*free_addresses)(CUdeviceptr address, size_t bytes);
  CUresult (*map)(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags);
  CUresult (*unmap)(CUdeviceptr address, size_t bytes);
  CUresult (*set_access)(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count);
  CUresult (*batch_word_ops)(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* ops, unsigned int flags);

  // Returns the functions, or nullptr if there is no driver.
  static const CudaDriver* Get();
};

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// The second version of cuStreamBatchMemOp needs no option of the driver module. Drivers have it since CUDA 11.7.
bool FindSharing(void* library, CudaDriver* driver) {
  return Find(library, "cuDeviceGetAttribute", &driver->device_attribute) &&
         Find(library, "cuMemGetAllocationGranularity", &driver->granularity) &&
         Find(library, "cuMemCreate", &driver->create_memory) &&
         Find(library, "cuMemExportToShareableHandle", &driver->export_memory) &&
         Find(library, "cuMemImportFromShareableHandle", &driver->import_memory) &&
         Find(library, "cuMemRelease", &driver->release_memory) &&
         Find(library, "cuMemAddressReserve", &driver->reserve_addresses) &&
         Find(library, "cuMemAddressFree", &driver->free_addresses) && Find(library, "cuMemMap", &driver->map) &&
         Find(library, "cuMemUnmap", &driver->unmap) && Find(library, "cuMemSetAccess", &driver->set_access) &&
         Find(library, "cuStreamBatchMemOp_v2", &driver->batch_word_ops);
}

const CudaDriver* LoadDriver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  static CudaDriver driver;
  Find(library, "cuDeviceGetUuid_v2", &driver.device_uuid);
  driver.can_share = FindSharing(library, &driver);
  CUresult (*initialize)(unsigned int) = nullptr;
  const bool is_complete = Find(library, "cuInit", &initialize) &&
                           Find(library, "cuPointerGetAttribute", &driver.pointer_attribute) &&
                           Find(library, "cuDevicePrimaryCtxGetState", &driver.context_state);
  return is_complete && initialize(0) == CUDA_SUCCESS ? &driver : nullptr;
}

const CudaDriver* CudaDriver::Get() {
  static const CudaDriver* const driver = LoadDriver();
  return driver;
}

// Clears the thread's last error, which the next kernel launch would otherwise report as its own. This library has its
// own copy of the runtime, so the trainer's copy keeps its last error. An error that has corrupted the device's context
// cannot be cleared, and both copies of the runtime report it.
int Result(int error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

// Makes calls that CUDA forbids while the trainer captures a graph. From any thread, they would break the capture, so
// this function first tells CUDA that they do not belong to it.
template <typename Function>
int BesideCaptures(const Function& function) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  const int error = Result(function());
  cudaThreadExchangeStreamCaptureMode(&mode);
  return error;
}

std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string LibraryText() {
  int runtime = 0;
  int driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  return "CUDA runtime " + VersionText(runtime) + ", " + (driver == 0 ? "no driver" : "driver " + VersionText(driver));
}

const char* Library() {
  static const auto* const text = new std::string(LibraryText());  // never destroyed, for calls during exit
  return text->c_str();
}

void ErrorText(int error, char* text, size_t size) {
  std::snprintf(text, size, "%s", cudaGetErrorString(static_cast<cudaError_t>(error)));
}

int DeviceCount(int* count) {
  const int error = Result(cudaGetDeviceCount(count));
  if (error != cudaSuccess) *count = 0;
  return error;
}

// Fills in the device's UUID, or leaves it empty if the driver does not know it.
void DescribeUuid(int device, ronda_cuda_device* description) {
  const CudaDriver* const driver = CudaDriver::Get();
  CUuuid uuid;
  if (driver == nullptr || driver->device_uuid == nullptr || driver->device_uuid(&uuid, device) != CUDA_SUCCESS) {
    return;
  }
  char* text = description->uuid;
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    const bool ends_group = i == 3 || i == 5 || i == 7 || i == 9;
    text += std::snprintf(text, 4, ends_group ? "%02x-" : "%02x", static_cast<unsigned char>(uuid.bytes[i]));
  }
}

int Describe(int device, ronda_cuda_device* description) {
  cudaDeviceProp properties;
  if (const int error = Result(cudaGetDeviceProperties(&properties, device)); error != cudaSuccess) return error;
  *description = {.capability_major = properties.major,
                  .capability_minor = properties.minor,
                  .multiprocessors = properties.multiProcessorCount,
                  .memory_bytes = properties.totalGlobalMem};
  std::snprintf(description->name, sizeof(description->name), "%s", properties.name);
  DescribeUuid(device, description);
  return Result(cudaDeviceGetPCIBusId(description->pci_bus, sizeof(description->pci_bus), device));
}

int UseDevice(int device) { return Result(cudaSetDevice(device)); }

int CurrentDevice(int* device) { return Result(cudaGetDevice(device)); }

int RestoreDevice(int device) {
  const CudaDriver* const driver = CudaDriver::Get();
  unsigned int flags = 0;
  int is_active = 0;
  // The driver and the runtime number the devices alike.
  if (driver == nullptr || driver->context_state(device, &flags, &is_active) != CUDA_SUCCESS) {
    return cudaErrorInsufficientDriver;
  }
  return is_active != 0 ? UseDevice(device) : cudaSuccess;
}

int PrepareDevice() {
  return BesideCaptures([] {
    for (const auto load :
         {cuda_kernels::LoadMapKernels, cuda_kernels::LoadReduceKernels, cuda_kernels::LoadGradientKernels}) {
      if (const int error = load(); error != cudaSuccess) return error;
    }
    return int{cudaSuccess};
  });
}

int DeviceOf(const void* pointer, int* device) {
  *device = -1;
  const CudaDriver* const driver = CudaDriver::Get();
  if (driver == nullptr) return cudaErrorInsufficientDriver;
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  unsigned int type = 0;
  // The call fails for memory that CUDA does not know, such as ordinary host memory. This is no error.
  if (driver->pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS) return cudaSuccess;
  if (type != CU_MEMORYTYPE_DEVICE) return cudaSuccess;
  const CUresult result = driver->pointer_attribute(device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

int Allocate(ronda_cuda_memory kind, size_t bytes, void** memory) {
  *memory = nullptr;
  const size_t at_least_one = std::max<size_t>(bytes, 1);
  return BesideCaptures([=] {
    return kind == RONDA_CUDA_DEVICE_MEMORY ? cudaMalloc(memory, at_least_one)
                                            : cudaHostAlloc(memory, at_least_one, cudaHostAllocPortable);
  });
}

int Release(ronda_cuda_memory kind, void* memory) {
  return BesideCaptures([=] { return kind == RONDA_CUDA_DEVICE_MEMORY ? cudaFree(memory) : cudaFreeHost(memory); });
}

// For the functions below, the driver and the runtime use the same error codes.

// Returns the driver's functions, or nullptr if it lacks those for shared memory.
const CudaDriver* SharingDriver() {
  const CudaDriver* const driver = CudaDriver::Get();
  return driver != nullptr && driver->can_share ? driver : nullptr;
}

CUmemLocation OnThisDevice() {
  CUmemLocation location = {};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  cudaGetDevice(&location.id);
  return location;
}

CUmemAllocationProp SharedMemory() {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = OnThisDevice();
  return properties;
}

int SharingUnit(size_t* bytes) {
  const CudaDriver* const driver = SharingDriver();
  if (driver == nullptr) return cudaErrorNotSupported;
  const CUmemAllocationProp properties = SharedMemory();
  for (const CUdevice_attribute attribute : {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                             CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    int is_supported = 0;
    const CUresult error = driver->device_attribute(&is_supported, attribute, properties.location.id);
    if (error != CUDA_SUCCESS) return error;
    if (is_supported == 0) return cudaErrorNotSupported;
  }
  return driver->granularity(bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
}

int AllocateShared(size_t bytes, int* file) {
  const CudaDriver* const driver = SharingDriver();
  if (driver == nullptr) return cudaErrorNotSupported;
  return BesideCaptures([=]() -> int {
    const CUmemAllocationProp properties = SharedMemory();
    CUmemGenericAllocationHandle handle = 0;
    if (const int error = driver->create_memory(&handle, bytes, &properties, 0); error != 0) return error;
    const int error = driver->export_memory(file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    driver->release_memory(handle);  // the descriptor keeps the memory alive
    return error;
  });
}

int MapFile(const CudaDriver& driver, int file, CUdeviceptr address, size_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  // CUDA expects the descriptor itself, cast to a pointer.
  void* const number = reinterpret_cast<void*>(static_cast<intptr_t>(file));
  const int error = driver.import_memory(&handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (error != 0) return error;
  const int mapped = driver.map(address, bytes, 0, handle, 0);
  driver.release_memory(handle);  // the mapping keeps the memory alive
  return mapped;
}

// Unmaps the first `count` mappings from `address` on, and frees the address range reserved for `reserved` mappings.
int Unmap(const CudaDriver& driver, CUdeviceptr address, int count, int reserved, size_t bytes) {
  int error = 0;
  for (int i = 0; i < count; ++i) {
    const int unmapped = driver.unmap(address + static_cast<size_t>(i) * bytes, bytes);
    if (error == 0) error = unmapped;
  }
  const int freed = driver.free_addresses(address, static_cast<size_t>(reserved) * bytes);
  return error == 0 ? freed : error;
}

int MapShared(const int* files, int count, size_t bytes, void** memory) {
  const CudaDriver* const driver = SharingDriver();
  if (driver == nullptr) return cudaErrorNotSupported;
  return BesideCaptures([=]() -> int {
    const size_t all = static_cast<size_t>(count) * bytes;
    CUdeviceptr address = 0;
    if (const int error = driver->reserve_addresses(&address, all, 0, 0, 0); error != 0) return error;
    int error = 0;
    int mapped = 0;
    while (error == 0 && mapped < count) {
      error = MapFile(*driver, files[mapped], address + static_cast<size_t>(mapped) * bytes, bytes);
      if (error == 0) ++mapped;
    }
    CUmemAccessDesc access = {};
    access.location = OnThisDevice();
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (error == 0) error = driver->set_access(address, all, &access, 1);
    if (error != 0) Unmap(*driver, address, mapped, count, bytes);
    *memory = error == 0 ? reinterpret_cast<void*>(address) : nullptr;
    return error;
  });
}

int UnmapShared(void* memory, int count, size_t bytes) {
  const CudaDriver* const driver = SharingDriver();
  if (driver == nullptr) return cudaErrorNotSupported;
  return BesideCaptures([=] { return Unmap(*driver, reinterpret_cast<CUdeviceptr>(memory), count, count, bytes); });
}

int RegisterHost(void* memory, size_t bytes, void** on_device) {
  *on_device = nullptr;
  return BesideCaptures([=]() -> int {
    const int error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error != cudaSuccess) return error;
    const int found = cudaHostGetDevicePointer(on_device, memory, 0);
    if (found != cudaSuccess) cudaHostUnregister(memory);
    return found;
  });
}

int UnregisterHost(void* memory) {
  return BesideCaptures([=] { return cudaHostUnregister(memory); });
}

int CreateStream(void** stream) {
  int lowest = 0;
  int highest = 0;
  if (const int error = Result(cudaDeviceGetStreamPriorityRange(&lowest, &highest)); error != cudaSuccess) return error;
  cudaStream_t created = nullptr;
  const int error =
      BesideCaptures([&] { return cudaStreamCreateWithPriority(&created, cudaStreamNonBlocking, highest); });
  *stream = created;
  return error;
}

cudaStream_t AsStream(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t AsEvent(void* event) { return static_cast<cudaEvent_t>(event); }

int DestroyStream(void* stream) {
  return BesideCaptures([=] { return cudaStreamDestroy(AsStream(stream)); });
}

int IsCapturing(void* stream, int* capturing) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const int error = Result(cudaStreamIsCapturing(AsStream(stream), &status));
  // Another stream, for which the default stream would wait, is being captured. So the default stream cannot be used
  // before the capture ends.
  if (error == cudaErrorStreamCaptureImplicit) {
    *capturing = 1;
    return cudaSuccess;
  }
  *capturing = status == cudaStreamCaptureStatusNone ? 0 : 1;
  return error;
}

int StreamId(void* stream, uint64_t* id) {
  unsigned long long number = 0;
  const int error = Result(cudaStreamGetId(AsStream(stream), &number));
  *id = number;
  return error;
}

int CreateEvent(int timing, void** event) {
  cudaEvent_t created = nullptr;
  // Host threads that wait for the event sleep instead of spinning.
  const unsigned int flags = cudaEventBlockingSync | (timing != 0 ? cudaEventDefault : cudaEventDisableTiming);
  const int error = BesideCaptures([&] { return cudaEventCreateWithFlags(&created, flags); });
  *event = created;
  return error;
}

int DestroyEvent(void* event) {
  return BesideCaptures([=] { return cudaEventDestroy(AsEvent(event)); });
}
int RecordEvent(void* event, void* stream) { return Result(cudaEventRecord(AsEvent(event), AsStream(stream))); }
int WaitEvent(void* stream, void* event) { return Result(cudaStreamWaitEvent(AsStream(stream), AsEvent(event), 0)); }

int QueryEvent(void* event, int* done) {
  const int error = BesideCaptures([=] { return cudaEventQuery(AsEvent(event)); });
  *done = error == cudaSuccess ? 1 : 0;
  return error == cudaErrorNotReady ? cudaSuccess : error;
}

int SynchronizeEvent(void* event) {
  return BesideCaptures([=] { return cudaEventSynchronize(AsEvent(event)); });
}

int ElapsedMs(void* begin, void* end, float* ms) {
  return Result(cudaEventElapsedTime(ms, AsEvent(begin), AsEvent(end)));
}

int Copy(void* dst, const void* src, size_t bytes, void* stream) {
  return Result(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, AsStream(stream)));
}

int FillZero(void* dst, size_t bytes, void* stream) { return Result(cudaMemsetAsync(dst, 0, bytes, AsStream(stream))); }

// A write is ordered after the stream's earlier writes (CU_STREAM_WRITE_VALUE_DEFAULT).
CUstreamBatchMemOpParams ParametersOf(const ronda_cuda_word_op& op) {
  CUstreamBatchMemOpParams parameters = {};
  if (op.action == RONDA_CUDA_WRITE_WORD) {
    parameters.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    parameters.writeValue.address = reinterpret_cast<CUdeviceptr>(op.word);
    parameters.writeValue.value = op.value;
    parameters.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  } else {
    parameters.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    parameters.waitValue.address = reinterpret_cast<CUdeviceptr>(op.word);
    parameters.waitValue.value = op.value;
    const bool at_least = op.action == RONDA_CUDA_AWAIT_WORD_AT_LEAST;
    parameters.waitValue.flags = at_least ? CU_STREAM_WAIT_VALUE_GEQ : CU_STREAM_WAIT_VALUE_EQ;
  }
  return parameters;
}

int RunWordOps(const ronda_cuda_word_op* ops, int count, void* stream) {
  const CudaDriver* const driver = SharingDriver();
  if (driver == nullptr) return cudaErrorNotSupported;
  if (count < 1 || count > RONDA_CUDA_MOST_WORD_OPS) return cudaErrorInvalidValue;
  CUstreamBatchMemOpParams parameters[RONDA_CUDA_MOST_WORD_OPS];
  std::transform(ops, ops + count, parameters, ParametersOf);
  return driver->batch_word_ops(AsStream(stream), static_cast<unsigned int>(count), parameters, 0);
}

// The first NVTX call looks for a profiler. Without one, the domain is null, and all NVTX calls return at once.
nvtxDomainHandle_t Domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("Ronda");
  return domain;
}

void BeginRange(const char* name) {
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  nvtxDomainRangePushEx(Domain(), &attributes);
}

void EndRange() { nvtxDomainRangePop(Domain()); }

// Adapts a function that launches a kernel for the plugin's table.
template <typename Call, int (*launch)(const Call&, void*)>
int Launch(const Call* call, void* stream) {
  return Result(launch(*call, stream));
}

constexpr ronda_cuda_plugin kTable = {
    .version = RONDA_CUDA_PLUGIN_VERSION,
    .library = Library,
    .error_text = ErrorText,
    .device_count = DeviceCount,
    .describe = Describe,
    .use_device = UseDevice,
    .current_device = CurrentDevice,
    .restore_device = RestoreDevice,
    .prepare_device = PrepareDevice,
    .device_of = DeviceOf,
    .allocate = Allocate,
    .release = Release,
    .sharing_unit = SharingUnit,
    .allocate_shared = AllocateShared,
    .map_shared = MapShared,
    .unmap_shared = UnmapShared,
    .register_host = RegisterHost,
    .unregister_host = UnregisterHost,
    .create_stream = CreateStream,
    .destroy_stream = DestroyStream,
    .is_capturing = IsCapturing,
    .stream_id = StreamId,
    .create_event = CreateEvent,
    .destroy_event = DestroyEvent,
    .record_event = RecordEvent,
    .wait_event = WaitEvent,
    .query_event = QueryEvent,
    .synchronize_event = SynchronizeEvent,
    .elapsed_ms = ElapsedMs,
    .copy = Copy,
    .fill_zero = FillZero,
    .run_word_ops = RunWordOps,
    .pack = Launch<cuda_kernels::PackCall, cuda_kernels::DevicePack>,
    .unpack = Launch<cuda_kernels::UnpackCall, cuda_kernels::DeviceUnpack>,
    .reduce = Launch<cuda_kernels::ReduceCall, cuda_kernels::DeviceReduce>,
    .find_non_finite = Launch<cuda_kernels::NonFiniteCall, cuda_kernels::DeviceFindNonFinite>,
    .add_scaled = Launch<cuda_kernels::AddScaledCall, cuda_kernels::DeviceAddScaled>,
    .adasum_dots = Launch<cuda_kernels::DotsCall, cuda_kernels::DeviceDots>,
    .adasum_combine = Launch<cuda_kernels::CombineCall, cuda_kernels::DeviceCombine>,
    .begin_range = BeginRange,
    .end_range = EndRange};

}  // namespace

__attribute__((visibility("default"))) const ronda_cuda_plugin* ronda_cuda_plugin_table() { return &kTable; }
