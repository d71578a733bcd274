// SPDX-License-Identifier: Apache-2.0

// libfake_cuda.so gives a process the devices that these environment variables describe: FAKE_CUDA_DEVICES,
// FAKE_CUDA_DRIVER_ERROR, FAKE_CUDA_DELAY_SEED, FAKE_CUDA_PARTS, FAKE_CUDA_STRICT, FAKE_CUDA_SHARING, and CUDA's own
// CUDA_DEVICE_MAX_CONNECTIONS. With FAKE_CUDA_STRICT=1, calls that free memory wait for the device, and so do launches
// before the kernels are loaded. CUDA's programming guide describes such waits (implicit synchronization and lazy
// loading). With FAKE_CUDA_STRICT=2, allocations also wait for the device. With FAKE_CUDA_SHARING=0 no memory can be
// shared, and with 1 a device can map only its own memory.
#include <algorithm>
#include <cstdlib>

#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda::testing {
namespace {

int NumberFromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

FakeCuda::Options OptionsFromEnvironment() {
  const int strictness = NumberFromEnvironment("FAKE_CUDA_STRICT", 0);
  using Loading = FakeCuda::Options::Loading;
  using Allocations = FakeCuda::Options::Allocations;
  using Sharing = FakeCuda::Options::Sharing;
  constexpr Sharing kSharings[] = {Sharing::kNone, Sharing::kSameDevice, Sharing::kAllDevices};
  return {.devices = NumberFromEnvironment("FAKE_CUDA_DEVICES", 8),
          .parts = std::max(NumberFromEnvironment("FAKE_CUDA_PARTS", 1), 1),
          .driver_error = NumberFromEnvironment("FAKE_CUDA_DRIVER_ERROR", kCudaSuccess),
          .delay_seed = static_cast<uint64_t>(NumberFromEnvironment("FAKE_CUDA_DELAY_SEED", 0)),
          .loading = strictness > 0 ? Loading::kLazy : Loading::kEager,
          .frees = strictness > 0 ? FakeCuda::Frees::kWaitForTheDevice : FakeCuda::Frees::kReturnAtOnce,
          .allocations = strictness > 1 ? Allocations::kWaitForTheDevice : Allocations::kReturnAtOnce,
          .queues = std::clamp(NumberFromEnvironment("CUDA_DEVICE_MAX_CONNECTIONS", FakeCuda::kQueues), 1,
                               FakeCuda::kMostQueues),
          .sharing = kSharings[std::clamp(NumberFromEnvironment("FAKE_CUDA_SHARING", 2), 0, 2)]};
}

}  // namespace
}  // namespace ronda::testing

__attribute__((visibility("default"))) const ronda_cuda_plugin* ronda_cuda_plugin_table() {
  // Never destroyed, because the threads of streams may still be working when the process exits.
  static const auto* const cuda = new ronda::testing::FakeCuda(ronda::testing::OptionsFromEnvironment());
  return cuda->table();
}
