// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_MESSAGES_POLL_LIMIT_H_
#define RONDA_RUNTIME_CONTROL_MESSAGES_POLL_LIMIT_H_

#include "absl/time/time.h"
#include "runtime/base/clock.h"

namespace ronda {

// Limits how long a thread polls for a message before it sleeps. The limit is 50 us, which is also how long a thread in
// a collective spins for another rank. If the ranks outnumber the cores, the limit is 16 polls, because the rank that
// must answer may need this thread's core. The thread yields its core between two polls.
//
// Thread-compatible.
class PollLimit {
 public:
  enum class Cores { kAreShared, kSuffice };

  explicit PollLimit(Cores cores) : cores_(cores) {}

  // Must be called when a message has arrived, and when the thread begins to poll.
  void Reset() { looks_ = 0; }

  // Must be called after each poll. Returns whether the thread may poll again.
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
