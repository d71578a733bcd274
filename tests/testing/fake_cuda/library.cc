// SPDX-License-Identifier: Apache-2.0

// libfake_cuda.so: the devices of a process, as its environment defines them (FAKE_CUDA_DEVICES,
// FAKE_CUDA_DRIVER_ERROR, FAKE_CUDA_DELAY_SEED). With FAKE_CUDA_STRICT=1, freeing memory and launching a kernel that is
// not loaded wait for the device, as CUDA's programming guide describes for implicit synchronization and lazy loading.
#include <cstdlib>

#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda::testing {
namespace {

int NumberFromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

FakeCuda::Options OptionsFromEnvironment() {
  const bool is_strict = NumberFromEnvironment("FAKE_CUDA_STRICT", 0) != 0;
  using Loading = FakeCuda::Options::Loading;
  return {.devices = NumberFromEnvironment("FAKE_CUDA_DEVICES", 8),
          .driver_error = NumberFromEnvironment("FAKE_CUDA_DRIVER_ERROR", kCudaSuccess),
          .delay_seed = static_cast<uint64_t>(NumberFromEnvironment("FAKE_CUDA_DELAY_SEED", 0)),
          .loading = is_strict ? Loading::kLazy : Loading::kEager,
          .frees = is_strict ? FakeCuda::Frees::kWaitForTheDevice : FakeCuda::Frees::kReturnAtOnce};
}

}  // namespace
}  // namespace ronda::testing

__attribute__((visibility("default"))) const ronda_cuda_plugin* ronda_cuda_plugin_table() {
  // Never destroyed: the threads of streams may still work when the process ends.
  static const auto* const cuda = new ronda::testing::FakeCuda(ronda::testing::OptionsFromEnvironment());
  return cuda->table();
}
