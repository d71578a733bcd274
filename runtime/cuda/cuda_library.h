#ifndef RONDA_RUNTIME_CUDA_CUDA_LIBRARY_H_
#define RONDA_RUNTIME_CUDA_CUDA_LIBRARY_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/cuda/plugin.h"

namespace ronda {

// The file name of the plugin.
inline constexpr char kCudaPluginName[] = "libronda_cuda.so";

// Loads the plugin for CUDA devices, for good: from `path` (RONDA_CUDA_PLUGIN) or, if that is empty, from where plugins
// are (runtime/base/plugin_search.h). That it can be loaded does not say that there is a driver, or a device.
//
// Errors: NOT_FOUND that names the places looked at and what to do; FAILED_PRECONDITION if it is of another version.
absl::StatusOr<const ronda_cuda_plugin*> LoadCudaPlugin(const std::string& path);

// What --check-build says of the plugin's devices: "2 devices: NVIDIA H200, NVIDIA H200 (CUDA runtime 13.0, driver
// 13.0)".
// Errors: UNAVAILABLE with the driver's own words if there is none, or no device.
absl::StatusOr<std::string> DescribeDevices(const ronda_cuda_plugin& plugin);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CUDA_CUDA_LIBRARY_H_
