// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/job_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "programs/monitor/jobs/reports.h"
#include "runtime/base/config.h"

namespace ronda {
namespace {

using ::testing::Contains;
using ::testing::ElementsAreArray;
using ::testing::Not;
using ::testing::StartsWith;

// Returns an epoch of two ranks with steps of 10 ms. The last step ends at `end`. Rank 1 was killed one step earlier.
JobSnapshot Epoch(int64_t epoch, uint64_t steps, absl::Duration end) {
  JobSnapshot job = {.job = NameInEpoch("job", epoch)};
  for (const RankId rank : {0, 1}) {
    const uint64_t seen = steps == 0 ? 0 : steps - static_cast<uint64_t>(rank);
    RankSnapshot snapshot = {.identity = {.job = job.job, .topology = {.rank = rank, .size = 2, .hostname = "h"}},
                             .sample = {.counts = {.steps = seen}, .last_step = seen == 0 ? FlightTime() : end}};
    if (seen > 50) snapshot.totals = {.steps = seen - 50, .step_time = absl::Milliseconds(10)};
    job.ranks.push_back(snapshot);
  }
  return job;
}

JobSnapshot OfRanks(int size, JobSnapshot job) {
  for (RankSnapshot& rank : job.ranks) rank.identity.topology.size = size;
  return job;
}

std::vector<std::string> SummaryOfAll(const std::vector<JobSnapshot>& epochs) {
  JobHistory history;
  for (const JobSnapshot& epoch : epochs) history.Add(epoch);
  return history.Summary();
}

TEST(JobHistoryTest, JobOfOneEpochHasItsTableAlone) {
  const JobSnapshot job = Epoch(0, 100, absl::Seconds(5));
  EXPECT_THAT(SummaryOfAll({job}), ElementsAreArray(SummaryOf(job)));
}

// One epoch has 2 s of steps and ends at 10 s. The next epoch has 1 s of steps and ends at 14 s.
TEST(JobHistoryTest, AddsEpochsUpAndShowsTheLastOne) {
  const JobSnapshot last = OfRanks(3, Epoch(1, 100, absl::Seconds(14)));
  std::vector<std::string> lines = {
      "summary of the job's epochs, on this host:",  //
      "  epochs          2 looked at, numbered 0 to 1, of 2 to 3 ranks; 2 made steps",
      "  steps           300",  //
      "  time            6 s from the first step to the end of the last, 3 s of it in steps, 10 ms in each"};
  for (const std::string& line : SummaryOf(last, "epoch 1: ")) lines.push_back(line);
  EXPECT_THAT(SummaryOfAll({Epoch(0, 200, absl::Seconds(10)), last}), ElementsAreArray(lines));
  EXPECT_THAT(SummaryOfAll({last, Epoch(0, 200, absl::Seconds(10))}), ElementsAreArray(lines)) << "in any order";
  EXPECT_THAT(lines, Contains("summary of epoch 1: 2 of 3 ranks, on this host:"));
}

TEST(JobHistoryTest, EpochWithoutStepsIsNotTheOneThatIsShown) {
  const std::vector<std::string> lines =
      SummaryOfAll({Epoch(0, 100, absl::Seconds(5)), Epoch(3, 0, absl::ZeroDuration())});
  EXPECT_THAT(lines, Contains("  epochs          2 looked at, numbered 0 to 3, of 2 ranks; 1 made steps"));
  EXPECT_THAT(lines, Contains("summary of epoch 0: 2 of 2 ranks, on this host:"));
  EXPECT_THAT(SummaryOfAll({Epoch(1, 0, absl::ZeroDuration()), Epoch(2, 0, absl::ZeroDuration())}),
              Contains("summary of epoch 2: 2 of 2 ranks, on this host:"))
      << "unless none has made steps";
}

// In a short epoch, the steps are only counted, not timed.
TEST(JobHistoryTest, MeanTimeOfAStepIsThatOfEpochsThatWereTimed) {
  EXPECT_THAT(SummaryOfAll({Epoch(0, 100, absl::Seconds(5)), Epoch(1, 20, absl::Seconds(7))}),
              Contains("  time            3 s from the first step to the end of the last, 1 s of it in steps, 10 ms in "
                       "each"));
  EXPECT_THAT(SummaryOfAll({Epoch(0, 20, absl::Seconds(5)), Epoch(1, 20, absl::Seconds(7))}),
              Not(Contains(StartsWith("  time  "))));
}

TEST(JobHistoryTest, ManyEpochsHaveOneTable) {
  JobHistory history;
  for (int64_t epoch = 0; epoch < 200; ++epoch) history.Add(Epoch(epoch, 100, absl::Seconds(2 * epoch + 5)));
  const std::vector<std::string> lines = history.Summary();
  EXPECT_EQ(lines.size(), 4 + SummaryOf(Epoch(199, 100, absl::Seconds(5))).size());
  EXPECT_THAT(lines, Contains("  steps           20000"));
  EXPECT_THAT(lines, Contains("  time            399 s from the first step to the end of the last, 200 s of it in "
                              "steps, 10 ms in each"));
}

}  // namespace
}  // namespace ronda
