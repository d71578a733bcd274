#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_DEVICE_TURNS_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_DEVICE_TURNS_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <string>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"

namespace ronda::testing {

// Lets a device run one kernel of NCCL's at a time, as a device does whose kernels fill it. Which of those on different
// streams runs first is up to the device: with an odd number, the last. So communicators deadlock that are launched in
// different orders on two ranks, or whose launches nothing orders on the device; that is reported (reports.h).
//
// Thread-safe.
class DeviceTurns {
 public:
  // Of the device with this number, in this process.
  static DeviceTurns& Of(int device);

  // A group of operations that has been put on a stream.
  struct Launch {
    std::string communicator;
    void* stream = nullptr;
    bool has_begun = false;
  };
  using Place = std::list<Launch>::iterator;
  Place Add(std::string communicator, void* stream);

  // Called by the stream when it comes to the launch. Returns when the device is free for it, or when `gives_up` is
  // set.
  void Begin(Place place, const std::atomic<bool>& gives_up);
  void End(Place place);

 private:
  explicit DeviceTurns(int device) : device_(device) {}

  // Whether something on another stream has not begun.
  bool HasRival(const Launch& launch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int device_;
  Mutex mu_;
  std::list<Launch> launches_ ABSL_GUARDED_BY(mu_);
  const Launch* running_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_DEVICE_TURNS_H_
