// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_MACHINE_H_
#define RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_MACHINE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/cuda/plugin.h"
#include "tests/testing/fake_cuda/fake_capture.h"
#include "tests/testing/fake_cuda/fake_cuda.h"
#include "tests/testing/fake_cuda/fake_memory.h"

namespace ronda::testing {

// A queue of a device. Calls append the tasks of streams to the queue, and the device removes the tasks in the same
// order. A task leaves the queue when its stream begins it. So a task whose stream is busy blocks all tasks behind it,
// even those of other streams. CUDA's programming guide calls this a false dependency.
//
// Thread-safe.
class FakeQueue {
 public:
  // Appends a task, and returns its position.
  uint64_t Enter();
  // Waits until the task at position `place` is the first in the queue.
  void AwaitTurn(uint64_t place);
  // Removes the first task.
  void Leave();

 private:
  Mutex mu_;
  CondVar changed_;
  uint64_t entered_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t left_ ABSL_GUARDED_BY(mu_) = 0;
};

// A stream of a device. The stream's thread runs its tasks one after the other, while the callers continue.
//
// Thread-safe.
class FakeStream {
 public:
  // A kWait task waits for an event, or for the value of a word. It leaves the queue only when the wait is over.
  enum class Task { kWork, kWait };

  // If `delay_seed` is not 0, the stream pauses before some tasks, which the seed selects.
  FakeStream(int device, std::shared_ptr<FakeQueue> queue, uint64_t delay_seed);

  // Waits until all tasks are done.
  ~FakeStream();

  int device() const { return device_; }
  uint64_t id() const { return id_; }  // different for every stream
  // If the stream is being captured, adds the work to the capture instead. Returns 0, or the error of the capture.
  int Enqueue(std::function<void()> run, Task task = Task::kWork);

  // Returns whether all enqueued work is done.
  bool IsIdle() const;

  // Returns the capture of the stream, or nullptr if none is in progress.
  std::shared_ptr<FakeCapture> capture() const;
  void set_capture(std::shared_ptr<FakeCapture> capture);

  // Returns whether CUDA would order the stream with the default stream.
  bool is_blocking() const { return is_blocking_.load(); }
  void set_blocking() { is_blocking_.store(true); }

  void SetCapturing(int capturing);
  int capturing() const;

 private:
  struct Entry {
    std::function<void()> run;
    Task task;
    uint64_t place;  // in the queue
  };

  void Run();
  void RunEntry(const Entry& entry);
  void Pause();

  const int device_;
  const std::shared_ptr<FakeQueue> queue_;
  const uint64_t id_;
  std::atomic<bool> is_blocking_{false};
  std::minstd_rand random_;  // only the thread uses it; unused without pauses
  const uint64_t delay_seed_;
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Entry> tasks_ ABSL_GUARDED_BY(mu_);  // the first one is running
  bool is_closing_ ABSL_GUARDED_BY(mu_) = false;
  int capturing_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<FakeCapture> capture_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // declared last, because it uses the other members
};

// A point in the work of a stream. An event can be recorded several times; its recordings are numbered from 1.
//
// Thread-safe.
class FakeEvent {
 public:
  FakeEvent(int device, bool has_times) : device_(device), has_times_(has_times) {}

  // Returns the device on whose streams the event can be recorded.
  int device() const { return device_; }
  // Returns whether the event records the time.
  bool has_times() const { return has_times_; }

  // The point of a capture at which the event was last recorded. `capture` is nullptr if the stream was not being
  // captured.
  struct Captured {
    std::shared_ptr<FakeCapture> capture;
    FakeGraph::Nodes nodes;
  };
  void RecordCaptured(Captured captured);
  Captured captured() const;

  // Begins a recording and returns its number. Pass() completes the recording. Meanwhile the event may be recorded
  // again on another stream, so recordings may complete in any order.
  uint64_t Record();
  void Pass(uint64_t recording);

  uint64_t last_recording() const;  // 0: none
  // Recording 0 is always complete, as is an event in CUDA that was never recorded.
  bool IsPassed(uint64_t recording) const;
  void AwaitPassing(uint64_t recording) const;
  absl::Time passed_at() const;

 private:
  const int device_;
  const bool has_times_;
  mutable Mutex mu_;
  mutable CondVar changed_;
  Captured captured_ ABSL_GUARDED_BY(mu_);
  uint64_t recorded_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<uint64_t> incomplete_ ABSL_GUARDED_BY(mu_);  // recordings
  absl::Time passed_at_ ABSL_GUARDED_BY(mu_) = absl::UnixEpoch();
};

// The state of a FakeCuda: its devices, and the objects that have been created on them. Thread-safe.
class FakeMachine {
 public:
  explicit FakeMachine(const FakeCuda::Options& options);

