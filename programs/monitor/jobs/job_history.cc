// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/job_history.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "programs/monitor/jobs/reports.h"
#include "runtime/base/config.h"

namespace ronda {
namespace {

// Returns the rank that has seen the most steps of the epoch. A rank that died may not have seen the last steps.
const RankSnapshot& RankWithMostSteps(const JobSnapshot& epoch) {
  const auto steps = [](const RankSnapshot& rank) { return std::tuple(rank.sample.counts.steps, rank.totals.steps); };
  return *std::max_element(epoch.ranks.begin(), epoch.ranks.end(),
                           [&](const RankSnapshot& a, const RankSnapshot& b) { return steps(a) < steps(b); });
}

// "3", or "2 to 4".
std::string Range(int64_t least, int64_t most) {
  return least == most ? absl::StrCat(least) : absl::StrCat(least, " to ", most);
}

}  // namespace

void JobHistory::Add(const JobSnapshot& epoch) {
  if (epoch.ranks.empty()) return;
  const int64_t number = SplitName(epoch.job).epoch;
  AddNumbers(number, epoch.ranks.front().identity.topology.size);
  const bool has_steps = RankWithMostSteps(epoch).sample.counts.steps > 0;
  if (has_steps) AddSteps(epoch);
  if (std::tuple(has_steps, number) < std::tuple(shown_has_steps_, shown_epoch_)) return;
  shown_ = epoch;
  shown_epoch_ = number;
  shown_has_steps_ = has_steps;
}

void JobHistory::AddNumbers(int64_t number, int ranks) {
  const bool is_first = sums_.epochs++ == 0;
  sums_.first_epoch = is_first ? number : std::min(sums_.first_epoch, number);
  sums_.last_epoch = is_first ? number : std::max(sums_.last_epoch, number);
  sums_.least_ranks = is_first ? ranks : std::min(sums_.least_ranks, ranks);
  sums_.most_ranks = std::max(sums_.most_ranks, ranks);
}

// Watching may have begun in the middle of the epoch. The number of earlier steps is known, but not how long they took.
// AddSteps() assumes that they took as long as the steps that were seen.
void JobHistory::AddSteps(const JobSnapshot& epoch) {
  const RankSnapshot& rank = RankWithMostSteps(epoch);
  const uint64_t steps = rank.sample.counts.steps;
  ++sums_.epochs_with_steps;
  sums_.steps += steps;
  absl::Duration time;
  if (rank.totals.step_time > absl::ZeroDuration()) {
    time = rank.totals.step_time * static_cast<int64_t>(steps);
    sums_.timed_steps += steps;
    sums_.time_in_steps += time;
  }
  sums_.begin = std::min(sums_.begin, rank.sample.last_step - time);
  sums_.end = std::max(sums_.end, rank.sample.last_step);
}

std::vector<std::string> JobHistory::SumLines() const {
  std::vector<std::string> lines = {
      "summary of the job's epochs, on this host:",
      SummaryLine(
          "epochs",
          absl::StrCat(sums_.epochs, " looked at, numbered ", Range(sums_.first_epoch, sums_.last_epoch), ", of ",
                       Range(sums_.least_ranks, sums_.most_ranks), " ranks; ", sums_.epochs_with_steps, " made steps")),
      SummaryLine("steps", absl::StrCat(sums_.steps))};
  if (sums_.timed_steps > 0) {
    lines.push_back(SummaryLine(
        "time", absl::StrCat(TimeText(sums_.end - sums_.begin), " from the first step to the end of the last, ",
                             TimeText(sums_.time_in_steps), " of it in steps, ",
                             TimeText(sums_.time_in_steps / static_cast<int64_t>(sums_.timed_steps)), " in each")));
  }
  return lines;
}

std::vector<std::string> JobHistory::Summary() const {
  if (sums_.last_epoch == 0) return SummaryOf(shown_);
  std::vector<std::string> lines = SumLines();
  const std::vector<std::string> table = SummaryOf(shown_, absl::StrCat("epoch ", shown_epoch_, ": "));
  lines.insert(lines.end(), table.begin(), table.end());
  return lines;
}

}  // namespace ronda
