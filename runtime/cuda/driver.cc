#include "runtime/cuda/driver.h"

#include <dlfcn.h>

namespace ronda {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

const CudaDriver* Load() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  static CudaDriver driver;
  Find(library, "cuDeviceGetUuid_v2", &driver.device_uuid);
  CUresult (*initialize)(unsigned int) = nullptr;
  const bool is_complete = Find(library, "cuInit", &initialize) &&
                           Find(library, "cuPointerGetAttribute", &driver.pointer_attribute) &&
                           Find(library, "cuDevicePrimaryCtxGetState", &driver.context_state);
  return is_complete && initialize(0) == CUDA_SUCCESS ? &driver : nullptr;
}

}  // namespace

const CudaDriver* CudaDriver::Get() {
  static const CudaDriver* const driver = Load();
  return driver;
}

}  // namespace ronda
