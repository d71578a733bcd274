// SPDX-License-Identifier: Apache-2.0

// Tests the plugin's NVTX ranges, as a profiling tool sees them. NVTX loads the profiling tool, which needs no GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "runtime/cuda/device.h"
#include "tests/testing/nvtx_recorder/nvtx_recorder.h"

namespace ronda {
namespace {

std::string Recorded() {
  void* const library = dlopen(std::filesystem::absolute(testing::kNvtxRecorderPath).c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return "NVTX has not loaded the tool";
  const auto take = reinterpret_cast<testing::NvtxRecorderTake>(dlsym(library, testing::kNvtxRecorderTake));
  char text[1024];
  take(text, sizeof(text));
  dlclose(library);
  return text;
}

TEST(NvtxTest, AToolSeesTheRangesByName) {
  setenv("NVTX_INJECTION64_PATH", std::filesystem::absolute(testing::kNvtxRecorderPath).c_str(), 1);
  const absl::StatusOr<const ronda_cuda_plugin*> plugin =
      LoadCudaPlugin(std::filesystem::absolute("runtime/cuda/libronda_cuda.so"));
  ASSERT_EQ(plugin.status(), absl::OkStatus());
  {
    const DeviceRange outer(**plugin, "ALLREDUCE conv1/weight and 9 more");
    const DeviceRange inner(**plugin, "BROADCAST y");
  }
  EXPECT_EQ(Recorded(), "Ronda: ALLREDUCE conv1/weight and 9 more\nRonda: BROADCAST y\nend\nend\n");
}

}  // namespace
}  // namespace ronda
