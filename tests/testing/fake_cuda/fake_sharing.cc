// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/fake_cuda/fake_sharing.h"

#include <atomic>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/testing/fake_cuda/fake_calls.h"
#include "tests/testing/fake_cuda/fake_cuda.h"
#include "tests/testing/fake_cuda/fake_machine.h"

namespace ronda::testing {
namespace {

using Sharing = FakeCuda::Options::Sharing;

// Returns the error of a call that shares memory. Like CUDA, creates a context.
int ErrorOfSharing() {
  if (const int error = ErrorOfOpening(); error != 0) return error;
  return Machine().options().sharing == Sharing::kNone ? kCudaNotSupported : kCudaSuccess;
}

bool IsWhole(size_t bytes) { return bytes > 0 && bytes % FakeMemory::kSharingUnit == 0; }

// Maps `file` at `address`, for this thread's device.
int MapFile(void* address, size_t bytes, int file) {
  const int owner = FakeMemory::DeviceOfFile(file);
  if (owner < 0) return kCudaInvalidValue;
  const bool is_allowed = owner == this_threads_device || Machine().options().sharing == Sharing::kAllDevices;
  if (!is_allowed) return kCudaInvalidDevice;
  return Machine().memory().MapIntoRange(address, bytes, file) ? kCudaSuccess : kCudaInvalidValue;
}

bool IsSatisfied(const ronda_cuda_word_op& op, uint32_t found) {
  if (op.action == RONDA_CUDA_AWAIT_WORD_EQUAL) return found == op.value;
  return static_cast<int32_t>(found - op.value) >= 0;
}

// Runs an operation on a word. A wait polls the word, because another process may write it.
void RunWordOp(const ronda_cuda_word_op& op) {
  std::atomic_ref<uint32_t> word(*static_cast<uint32_t*>(op.word));
  if (op.action == RONDA_CUDA_WRITE_WORD) return word.store(op.value, std::memory_order_seq_cst);
  while (!IsSatisfied(op, word.load(std::memory_order_seq_cst))) absl::SleepFor(absl::Microseconds(10));
}

}  // namespace

int SharingUnit(size_t* bytes) {
  *bytes = FakeMemory::kSharingUnit;
  return ErrorOfSharing();
}

int AllocateShared(size_t bytes, int* file) {
  *file = -1;
  if (const int error = ErrorOfSharing(); error != 0) return error;
  if (!IsWhole(bytes)) return kCudaInvalidValue;
  WaitBeforeAllocation();
  *file = Machine().memory().CreateFile(this_threads_device, bytes);
  return *file < 0 ? kCudaOutOfMemory : kCudaSuccess;
}

int MapShared(const int* files, int count, size_t bytes, void** memory) {
  *memory = nullptr;
  if (const int error = ErrorOfSharing(); error != 0) return error;
  if (count < 1 || !IsWhole(bytes)) return kCudaInvalidValue;
  const size_t all = static_cast<size_t>(count) * bytes;
  void* const range = fake_cuda_reserve(all);
  if (range == nullptr) return kCudaOutOfMemory;
  int error = kCudaSuccess;
  for (int i = 0; i < count && error == kCudaSuccess; ++i) {
    error = MapFile(static_cast<char*>(range) + static_cast<size_t>(i) * bytes, bytes, files[i]);
  }
  if (error == kCudaSuccess) error = fake_cuda_give_access(range, all, this_threads_device);
  if (error == kCudaSuccess) {
    *memory = range;
  } else {
    Machine().memory().FreeRange(range);
  }
  return error;
}

int UnmapShared(void* memory, int /*count*/, size_t /*bytes*/) {
  WaitBeforeFree();
  return Machine().Release(this_threads_device, memory) ? CurrentError() : kCudaInvalidValue;
}

int RegisterHost(void* memory, size_t bytes, void** on_device) {
  *on_device = nullptr;
  if (const int error = ErrorOfOpening(); error != 0) return error;
  WaitBeforeAllocation();
  *on_device = Machine().memory().Register(memory, bytes);
  return *on_device == nullptr ? kCudaAlreadyRegistered : kCudaSuccess;
}

int UnregisterHost(void* memory) {
  WaitBeforeFree();
  return Machine().memory().EndRegistration(memory) ? CurrentError() : kCudaNotRegistered;
}

int RunWordOps(const ronda_cuda_word_op* ops, int count, void* handle) {
  if (const int error = ErrorOfSharing(); error != 0) return error;
  if (count < 1 || count > RONDA_CUDA_MOST_WORD_OPS) return kCudaInvalidValue;
  return WithStreamForWork(handle, [&](FakeStream& stream) -> int {
    for (int i = 0; i < count; ++i) {
      ronda_cuda_word_op op = ops[i];
      if (reinterpret_cast<uintptr_t>(op.word) % sizeof(uint32_t) != 0) return kCudaInvalidValue;
      op.word = Machine().memory().ViewOf(stream.device(), op.word, sizeof(uint32_t));
      if (op.word == nullptr) return kCudaInvalidValue;
    }
    for (int i = 0; i < count; ++i) {
      ronda_cuda_word_op op = ops[i];
      op.word = Machine().memory().ViewOf(stream.device(), op.word, sizeof(uint32_t));
      const auto task = op.action == RONDA_CUDA_WRITE_WORD ? FakeStream::Task::kWork : FakeStream::Task::kWait;
      if (const int error = stream.Enqueue([op] { RunWordOp(op); }, task); error != 0) return error;
    }
    return kCudaSuccess;
  });
}

}  // namespace ronda::testing

using ronda::testing::kCudaInvalidValue;
using ronda::testing::kCudaSuccess;

void* fake_cuda_reserve(size_t bytes) { return ronda::testing::Machine().memory().ReserveRange(bytes); }

int fake_cuda_map(void* address, size_t bytes, int file) { return ronda::testing::MapFile(address, bytes, file); }

int fake_cuda_give_access(void* range, size_t bytes, int device) {
  return ronda::testing::Machine().memory().GiveAccess(range, bytes, device) ? kCudaSuccess : kCudaInvalidValue;
}

int fake_cuda_free_range(void* range) {
  return ronda::testing::Machine().memory().FreeRange(range) ? kCudaSuccess : kCudaInvalidValue;
}
