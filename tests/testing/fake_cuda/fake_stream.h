#ifndef RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_STREAM_H_
#define RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"

namespace ronda::testing {

// What a stream of a device does, done by a thread of its own: tasks one after the other, while the caller goes on.
//
// Thread-safe.
class FakeStream {
 public:
  // `delay_seed`: not 0 for a pause before each task, now and then, that depends on it.
  FakeStream(int device, uint64_t delay_seed);

  // Waits until everything is done.
  ~FakeStream();

  int device() const { return device_; }
  uint64_t id() const { return id_; }  // another for every stream
  void Enqueue(std::function<void()> task);

  // Whether everything that has been enqueued is done.
  bool IsIdle() const;

  void SetCapturing(int capturing);
  int capturing() const;

 private:
  void Run();
  void Pause();

  const int device_;
  const uint64_t id_;
  std::minstd_rand random_;  // of the thread; not used if there are no pauses
  const uint64_t delay_seed_;
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);  // the first is being done
  bool is_closing_ ABSL_GUARDED_BY(mu_) = false;
  int capturing_ ABSL_GUARDED_BY(mu_) = 0;
  std::thread thread_;  // last: uses the others
};

// A point in the work of streams, which may be set anew: each recording has a number, counted from 1.
//
// Thread-safe.
class FakeEvent {
 public:
  // The number of a new recording, which is passed later.
  uint64_t Record();
  void Pass(uint64_t recording);

  uint64_t last_recording() const;  // 0: none
  // Recording 0 is passed from the beginning, as CUDA has it.
  bool IsPassed(uint64_t recording) const;
  void AwaitPassing(uint64_t recording) const;
  absl::Time passed_at() const;

 private:
  mutable Mutex mu_;
  mutable CondVar changed_;
  uint64_t recorded_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t passed_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time passed_at_ ABSL_GUARDED_BY(mu_) = absl::UnixEpoch();
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_STREAM_H_
