// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_JOBS_JOB_HISTORY_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_JOB_HISTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "programs/monitor/jobs/job_snapshot.h"

namespace ronda {

// The history of all epochs of one job. JobHistory keeps sums over the epochs, and the full snapshot of the newest
// epoch with steps. So its size does not grow with the number of epochs.
//
// A rank may have a different number in each epoch, so the sums do not include figures of single ranks.
//
// Thread-compatible.
class JobHistory {
 public:
  // Adds the last snapshot of an epoch. Call Add once per epoch, in any order.
  void Add(const JobSnapshot& epoch);

  // Returns the lines that SummaryOf() returns for the epoch whose snapshot is kept. If the job had several epochs, or
  // if its only epoch is not epoch 0, a table of the sums comes first.
  std::vector<std::string> Summary() const;

 private:
  // Sums over the epochs.
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

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_JOB_HISTORY_H_
