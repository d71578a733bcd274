// What people read about a job. Pure functions.
#ifndef RONDA_RUNTIME_MONITOR_JOBS_REPORTS_H_
#define RONDA_RUNTIME_MONITOR_JOBS_REPORTS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/monitor/jobs/job_snapshot.h"

namespace ronda {

// Which job it is: its name, id, ranks and pace, since when it runs, started by which rondarun, and its command. Two
// lines.
std::string HeadOf(const JobSnapshot& job);

// A table with a line a job: the same.
std::string JobsTable(const std::vector<JobSnapshot>& jobs);

// A table with a line a rank: its process, its rates, its lateness and its schedule.
std::string RanksTable(const JobSnapshot& job);

// The same with the ranks that cost the others most at the top, below the job's own lines (HeadOf) and, if there is
// one, the answer to the question why it does not go on, or not faster.
std::string TopText(const JobSnapshot& job);

// Who holds the others up, how much that costs, and why; empty if no rank does. A line without its end.
// REQUIRES: `verdict` is about one of the ranks of `job`.
std::string DescribeStraggler(const JobSnapshot& job, const StragglerVerdict& verdict);

// What a job has cost, when it has ended: a table with a line for each number, as lines. `of` is its part that the
// title names, for instance "epoch 3: ".
std::vector<std::string> SummaryOf(const JobSnapshot& job, absl::string_view of = "");

// "49.6 ms", "5.3 us", "1.23 s".
std::string TimeText(absl::Duration time);

// A line of such a table.
std::string SummaryLine(absl::string_view name, absl::string_view text);

// Who waits for whom, and why; of a job that goes on, who is late. Several lines.
std::string WhyText(const JobSnapshot& job);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_JOBS_REPORTS_H_
