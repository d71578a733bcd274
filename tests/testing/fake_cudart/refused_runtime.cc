// SPDX-License-Identifier: Apache-2.0

// Functions that PyTorch's libraries need in order to load. In the fake CUDA runtime they only return an error. They
// are for graph nodes, memory pools, memory of other processes, and kernel libraries. This file does not include CUDA's
// header, because the header declares these functions with their parameters.
#define REFUSED(name) \
  extern "C" __attribute__((visibility("default"))) int name() { return 801; /* cudaErrorNotSupported */ }

REFUSED(cudaDeviceEnablePeerAccess)
REFUSED(cudaDeviceGetDefaultMemPool)
REFUSED(cudaDeviceGetGraphMemAttribute)
REFUSED(cudaDeviceSetGraphMemAttribute)
REFUSED(cudaFreeAsync)
REFUSED(cudaGetSymbolAddress)
REFUSED(cudaGraphAddNode)
REFUSED(cudaGraphConditionalHandleCreate)
REFUSED(cudaGraphNodeGetDependencies)
REFUSED(cudaGraphRetainUserObject)
REFUSED(cudaIpcCloseMemHandle)
REFUSED(cudaIpcGetEventHandle)
REFUSED(cudaIpcGetMemHandle)
REFUSED(cudaIpcOpenEventHandle)
REFUSED(cudaIpcOpenMemHandle)
REFUSED(cudaKernelSetAttributeForDevice)
REFUSED(cudaLaunchCooperativeKernel)
REFUSED(cudaLibraryGetGlobal)
REFUSED(cudaLibraryGetKernel)
REFUSED(cudaLibraryGetKernelCount)
REFUSED(cudaLibraryGetManaged)
REFUSED(cudaLibraryGetUnifiedFunction)
REFUSED(cudaLibraryLoadData)
REFUSED(cudaLibraryLoadFromFile)
REFUSED(cudaLibraryUnload)
REFUSED(cudaMallocAsync)
REFUSED(cudaMallocManaged)
REFUSED(cudaMemPoolGetAttribute)
REFUSED(cudaMemPoolSetAccess)
REFUSED(cudaMemPoolSetAttribute)
REFUSED(cudaMemPoolTrimTo)
REFUSED(cudaMemcpy2DAsync)
REFUSED(cudaMemcpyToSymbol)
REFUSED(cudaStreamBeginCaptureToGraph)
REFUSED(cudaStreamUpdateCaptureDependencies)
REFUSED(cudaUserObjectCreate)
REFUSED(cudaUserObjectRelease)

// At startup, PyTorch looks up driver functions here, and needs an address for each. It calls them only for features
// that the fake lacks.
extern "C" __attribute__((visibility("default"))) int cudaGetDriverEntryPointByVersion(const char*, void** function,
                                                                                       unsigned int, unsigned long long,
                                                                                       int* result) {
  *function = reinterpret_cast<void*>(cudaGraphAddNode);
  if (result != nullptr) *result = 0;
  return 0;
}
