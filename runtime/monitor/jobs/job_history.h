#ifndef RONDA_RUNTIME_MONITOR_JOBS_JOB_HISTORY_H_
#define RONDA_RUNTIME_MONITOR_JOBS_JOB_HISTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/monitor/jobs/job_snapshot.h"

namespace ronda {

// What the epochs of one job come to together: sums over all of them, and one epoch as a whole, the newest that has
// made steps. It stays as large as that one, however many there are.
//
// The ranks are numbered anew in each epoch, so nothing that is about one rank is added up.
//
// Thread-compatible.
class JobHistory {
 public:
  // Each epoch once, as of its end; in any order.
  void Add(const JobSnapshot& epoch);

  // As lines: SummaryOf the one epoch, below a table of the sums if there is more than one, or another than 0.
  std::vector<std::string> Summary() const;

 private:
  // Over the epochs.
  struct Sums {
    int epochs = 0;
    int epochs_with_steps = 0;
    int64_t first_epoch = 0, last_epoch = 0;
    int least_ranks = 0, most_ranks = 0;
    uint64_t steps = 0;
    uint64_t timed_steps = 0;  // of epochs whose time per step is known
    absl::Duration time_in_steps;
    FlightTime begin = absl::InfiniteDuration();  // of the first step
    FlightTime end;                               // of the last one
  };

  void AddNumbers(int64_t number, int ranks);
  void AddSteps(const JobSnapshot& epoch);
  std::vector<std::string> SumLines() const;

  Sums sums_;
  JobSnapshot shown_;
  int64_t shown_epoch_ = -1;
  bool shown_has_steps_ = false;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_JOBS_JOB_HISTORY_H_
