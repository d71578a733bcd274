// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_cudart/fake_device.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
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
  if (*function == nullptr) Fail("FAKE_CUDA_LIBRARY is not a libfake_cuda.so", dlerror());
}

FakeDevices Load() {
  const char* const path = std::getenv("FAKE_CUDA_LIBRARY");
  if (path == nullptr) Fail("FAKE_CUDA_LIBRARY is not set", "it names the libfake_cuda.so");
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Fail("FAKE_CUDA_LIBRARY cannot be loaded", dlerror());
  FakeDevices devices{};
  decltype(&ronda_cuda_plugin_table) table = nullptr;
  Find(library, RONDA_CUDA_PLUGIN_SYMBOL, &table);
  devices.table = table();
  Find(library, "fake_cuda_enqueue_owned", &devices.enqueue_owned);
  Find(library, "fake_cuda_view", &devices.view);
  Find(library, "fake_cuda_is_pinned", &devices.is_pinned);
  Find(library, "fake_cuda_is_idle", &devices.is_idle);
  Find(library, "fake_cuda_wait_for_device", &devices.wait_for_device);
  Find(library, "fake_cuda_has_context", &devices.has_context);
  Find(library, "fake_cuda_begin_unsafe_call", &devices.begin_unsafe_call);
  Find(library, "fake_cuda_begin_wait_for_stream", &devices.begin_wait_for_stream);
  Find(library, "fake_cuda_create_blocking_stream", &devices.create_blocking_stream);
  Find(library, "fake_cuda_begin_capture", &devices.begin_capture);
  Find(library, "fake_cuda_end_capture", &devices.end_capture);
  Find(library, "fake_cuda_capture_state", &devices.capture_state);
  Find(library, "fake_cuda_exchange_capture_mode", &devices.exchange_capture_mode);
  Find(library, "fake_cuda_copy_graph", &devices.copy_graph);
  Find(library, "fake_cuda_launch_graph", &devices.launch_graph);
  Find(library, "fake_cuda_destroy_graph", &devices.destroy_graph);
  Find(library, "fake_cuda_reserve", &devices.reserve);
  Find(library, "fake_cuda_map", &devices.map);
  Find(library, "fake_cuda_give_access", &devices.give_access);
  Find(library, "fake_cuda_free_range", &devices.free_range);
  return devices;
}

using Work = std::function<void()>;

}  // namespace

const FakeDevices& FakeDevices::Get() {
  static const auto* const devices = new FakeDevices(Load());
  return *devices;
}

int& LastError() {
  thread_local int error = 0;
  return error;
}

int FakeDevices::Enqueue(void* stream, Work work) const {
  const auto run = [](void* owned) { (*static_cast<Work*>(owned))(); };
  const auto release = [](void* owned) { delete static_cast<Work*>(owned); };
  return enqueue_owned(stream, run, new Work(std::move(work)), release);
}

}  // namespace ronda::testing
