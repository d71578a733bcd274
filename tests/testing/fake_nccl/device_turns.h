// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_TESTING_FAKE_NCCL_DEVICE_TURNS_H_
#define RONDA_TESTS_TESTING_FAKE_NCCL_DEVICE_TURNS_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <string>

#include "absl/base/thread_annotations.h"
#include "runtime/base/mutex.h"

namespace ronda::testing {

// Lets a device run one NCCL kernel at a time, as if each kernel filled the device. The device chooses which of the
// kernels on different streams runs first: a device with an odd number chooses the last one. So communicators deadlock
// if nothing orders their launches on the device. The fake reports such deadlocks (reports.h).
//
// Two devices must launch the communicators that they share in the same order. A launch in a different order is
// reported and hangs, even if it would have succeeded by chance.
//
// Thread-safe.
class DeviceTurns {
 public:
  // Returns this process's object for the device.
  static DeviceTurns& Of(int device);

  // A group of operations that has been enqueued on a stream.
  struct Launch {
    std::string communicator;
    void* stream = nullptr;
    bool has_begun = false;
    std::string misorder = {};  // not empty: what is wrong with its order among the launches
  };
  using Place = std::list<Launch>::iterator;

  // Adds a communicator of `ranks` ranks, each on its own device. One of the ranks uses this device.
  void Join(const std::string& communicator, int ranks);
  // Must be called when a rank ends the communicator. After that, its launches are no longer compared between devices.
  static void Leave(const std::string& communicator);
  // With kOfSomeRanks, which is for groups without collectives, the order is not compared, because some ranks may have
  // nothing to launch.
  enum class Group : uint8_t { kOfAllRanks, kOfSomeRanks };
  Place Add(std::string communicator, void* stream, Group group);

  // The stream calls this when it reaches the launch. Waits until the device is free or `gives_up` is set.
  void Begin(Place place, const std::atomic<bool>& gives_up);
  void End(Place place);

 private:
  explicit DeviceTurns(int device) : device_(device) {}

  // Returns whether another stream has a launch that has not begun.
  bool HasRival(const Launch& launch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int device_;
  Mutex mu_;
  std::list<Launch> launches_ ABSL_GUARDED_BY(mu_);
  const Launch* running_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_DEVICE_TURNS_H_
