#ifndef RONDA_TESTS_TESTING_FAKE_CLOCK_H_
#define RONDA_TESTS_TESTING_FAKE_CLOCK_H_

#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"

namespace ronda::testing {

// A clock that stands still until a test advances it. Thread-safe.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::UnixEpoch() + absl::Hours(1)) : now_(start) {}

  absl::Time Now() const override {
    MutexLock lock(&mu_);
    return now_;
  }

  void Advance(absl::Duration duration) {
    MutexLock lock(&mu_);
    now_ += duration;
  }

 private:
  mutable Mutex mu_;
  absl::Time now_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CLOCK_H_
