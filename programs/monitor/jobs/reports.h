// SPDX-License-Identifier: Apache-2.0

// Makes the texts about a job that people read. All functions are pure.
#ifndef RONDA_PROGRAMS_MONITOR_JOBS_REPORTS_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_REPORTS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/monitor/jobs/job_snapshot.h"

namespace ronda {

// Returns two lines that identify the job: its name, id, ranks, speed and age, the rondarun that has started it, and
// its command.
std::string HeadOf(const JobSnapshot& job);

// Returns a table with one line per job: its name, ranks, rondarun, age, speed and command.
std::string JobsTable(const std::vector<JobSnapshot>& jobs);

// Returns a table with one line per rank: its process, its rates, its lateness and its schedule.
std::string RanksTable(const JobSnapshot& job);

// Returns the job's own lines (HeadOf), and if possible the reason why the job stands still or is slow. The RanksTable
// follows. In the RanksTable, the ranks for which the other ranks wait longest come first.
std::string TopText(const JobSnapshot& job);

// Returns one line, without a newline, about the rank that holds the other ranks up: its number, the cost and the
// reason. Returns an empty text if no rank holds the other ranks up. REQUIRES: `verdict` is about one of the ranks of
// `job`.
std::string DescribeStraggler(const JobSnapshot& job, const StragglerVerdict& verdict);

// Returns the costs of a job that has ended, as a table with one line per number. `of` says in the table's title which
// part of the job the table is about, for instance "epoch 3: ".
std::vector<std::string> SummaryOf(const JobSnapshot& job, absl::string_view of = "");

// "49.6 ms", "5.3 us", "1.23 s".
std::string TimeText(absl::Duration time);

// One line of SummaryOf's table.
std::string SummaryLine(absl::string_view name, absl::string_view text);

// Explains in several lines which ranks wait for which ranks, and why. If the job goes on, explains which rank is late.
std::string WhyText(const JobSnapshot& job);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_REPORTS_H_
