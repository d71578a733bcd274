// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_MESSAGES_POLL_LIMIT_H_
#define RONDA_RUNTIME_CONTROL_MESSAGES_POLL_LIMIT_H_

#include "absl/time/time.h"
#include "runtime/base/clock.h"

namespace ronda {

// Limits how long a thread looks in vain for a message before it sleeps. The limit is 50 us, which is also how long a
// thread spins for another rank in a collective. If the ranks outnumber the cores, the limit is 16 looks. The thread
// then yields its core between the looks, because the rank that is to answer may need the core.
//
// Thread-compatible.
class PollLimit {
 public:
  enum class Cores { kAreShared, kSuffice };

  explicit PollLimit(Cores cores) : cores_(cores) {}

  // Call when something has come, or when the thread begins to look.
  void Reset() { looks_ = 0; }

  // Call after a look. Returns whether to look again.
  bool MayLookAgain() {
    ++looks_;
    if (cores_ == Cores::kAreShared) return looks_ <= kYields;
    const absl::Duration now = MonotonicTime();
    if (looks_ == 1) until_ = now + kTime;
    return now < until_;
  }

 private:
  static constexpr int kYields = 16;
  static constexpr absl::Duration kTime = absl::Microseconds(50);

  const Cores cores_;
  int looks_ = 0;  // since the last Reset
  absl::Duration until_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_MESSAGES_POLL_LIMIT_H_
