// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_JOBS_STRAGGLER_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_STRAGGLER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "absl/time/time.h"
#include "programs/monitor/jobs/job_snapshot.h"
#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// The measurement of a bucket that all ranks have entered.
struct MeasuredBucket {
  uint64_t step = 0;
  FlightTime first;       // when the first rank entered it
  RankId last = 0;        // the rank that came last
  absl::Duration waited;  // of the first rank for the last one
};

// Distinguishes three cases: a rank is late in most steps, a rank was late once, or the ranks' times just vary at
// random.
//
// The last rank of a step is the one that the others waited for longest. A window is 100 steps long, and the last
// window ends with the newest step. A rank is the straggler of a window if it was the last rank in at least half of the
// steps, and if the others waited long for it: the waits for this rank, minus the average of the waits for each other
// rank, must exceed 5 % of the window's duration.
//
// A pure state machine. Thread-compatible.
class StragglerWatch {
 public:
  static constexpr size_t kWindowSteps = 100;
  static constexpr size_t kChronicWindows = 3;
  static constexpr size_t kFewestSteps = 20;  // fewer steps allow no conclusion
  static constexpr double kStragglersShare = 0.05;

  explicit StragglerWatch(size_t ranks) : ranks_(ranks) {}

  // Adds a bucket. Buckets must be added in the order in which the ranks enter them.
  void Add(const MeasuredBucket& bucket);
  // Records that some buckets are missing before the next one. The length of the current step is then unknown.
  void Skip() { running_.reset(); }

  // Returns the verdict on the steps that have ended. Leaves the reason (`why`) unset.
  StragglerVerdict Judge() const;

 private:
  struct Step {
    FlightTime begin;
    absl::Duration length;
    RankId last = 0;
    absl::Duration waited;
  };
  struct RunningStep {
    uint64_t number = 0;
    FlightTime begin;
    std::map<RankId, absl::Duration> waited;  // for each rank
  };
  struct Window {
    std::optional<RankId> straggler;
    int last_steps = 0;
    absl::Duration waited;  // for the straggler
    absl::Duration span;
    FlightTime since;
  };

  void EndStep(FlightTime now);
  Window JudgeWindow(size_t begin, size_t end) const;
  StragglerVerdict FindEvent(size_t begin, const Window& window) const;

  const size_t ranks_;
  std::optional<RunningStep> running_;
  std::deque<Step> steps_;  // that have ended; as many as are judged
};

// Reports each chronic straggler once, and again only if it was not a straggler for a minute in between.
//
// Thread-compatible.
class StragglerAlarm {
 public:
  static constexpr absl::Duration kForgetting = absl::Minutes(1);

  // Returns whether the caller should report the verdict at time `now`.
  bool IsNews(const StragglerVerdict& verdict, FlightTime now);

 private:
  std::map<RankId, FlightTime> last_seen_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_STRAGGLER_H_
