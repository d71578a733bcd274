// SPDX-License-Identifier: Apache-2.0

// A libcuda.so.1 for the fake libcudart.so.13. This file has the driver functions that PyTorch and Ronda's plugin call
// directly; driver_sharing.cc has those for shared memory. The functions in refused_driver.cc only return "not
// supported".
#include <cuda.h>

#include <cstdio>
#include <cstring>

#include "tests/testing/fake_cudart/fake_device.h"

namespace {

using ronda::testing::FakeDevices;

const ronda_cuda_plugin& Table() { return *FakeDevices::Get().table; }

}  // namespace

EXPORTED CUresult cuInit(unsigned int) {
  int count = 0;
  return static_cast<CUresult>(Table().device_count(&count));
}

EXPORTED CUresult cuDeviceGet(CUdevice* device, int number) {
  *device = number;
  return CUDA_SUCCESS;
}

// CUDA's header redefines some names as second versions; this one is really cuDeviceGetUuid_v2.
EXPORTED CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  ronda_cuda_device description{};
  if (const int error = Table().describe(device, &description); error != 0) return static_cast<CUresult>(error);
  const char* text = description.uuid;
  if (*text == '\0') return CUDA_ERROR_NOT_SUPPORTED;
  for (char& byte : uuid->bytes) {
    if (*text == '-') ++text;
    unsigned value = 0;
    std::sscanf(text, "%2x", &value);
    byte = static_cast<char>(value);
    text += 2;
  }
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* is_active) {
  int count = 0;
  if (Table().device_count(&count) != 0 || device >= count) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *is_active = FakeDevices::Get().has_context(device);
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "the fake CUDA driver lacks this function";
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  const FakeDevices& devices = FakeDevices::Get();
  const auto* const address = reinterpret_cast<const void*>(pointer);
  int device = -1;
  if (const int error = Table().device_of(address, &device); error != 0) return static_cast<CUresult>(error);
  if (device < 0 && devices.is_pinned(address) == 0) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) = device < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = device;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

EXPORTED CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  void** const made = reinterpret_cast<void**>(stream);
  return static_cast<CUresult>(flags == CU_STREAM_DEFAULT ? FakeDevices::Get().create_blocking_stream(made)
                                                          : Table().create_stream(made));
}
EXPORTED CUresult cuStreamDestroy(CUstream stream) { return static_cast<CUresult>(Table().destroy_stream(stream)); }
EXPORTED CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  return static_cast<CUresult>(FakeDevices::Get().begin_capture(stream, mode));
}
EXPORTED CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return static_cast<CUresult>(FakeDevices::Get().end_capture(stream, reinterpret_cast<void**>(graph)));
}
EXPORTED CUresult cuGraphDestroy(CUgraph graph) {
  return static_cast<CUresult>(FakeDevices::Get().destroy_graph(graph));
}
