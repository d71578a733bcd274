#ifndef RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_MACHINE_H_
#define RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_MACHINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"
#include "tests/testing/fake_cuda/fake_cuda.h"
#include "tests/testing/fake_cuda/fake_memory.h"
#include "tests/testing/fake_cuda/fake_stream.h"

namespace ronda::testing {

// What there is behind the table of a FakeCuda: devices, and the objects that have been created on them. Thread-safe.
class FakeMachine {
 public:
  explicit FakeMachine(const FakeCuda::Options& options);

  const FakeCuda::Options& options() const { return options_; }
  FakeMemory& memory() { return memory_; }

  // 0, or why `device` cannot be asked for anything.
  int ErrorOf(int device) const;
  void FailDevice(int device, int error) { errors_[device].store(error); }

  void LoadKernels(int device) { have_kernels_[device].store(true); }
  bool HasKernels(int device) const { return have_kernels_[device].load(); }
  // Returns when its streams have nothing to do.
  void AwaitDevice(int device) const;

  // Of the functions of the table, so far or now.
  struct Calls {
    std::atomic<size_t> record_event{0};
    std::atomic<size_t> wait_event{0};
    std::atomic<int> waiting_frees{0};
  };
  Calls& calls() { return calls_; }

  // As FakeMemory's. What the streams have been given still finds the memory.
  bool Release(int device, void* memory);

  void* CreateStream(int device);
  bool DestroyStream(void* handle);
  // nullptr: there is none. The default stream's handle is nullptr, and its device that of the calling thread.
  std::shared_ptr<FakeStream> StreamOf(void* handle, int current_device);

  void* CreateEvent();
  bool DestroyEvent(void* handle);
  std::shared_ptr<FakeEvent> EventOf(void* handle);

  size_t created_events() const;
  std::string Leaks() const;

 private:
  // Of all devices, or of one.
  bool AreStreamsIdle(std::optional<int> device = std::nullopt) const;

  const FakeCuda::Options options_;
  Calls calls_;
  FakeMemory memory_;
  std::vector<std::atomic<int>> errors_;         // one a device
  std::vector<std::atomic<bool>> have_kernels_;  // likewise
  mutable Mutex mu_;
  std::map<void*, std::shared_ptr<FakeEvent>> events_ ABSL_GUARDED_BY(mu_);
  size_t created_events_ ABSL_GUARDED_BY(mu_) = 0;
  // Last, and so destroyed first: their threads use the others.
  std::vector<std::shared_ptr<FakeStream>> default_streams_
      ABSL_GUARDED_BY(mu_);  // one a device; nullptr: not used yet
  std::map<void*, std::shared_ptr<FakeStream>> streams_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<FakeStream>> destroyed_streams_ ABSL_GUARDED_BY(mu_);  // may still have something to do
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_MACHINE_H_
