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
// streams runs first is up to the device: with an odd number, the last. So communicators deadlock whose launches
// nothing orders on the device; that is reported (reports.h).
//
// Communicators that two devices share must be launched in the same order on both, whatever orders them there. A launch
// out of that order is reported and hangs, also where it would have come through by chance.
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
    std::string misorder = {};  // not empty: what is wrong with its place among the launches
  };
  using Place = std::list<Launch>::iterator;

  // `ranks` ranks, each on a device of its own, will launch the communicator; this device is one of theirs.
  void Join(const std::string& communicator, int ranks);
  // A rank ends the communicator: its launches are not compared with those of others any more.
  static void Leave(const std::string& communicator);
  // Of a group without collectives, some ranks may have nothing to launch: its place is not compared.
  enum class Group : uint8_t { kOfAllRanks, kOfSomeRanks };
  Place Add(std::string communicator, void* stream, Group group);

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
