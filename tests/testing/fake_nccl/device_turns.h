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

// Lets a device run one NCCL kernel at a time, like a device whose kernels fill it. The device chooses which of the
// kernels on different streams runs first: a device with an odd number chooses the last. So communicators deadlock if
// nothing orders their launches on the device; the fake reports that (reports.h).
//
// Communicators that two devices share must be launched in the same order on both, however that order is enforced. A
// launch out of that order is reported and hangs, even if it would have succeeded by chance.
//
// Thread-safe.
class DeviceTurns {
 public:
  // The turns of the device with this number, in this process.
  static DeviceTurns& Of(int device);

  // A group of operations that has been put on a stream.
  struct Launch {
    std::string communicator;
    void* stream = nullptr;
    bool has_begun = false;
    std::string misorder = {};  // not empty: what is wrong with its order among the launches
  };
  using Place = std::list<Launch>::iterator;

  // `ranks` ranks, each on its own device, will launch the communicator; one of them uses this device.
  void Join(const std::string& communicator, int ranks);
  // A rank ends the communicator. Its launches are no longer compared with those of others.
  static void Leave(const std::string& communicator);
  // If a group has no collectives, some ranks may have nothing to launch, so its place is not compared.
  enum class Group : uint8_t { kOfAllRanks, kOfSomeRanks };
  Place Add(std::string communicator, void* stream, Group group);

  // Called by the stream when it reaches the launch. Returns when the device is free, or when `gives_up` is set.
  void Begin(Place place, const std::atomic<bool>& gives_up);
  void End(Place place);

 private:
  explicit DeviceTurns(int device) : device_(device) {}

  // Whether a launch on another stream has not begun.
  bool HasRival(const Launch& launch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int device_;
  Mutex mu_;
  std::list<Launch> launches_ ABSL_GUARDED_BY(mu_);
  const Launch* running_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_NCCL_DEVICE_TURNS_H_
