// SPDX-License-Identifier: Apache-2.0

// Tests summaries of ranks in this process, which creates the summary file itself, as a launcher does.
#include "runtime/monitor/summary_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "runtime/monitor/rank_meter.h"
#include "runtime/monitor/rank_words.h"

namespace ronda {
namespace {

using ::testing::SizeIs;

void BeRank(int rank, int buckets) {
  const auto meter = RankMeter::Create({.job = "j", .topology = {.rank = rank, .size = 2, .hostname = "node"}});
  for (int i = 0; i < buckets; ++i) meter->PassBucket();
}

TEST(SummaryFileTest, HasTheFinalWordsOfRanksInTheOrderInWhichTheyLeft) {
  const SummaryFile file;
  BeRank(1, 3);
  BeRank(0, 7);
  const std::vector<std::string> all = file.Read();
  ASSERT_THAT(all, SizeIs(2));
  for (const int rank : {1, 0}) {
    RankWords words;
    std::memcpy(static_cast<void*>(&words), all[rank == 1 ? 0 : 1].data(), sizeof(words));
    EXPECT_EQ(words.rank, rank);
    EXPECT_EQ(words.buckets, rank == 1 ? 3u : 7u);
    EXPECT_EQ(words.ended, 1u);
  }
}

TEST(SummaryFileTest, RankBeyondItsLimitOnFilesLeavesNothingAndLives) {
  const SummaryFile file;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {.rlim_cur = sizeof(RankWords) / 2, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  LeaveForSummary(RankWords());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(file.Read(), SizeIs(0));
}

TEST(SummaryFileTest, FullFileGetsNoMore) {
  const SummaryFile file;
  ASSERT_EQ(ftruncate(file.fd(), SummaryFile::kMaxBytes), 0);
  BeRank(0, 1);
  EXPECT_EQ(lseek(file.fd(), 0, SEEK_END), static_cast<off_t>(SummaryFile::kMaxBytes));
}

}  // namespace
}  // namespace ronda