  const FakeCuda::Options& options() const { return options_; }
  FakeMemory& memory() { return memory_; }

  // Returns 0 if `device` can be used, and otherwise the error.
  int ErrorOf(int device) const;
  void FailDevice(int device, int error) { errors_[device].store(error); }

  void LoadKernels(int device) { have_kernels_[device].store(true); }
  bool HasKernels(int device) const { return have_kernels_[device].load(); }

  // Opens the CUDA context of a device, as the first use of the device does.
  void OpenContext(int device) { have_contexts_[device].store(true); }
  bool HasContext(int device) const { return have_contexts_[device].load(); }

  // Waits until the device's streams are idle.
  void AwaitDevice(int device) const;

  // The number of calls so far, and the number of calls that are waiting.
  struct Calls {
    std::atomic<size_t> all{0};
    std::array<std::atomic<size_t>, sizeof(ronda_cuda_plugin) / sizeof(void*)> of_function{};
    std::atomic<size_t> finished_kernels{0};
    std::atomic<int> waiting_frees{0};
    std::atomic<int> waiting_allocations{0};
  };
  Calls& calls() { return calls_; }

  // Reports an error in a stream, and fails the device.
  void Report(int device, int error, absl::string_view what);

  // A stream calls this before work that uses `memory`. If any of the memory has been freed, reports the use and
  // returns false.
  bool MayUse(int device, const std::vector<const void*>& memory);

  void RecordRange(const char* name);
  std::vector<std::string> TakeRanges();

  // Like FakeMemory::Release. Work that was enqueued before this call can still use the memory.
  bool Release(int device, void* memory);

  void* CreateStream(int device);
  bool DestroyStream(void* handle);
  // Returns nullptr if there is no such stream. The default stream has the handle nullptr, and is on `current_device`.
  std::shared_ptr<FakeStream> StreamOf(void* handle, int current_device);

  // Functions for the captures in progress.
  void AddCapture(const std::shared_ptr<FakeCapture>& capture);
  std::vector<std::shared_ptr<FakeCapture>> captures() const;
  // Returns a capture of a stream that is ordered with the device's default stream, or nullptr if there is none.
  std::shared_ptr<FakeCapture> CaptureBesideDefaultStream(int device) const;

  void* AddGraph(std::shared_ptr<const FakeGraph> graph);
  std::shared_ptr<const FakeGraph> GraphOf(void* handle);
  bool DestroyGraph(void* handle);

  void* CreateEvent(int device, bool has_times);
  bool DestroyEvent(void* handle);
  std::shared_ptr<FakeEvent> EventOf(void* handle);

  size_t created_events() const;
  std::string Leaks() const;

 private:
  std::shared_ptr<FakeStream> NewStreamLocked(int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Returns whether the streams of `device`, or of all devices, are idle.
  bool AreStreamsIdle(std::optional<int> device = std::nullopt) const;

  const FakeCuda::Options options_;
  Calls calls_;
  FakeMemory memory_;
  std::vector<std::atomic<int>> errors_;         // one per device
  std::vector<std::atomic<bool>> have_kernels_;  // one per device
  std::vector<std::atomic<bool>> have_contexts_;
  mutable Mutex mu_;
  std::map<void*, std::shared_ptr<FakeEvent>> events_ ABSL_GUARDED_BY(mu_);
  size_t created_events_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::shared_ptr<FakeCapture>> captures_ ABSL_GUARDED_BY(mu_);
  std::map<void*, std::shared_ptr<const FakeGraph>> graphs_ ABSL_GUARDED_BY(mu_);
  uint64_t graphs_so_far_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::string> ranges_ ABSL_GUARDED_BY(mu_);
  // New streams of a device use its queues in turn.
  struct Queues {
    std::vector<std::shared_ptr<FakeQueue>> all;
    size_t next = 0;
  };
  std::vector<Queues> queues_ ABSL_GUARDED_BY(mu_);  // one entry per device
  // The streams are declared last so that they are destroyed first, because their threads use the other members.
  std::vector<std::shared_ptr<FakeStream>> default_streams_
      ABSL_GUARDED_BY(mu_);  // one per device; nullptr: not used yet
  std::map<void*, std::shared_ptr<FakeStream>> streams_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<FakeStream>> destroyed_streams_ ABSL_GUARDED_BY(mu_);  // may still have work
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_MACHINE_H_
