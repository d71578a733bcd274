// SPDX-License-Identifier: Apache-2.0

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/cuda/device.h"
#include "tests/runtime/cuda/plugin_under_test.h"

namespace ronda::testing {

std::string PluginUnderTest() { return std::filesystem::absolute("runtime/cuda/libronda_cuda.so"); }

namespace {

// The plugin contains a CUDA runtime, which stores the last error. A trainer uses another copy of the runtime, so the
// plugin and the trainer do not see each other's errors.
TEST(InstalledPluginTest, RuntimeIsItsOwn) {
  ASSERT_EQ(LoadCudaPlugin(PluginUnderTest()).status(), absl::OkStatus());
  void* const library = dlopen(PluginUnderTest().c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(dlsym(library, "cudaGetLastError"), nullptr);
  EXPECT_EQ(dlclose(library), 0);
}

}  // namespace
}  // namespace ronda::testing
