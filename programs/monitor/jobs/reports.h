// SPDX-License-Identifier: Apache-2.0

// The texts about a job that people read. Pure functions.
#ifndef RONDA_PROGRAMS_MONITOR_JOBS_REPORTS_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_REPORTS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/monitor/jobs/job_snapshot.h"

namespace ronda {

// Identifies the job in two lines: its name, id, ranks and pace, the time since which it runs, the rondarun that has
// started it, and its command.
std::string HeadOf(const JobSnapshot& job);

// A table with one line per job, with the same facts.
std::string JobsTable(const std::vector<JobSnapshot>& jobs);

// A table with one line per rank: its process, its rates, its lateness and its schedule.
std::string RanksTable(const JobSnapshot& job);

// The job's own lines (HeadOf), and if possible the reason why the job does not go on, or not faster. Below them is the
// RanksTable, with the ranks at the top that cost the others most.
std::string TopText(const JobSnapshot& job);

// The rank that holds the others up, the cost, and the reason; empty if no rank does. One line, without its end.
// REQUIRES: `verdict` is about one of the ranks of `job`.
std::string DescribeStraggler(const JobSnapshot& job, const StragglerVerdict& verdict);

// The costs of a job that has ended: a table with one line per number. `of` is the job's part that the title names, for
// instance "epoch 3: ".
std::vector<std::string> SummaryOf(const JobSnapshot& job, absl::string_view of = "");

// "49.6 ms", "5.3 us", "1.23 s".
std::string TimeText(absl::Duration time);

// One line of that table.
std::string SummaryLine(absl::string_view name, absl::string_view text);

// Explains in several lines which ranks wait for which ranks, and why. If the job goes on, explains which rank is late.
std::string WhyText(const JobSnapshot& job);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_REPORTS_H_
