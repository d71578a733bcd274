// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_SPIN_TIME_H_
#define RONDA_RUNTIME_CONTROL_SPIN_TIME_H_

#include <algorithm>

#include "absl/time/time.h"

namespace ronda {

// Decides how long a thread spins for a message before it sleeps. A longer spin can replace a short sleep, but not a
// long one. So after a short sleep the thread spins longer the next time. After a long sleep it spins for a shorter
// time, or not at all.
//
// Thread-compatible.
class SpinTime {
 public:
  absl::Duration length() const { return length_; }

  // Must be called after the thread has spun for length() in vain, and has then slept for `slept`.
  void Learn(absl::Duration slept) {
    if (slept < 2 * kMost) {
      length_ = std::min(kMost, std::max(kLeast, 2 * length_));
    } else {
      length_ = length_ / 2 < kLeast ? absl::ZeroDuration() : length_ / 2;
    }
  }

 private:
  // A sleep and a wake-up take about 40 us, so longer spinning cannot save much time.
  static constexpr absl::Duration kMost = absl::Microseconds(40);
  static constexpr absl::Duration kLeast = absl::Microseconds(2);

  absl::Duration length_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_SPIN_TIME_H_
