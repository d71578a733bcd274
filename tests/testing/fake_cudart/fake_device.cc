// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_cudart/fake_device.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

namespace ronda::testing {
namespace {

[[noreturn]] void Fail(const char* what, const char* why) {
  std::fprintf(stderr, "fake CUDA runtime: %s: %s\n", what, why);
  std::abort();
}

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) Fail("RONDA_CUDA_PLUGIN is not a libfake_cuda.so", dlerror());
}

FakeDevices Load() {
  const char* const path = std::getenv("RONDA_CUDA_PLUGIN");
  if (path == nullptr) Fail("RONDA_CUDA_PLUGIN is not set", "it names the libfake_cuda.so");
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Fail("RONDA_CUDA_PLUGIN cannot be loaded", dlerror());
  FakeDevices devices{};
  decltype(&ronda_cuda_plugin_table) table = nullptr;
  Find(library, RONDA_CUDA_PLUGIN_SYMBOL, &table);
  devices.table = table();
  Find(library, "fake_cuda_enqueue", &devices.enqueue);
  Find(library, "fake_cuda_view", &devices.view);
  Find(library, "fake_cuda_is_idle", &devices.is_idle);
  Find(library, "fake_cuda_wait_for_device", &devices.wait_for_device);
  Find(library, "fake_cuda_has_context", &devices.has_context);
  return devices;
}

void RunAndDelete(void* work) {
  const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(work));
  (*owned)();
}

}  // namespace

const FakeDevices& FakeDevices::Get() {
  static const auto* const devices = new FakeDevices(Load());
  return *devices;
}

int FakeDevices::Enqueue(void* stream, std::function<void()> work) const {
  auto owned = std::make_unique<std::function<void()>>(std::move(work));
  const int error = enqueue(stream, RunAndDelete, owned.get());
  if (error == 0) static_cast<void>(owned.release());
  return error;
}

}  // namespace ronda::testing
