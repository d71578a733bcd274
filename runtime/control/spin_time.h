// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_SPIN_TIME_H_
#define RONDA_RUNTIME_CONTROL_SPIN_TIME_H_

#include <algorithm>

#include "absl/time/time.h"

namespace ronda {

// How long a thread spins for a message before it sleeps. More spinning would have avoided a short sleep, but not a
// long one. So short sleeps make the time longer, and long sleeps make it shorter, down to nothing.
//
// Thread-compatible.
class SpinTime {
 public:
  absl::Duration length() const { return length_; }

  // The thread spun for length() in vain, and then slept this long.
  void Learn(absl::Duration slept) {
    if (slept < 2 * kMost) {
      length_ = std::min(kMost, std::max(kLeast, 2 * length_));
    } else {
      length_ = length_ / 2 < kLeast ? absl::ZeroDuration() : length_ / 2;
    }
  }

 private:
  // Going to sleep and waking up costs about as much, so longer spinning cannot gain much.
  static constexpr absl::Duration kMost = absl::Microseconds(40);
  static constexpr absl::Duration kLeast = absl::Microseconds(2);

  absl::Duration length_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_SPIN_TIME_H_
