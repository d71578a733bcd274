// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_gpu/fake_gpu.h"

#include <dlfcn.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace ronda::testing {
namespace {

using EnqueueFunction = int (*)(void* stream, void (*function)(void*), void* context);
using LeaksFunction = void (*)(char* text, std::size_t size);

struct Library {
  const ronda_cuda_plugin* table;
  EnqueueFunction enqueue;
  LeaksFunction leaks;
};

// All code that opens this path, including Ronda, gets this one copy of the library.
const Library& LoadedLibrary() {
  static const Library* const loaded = [] {
    void* const library = dlopen(kFakeCudaPath, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    const auto table = reinterpret_cast<decltype(&ronda_cuda_plugin_table)>(dlsym(library, RONDA_CUDA_PLUGIN_SYMBOL));
    const auto enqueue = reinterpret_cast<EnqueueFunction>(dlsym(library, "fake_cuda_enqueue"));
    const auto leaks = reinterpret_cast<LeaksFunction>(dlsym(library, "fake_cuda_leaks"));
    if (table == nullptr || enqueue == nullptr || leaks == nullptr) {
      throw std::runtime_error("libfake_cuda.so lacks a function");
    }
    return new Library{.table = table(), .enqueue = enqueue, .leaks = leaks};
  }();
  return *loaded;
}

void Check(int error) {
  if (error == 0) return;
  char text[256];
  LoadedFakeCuda().error_text(error, text, sizeof(text));
  throw std::runtime_error(text);
}

void RunAndDelete(void* work) {
  const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(work));
  (*owned)();
}

}  // namespace

const ronda_cuda_plugin& LoadedFakeCuda() { return *LoadedLibrary().table; }

void EnqueueOnFakeGpu(void* stream, std::function<void()> work) {
  auto owned = std::make_unique<std::function<void()>>(std::move(work));
  Check(LoadedLibrary().enqueue(stream, RunAndDelete, owned.get()));
  static_cast<void>(owned.release());
}

std::string FakeGpuLeaks() {
  char text[256];
  LoadedLibrary().leaks(text, sizeof(text));
  return text;
}

FakeNcclCounts CountFakeNcclCommunicators() {
  void* const library = dlopen(kFakeNcclLibraryPath, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto count = [library](const char* function) {
    const auto found = reinterpret_cast<int (*)()>(dlsym(library, function));
    if (found == nullptr) throw std::runtime_error("libfake_nccl.so lacks a function");
    return found();
  };
  return {.live = count("fake_nccl_live_communicators"),
          .made = count("fake_nccl_made_communicators"),
          .aborted = count("fake_nccl_aborted_communicators")};
}

FakeGpuStream::FakeGpuStream(int device) {
  Check(LoadedFakeCuda().use_device(device));
  Check(LoadedFakeCuda().create_stream(&handle_));
}

FakeGpuStream::~FakeGpuStream() {
  Synchronize();
  LoadedFakeCuda().destroy_stream(handle_);
}

void FakeGpuStream::Synchronize() const {
  void* event = nullptr;
  Check(LoadedFakeCuda().create_event(/*timing=*/0, &event));
  Check(LoadedFakeCuda().record_event(event, handle_));
  Check(LoadedFakeCuda().synchronize_event(event));
  Check(LoadedFakeCuda().destroy_event(event));
}

void* AllocateOnFakeGpu(std::size_t bytes) {
  void* memory = nullptr;
  Check(LoadedFakeCuda().allocate(RONDA_CUDA_DEVICE_MEMORY, bytes, &memory));
  return memory;
}

void ReleaseOnFakeGpu(void* memory) { LoadedFakeCuda().release(RONDA_CUDA_DEVICE_MEMORY, memory); }

}  // namespace ronda::testing
