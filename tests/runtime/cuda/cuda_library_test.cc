// Which file is taken for the CUDA plugin, and what is said of its devices.
#include "runtime/cuda/device.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/match.h"

namespace ronda {
namespace {

TEST(CudaLibraryTest, MissingPluginIsSaidWithThePlacesLookedAtAndWhatToDo) {
  const absl::Status status = LoadCudaPlugin("").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  const std::string beside = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const std::string& part : {beside + "/libronda_cuda.so", beside + "/../lib/libronda_cuda.so",
                                  std::string("RONDA_CUDA_PLUGIN"), std::string("NVIDIA's driver")}) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status << " lacks " << part;
  }
}

TEST(CudaLibraryTest, LibraryThatIsNoPluginIsRefused) {
  EXPECT_EQ(LoadCudaPlugin("libm.so.6").status(),
            absl::FailedPreconditionError("libm.so.6 is no CUDA plugin of Ronda's"));
}

TEST(CudaLibraryTest, DevicesOfALoadedPluginAreDescribed) {
  const std::string path = std::filesystem::absolute("tests/testing/fake_cuda/libfake_cuda.so");
  ASSERT_EQ(setenv("FAKE_CUDA_DEVICES", "2", 1), 0);
  const absl::StatusOr<const ronda_cuda_plugin*> plugin = LoadCudaPlugin(path);
  ASSERT_EQ(plugin.status(), absl::OkStatus());
  const absl::StatusOr<std::string> description = DescribeDevices(**plugin);
  ASSERT_EQ(description.status(), absl::OkStatus());
  EXPECT_EQ(*description, "2 devices: fake GPU, fake GPU (fake CUDA runtime)");
}

}  // namespace
}  // namespace ronda
