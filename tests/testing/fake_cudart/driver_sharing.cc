// SPDX-License-Identifier: Apache-2.0

// The driver functions for memory that several processes map, and for stream operations on words. A memory handle is a
// duplicate of the descriptor of the memory's file.
#include <cuda.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "tests/testing/fake_cudart/fake_device.h"

namespace {

using ronda::testing::FakeDevices;

const ronda_cuda_plugin& Table() { return *FakeDevices::Get().table; }

void* AddressOf(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

int Copy(int file) { return fcntl(file, F_DUPFD_CLOEXEC, 0); }

ronda_cuda_word_op OpOf(const CUstreamBatchMemOpParams& parameters) {
  if (parameters.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
    return {RONDA_CUDA_WRITE_WORD, AddressOf(parameters.writeValue.address), parameters.writeValue.value};
  }
  const bool at_least = parameters.waitValue.flags == CU_STREAM_WAIT_VALUE_GEQ;
  return {at_least ? RONDA_CUDA_AWAIT_WORD_AT_LEAST : RONDA_CUDA_AWAIT_WORD_EQUAL,
          AddressOf(parameters.waitValue.address), parameters.waitValue.value};
}

}  // namespace

EXPORTED CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: {
      size_t unit = 0;
      *value = Table().sharing_unit(&unit) == 0 ? 1 : 0;
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

EXPORTED CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                                CUmemAllocationGranularity_flags) {
  return static_cast<CUresult>(Table().sharing_unit(bytes));
}

EXPORTED CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                              unsigned long long) {
  if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  int file = -1;
  const int error = Table().allocate_shared(bytes, &file);
  *handle = static_cast<CUmemGenericAllocationHandle>(file);
  return static_cast<CUresult>(error);
}

EXPORTED CUresult cuMemExportToShareableHandle(void* file, CUmemGenericAllocationHandle handle,
                                               CUmemAllocationHandleType, unsigned long long) {
  *static_cast<int*>(file) = Copy(static_cast<int>(handle));
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* file,
                                                 CUmemAllocationHandleType) {
  const int copy = Copy(static_cast<int>(reinterpret_cast<intptr_t>(file)));
  *handle = static_cast<CUmemGenericAllocationHandle>(copy);
  return copy < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORTED CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return close(static_cast<int>(handle)) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORTED CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  *address = reinterpret_cast<CUdeviceptr>(FakeDevices::Get().reserve(bytes));
  return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

EXPORTED CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t, CUmemGenericAllocationHandle handle,
                           unsigned long long) {
  return static_cast<CUresult>(FakeDevices::Get().map(AddressOf(address), bytes, static_cast<int>(handle)));
}

EXPORTED CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t) {
  return static_cast<CUresult>(FakeDevices::Get().give_access(AddressOf(address), bytes, access->location.id));
}

// Does nothing: the fake unmaps a whole range when cuMemAddressFree frees it.
EXPORTED CUresult cuMemUnmap(CUdeviceptr, size_t) { return CUDA_SUCCESS; }

EXPORTED CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  if (FakeDevices::Get().free_range(AddressOf(address)) == 0) return CUDA_SUCCESS;
  return static_cast<CUresult>(Table().unmap_shared(AddressOf(address), 1, bytes));
}

EXPORTED CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* parameters,
                                     unsigned int) {
  std::vector<ronda_cuda_word_op> ops(count);
  std::transform(parameters, parameters + count, ops.begin(), OpOf);
  return static_cast<CUresult>(Table().run_word_ops(ops.data(), static_cast<int>(count), stream));
}
