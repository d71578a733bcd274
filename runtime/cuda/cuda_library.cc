#include "runtime/cuda/cuda_library.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/plugin_search.h"
#include "runtime/base/status_macros.h"
#include "runtime/cuda/device.h"

namespace ronda {

absl::StatusOr<const ronda_cuda_plugin*> LoadCudaPlugin(const std::string& path) {
  const PluginDescription plugin = {.kind = "CUDA plugin",
                                    .file = kCudaPluginName,
                                    .variable = "RONDA_CUDA_PLUGIN",
                                    .needs = "NVIDIA's driver to find a device",
                                    .symbol = RONDA_CUDA_PLUGIN_SYMBOL,
                                    .version = RONDA_CUDA_PLUGIN_VERSION};
  RONDA_ASSIGN_OR_RETURN(const void* const table, LoadPlugin(plugin, path));
  return static_cast<const ronda_cuda_plugin*>(table);
}

absl::StatusOr<std::string> DescribeDevices(const ronda_cuda_plugin& plugin) {
  RONDA_ASSIGN_OR_RETURN(const int count, CountDevices(plugin));
  std::vector<std::string> names;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    ronda_cuda_device device;
    if (plugin.describe(ordinal, &device) == 0) names.emplace_back(device.name);
  }
  return absl::StrCat(count, count == 1 ? " device: " : " devices: ", absl::StrJoin(names, ", "), " (",
                      plugin.library(), ")");
}

}  // namespace ronda
