// SPDX-License-Identifier: Apache-2.0

// Formats texts about a job for people to read. All functions are pure.
#ifndef RONDA_PROGRAMS_MONITOR_JOBS_REPORTS_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_REPORTS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/monitor/jobs/job_snapshot.h"

namespace ronda {

// Returns two lines that identify the job: its name, id, ranks, speed and age, the rondarun that started it, and its
// command.
std::string HeadOf(const JobSnapshot& job);

// Returns a table with one line per job: its name, ranks, rondarun, age, speed and command.
std::string JobsTable(const std::vector<JobSnapshot>& jobs);

// Returns a table with one line per rank: its process, its rates, its lateness and its schedule.
std::string RanksTable(const JobSnapshot& job);

// Returns the lines of HeadOf, then the reason why the job stands still or is slow, if it is known, and then the
// RanksTable. In this table, the ranks that the others wait for longest come first.
std::string TopText(const JobSnapshot& job);

// Returns one line, without a newline, about the straggler: its number, what it costs, and why it is late. Returns ""
// if there is no straggler. REQUIRES: the rank of `verdict` is one of the ranks of `job`.
std::string DescribeStraggler(const JobSnapshot& job, const StragglerVerdict& verdict);

// Returns the costs of a job that has ended, as a table with one line per figure. `of` is a part of the table's title
// that says what the table is about, for example "epoch 3: ".
std::vector<std::string> SummaryOf(const JobSnapshot& job, absl::string_view of = "");

// "49.6 ms", "5.3 us", "1.23 s".
std::string TimeText(absl::Duration time);

// Formats one line of SummaryOf's table.
std::string SummaryLine(absl::string_view name, absl::string_view text);

// Explains in several lines which ranks wait for which others, and why. If the job makes progress, explains which rank
// is late.
std::string WhyText(const JobSnapshot& job);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_REPORTS_H_
