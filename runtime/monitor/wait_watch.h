// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_MONITOR_WAIT_WATCH_H_
#define RONDA_RUNTIME_MONITOR_WAIT_WATCH_H_

#include <cstddef>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// A function that is called once if a collective waits longer than its warning timeout.
class LateCall {
 public:
  explicit LateCall(absl::FunctionRef<void()> when_late) : when_late_(when_late) {}

  void Make() {
    if (!is_made_) when_late_();
    is_made_ = true;
  }

 private:
  const absl::FunctionRef<void()> when_late_;
  bool is_made_ = false;
};

// Describes a rank's current collective for warnings and errors.
struct RunningCollective {
  RankId self = 0;
  OpType op = OpType::kAllreduce;
  absl::string_view label;
  WaitLimits limits;
  size_t bytes_total = 0;
  size_t bytes_done = 0;  // this rank has finished its part of them
  // nullptr: none. The waiting code makes this call, because WaitWatch may be called under a lock.
  LateCall* late_call = nullptr;
};

// Returns for example "rank 3 (host h, pid 42) in allreduce 'conv1/weight', 0 of 400 bytes done".
std::string DescribeWait(const Peer& late, const RunningCollective& running);

// Watches one wait inside a collective, in which this rank waits for one other rank. Decides when the waiting code must
// check again, logs one warning, and returns an error if the wait must end.
//
//   WaitWatch watch(running, flights);
//   while (!condition) {
//     RONDA_RETURN_IF_ERROR(watch.Check(late));
//     ... sleep for at most watch.UntilNextCheck() ...
//   }
//
// Thread-compatible.
class WaitWatch {
 public:
  // The wait starts when the WaitWatch is constructed. `running` and `flights` must outlive it.
  WaitWatch(const RunningCollective& running, const FlightBoard& flights);

  // Must be called repeatedly during the wait for `late`.
  // Errors: DEADLINE_EXCEEDED that names the late rank and its last event.
  absl::Status Check(const Peer& late);

  bool has_warned() const { return has_warned_; }

  // Returns the time until Check() can have a new result.
  absl::Duration UntilNextCheck() const;

 private:
  // Describes the rank `late`, its last event, and the collective that it delays.
  std::string Report(const Peer& late) const;

  const RunningCollective& running_;
  const FlightBoard& flights_;
  const absl::Duration start_;  // MonotonicTime()
  bool has_warned_ = false;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_WAIT_WATCH_H_
