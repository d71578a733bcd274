// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_nccl/load_fake_nccl.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tests/testing/fake_cuda/fake_capture.h"
#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda::testing {
namespace {

// Looks up a function of the library by name. The second argument only gives its type.
template <typename Function>
Function* FunctionOf(const char* name, Function*) {
  void* const library = dlopen(kFakeNcclPath, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

std::shared_ptr<const NcclLibrary> LoadFakeNccl(const ronda_cuda_plugin* plugin) {
  absl::StatusOr<std::shared_ptr<const NcclLibrary>> library = LoadNccl(kFakeNcclPath);
  EXPECT_EQ(library.status(), absl::OkStatus());
  if (!library.ok()) return nullptr;
  const fake_nccl_cuda cuda = {.enqueue = &fake_cuda_enqueue,
                               .enqueue_owned = &fake_cuda_enqueue_owned,
                               .is_captured = &fake_cuda_is_captured,
                               .view = &fake_cuda_view,
                               .device_of = &fake_cuda_device_of,
                               .wait_before_free = &fake_cuda_wait_before_free,
                               .plugin = plugin};
  FunctionOf("fake_nccl_set_cuda", static_cast<void (*)(const fake_nccl_cuda*)>(nullptr))(&cuda);
  return *std::move(library);
}

void SetFakeNcclFaults(const fake_nccl_faults& faults) {
  FunctionOf("fake_nccl_set_faults", static_cast<void (*)(const fake_nccl_faults*)>(nullptr))(&faults);
}

int LiveFakeNcclCommunicators() {
  return FunctionOf("fake_nccl_live_communicators", static_cast<int (*)()>(nullptr))();
}

int FakeNcclAllocations() { return FunctionOf("fake_nccl_allocations", static_cast<int (*)()>(nullptr))(); }
int FakeNcclCalls(const std::string& name) {
  return FunctionOf("fake_nccl_calls", static_cast<int (*)(const char*)>(nullptr))(name.c_str());
}
std::string PopFakeNcclReport() {
  char text[500] = "";
  FunctionOf("fake_nccl_take_report", static_cast<void (*)(char*, size_t)>(nullptr))(text, sizeof(text));
  return text;
}

int FakeNcclThreadsInCalls() { return FunctionOf("fake_nccl_threads_in_calls", static_cast<int (*)()>(nullptr))(); }
int FakeNcclThreads() { return FunctionOf("fake_nccl_threads", static_cast<int (*)()>(nullptr))(); }
int FakeNcclWaitingForPeers() { return FunctionOf("fake_nccl_waiting_for_peers", static_cast<int (*)()>(nullptr))(); }
int FakeNcclRegistrations() { return FunctionOf("fake_nccl_registrations", static_cast<int (*)()>(nullptr))(); }
int FakeNcclWindows() { return FunctionOf("fake_nccl_windows", static_cast<int (*)()>(nullptr))(); }

}  // namespace ronda::testing
