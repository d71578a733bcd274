// The GPUs of this host and their driver, found at run time: nothing here is linked with it.
#ifndef RONDA_RUNTIME_LAUNCH_GPU_LIBRARIES_H_
#define RONDA_RUNTIME_LAUNCH_GPU_LIBRARIES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ronda {

struct GpuDriver {
  std::string cuda_version;         // that it supports: "12.4"
  std::vector<std::string> models;  // of its devices
};

// Asks libcuda.so.1.
// Errors: NOT_FOUND if it is not installed; FAILED_PRECONDITION if it does not work, or there is no device.
absl::StatusOr<GpuDriver> FindGpuDriver();

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_GPU_LIBRARIES_H_
