// SPDX-License-Identifier: Apache-2.0

#include "client/elastic.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/job_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

TEST(StepMarksTest, AProcessBeginsWithoutAState) {
  StepMarks marks;
  marks.BeginUpdate();
  EXPECT_FALSE(marks.has_state());
  EXPECT_FALSE(marks.is_inconsistent());
  EXPECT_EQ(marks.steps(), -1);
}

TEST(StepMarksTest, AStepIsCompleteAtItsSecondMark) {
  StepMarks marks;
  marks.Begin();
  EXPECT_EQ(marks.steps(), 0);
  for (int step = 0; step < 3; ++step) {
    marks.BeginUpdate();
    marks.BeginUpdate();
    EXPECT_TRUE(marks.is_inconsistent());
    EXPECT_EQ(marks.steps(), step);
    marks.EndUpdate();
    EXPECT_FALSE(marks.is_inconsistent());
    EXPECT_EQ(marks.steps(), step + 1);
  }
  marks.EndUpdate();
  EXPECT_EQ(marks.steps(), 4) << "a step whose beginning nobody has marked";
}

TEST(StepMarksTest, AStateThatIsTakenOverIsOfItsStep) {
  for (const bool is_inconsistent : {false, true}) {
    StepMarks marks;
    marks.Begin();
    if (is_inconsistent) marks.BeginUpdate();
    marks.BringTo(41);
    marks.BeginUpdate();
    EXPECT_TRUE(marks.is_inconsistent());
    marks.EndUpdate();
    EXPECT_EQ(marks.steps(), 41);
    marks.EndUpdate();
    EXPECT_EQ(marks.steps(), 42);
  }
}

TEST(StepMarksTest, AStateThatIsNotTakenAfterAllIsForgotten) {
  StepMarks marks;
  marks.BringTo(41);
  marks.BringTo(std::nullopt);
  marks.EndUpdate();
  EXPECT_EQ(marks.steps(), 1);
}

// Parses a rank's state: "-" means no state, "7" a complete state of step 7, "7!" an inconsistent state, and "7!5" an
// inconsistent state with a snapshot of step 5.
StateFacts Facts(const std::string& rank_state, RankId rank) {
  StepMarks marks;
  int64_t snapshot = -1;
  if (rank_state != "-") {
    const size_t mark = rank_state.find('!');
    marks.BringTo(std::stoll(rank_state));
    marks.EndUpdate();
    if (mark != std::string::npos) {
      marks.BeginUpdate();
      if (mark + 1 < rank_state.size()) snapshot = std::stoll(rank_state.substr(mark + 1));
    }
  }
  return FactsOf(marks, snapshot, rank).value();
}

std::string Decide(const std::vector<std::string>& ranks) {
  StateFacts maxima = Facts(ranks[0], 0);
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    const StateFacts facts = Facts(ranks[rank], static_cast<RankId>(rank));
    for (size_t i = 0; i < maxima.size(); ++i) maxima[i] = std::max(maxima[i], facts[i]);
  }
  const auto source = DecideSource(maxima, static_cast<int>(ranks.size()));
  if (!source.ok()) return std::string(source.status().message());
  return absl::StrCat(source->step, " of ", source->rank, source->is_snapshot ? " snapshot" : "",
                      source->any_behind ? " behind" : "");
}

TEST(StateSourceTest, TheLowestRankWithTheMostCompleteStepsIsTheSource) {
  EXPECT_EQ(Decide({"7"}), "7 of 0");
  EXPECT_EQ(Decide({"7", "7", "7"}), "7 of 0");
  EXPECT_EQ(Decide({"6", "7", "7"}), "7 of 1 behind");
  EXPECT_EQ(Decide({"7", "7", "6"}), "7 of 0 behind");
  EXPECT_EQ(Decide({"7!", "-", "7"}), "7 of 2 behind");
  EXPECT_EQ(Decide({"8!", "7"}), "7 of 1 behind") << "inconsistent after step 8 counts for nothing";
  EXPECT_EQ(Decide({"0", "-"}), "0 of 0 behind");
}

TEST(StateSourceTest, WhereNobodyHasAStateRankZeroHas) {
  EXPECT_EQ(Decide({"-"}), "0 of 0");
  EXPECT_EQ(Decide({"-", "-"}), "0 of 0 behind");
}

TEST(StateSourceTest, ASnapshotCountsWhereItIsNewerThanAllCompleteStates) {
  EXPECT_EQ(Decide({"7!5", "7!5", "-"}), "5 of 0 snapshot behind");
  EXPECT_EQ(Decide({"7!", "7!5"}), "5 of 1 snapshot behind");
  EXPECT_EQ(Decide({"7!5", "5"}), "5 of 1 behind") << "a state that is there comes before a copy of it";
  EXPECT_EQ(Decide({"7!6", "5"}), "6 of 0 snapshot behind");
  EXPECT_EQ(Decide({"7!5", "8!7"}), "7 of 1 snapshot behind");
}

TEST(StateSourceTest, WhereAllStatesAreInconsistentTheErrorSaysWhatToDo) {
  EXPECT_THAT(Decide({"7!", "7!", "-"}), HasSubstr("snapshot_every"));
}

TEST(StateSourceTest, AStepBeyondAllNumbersIsRefused) {
  StepMarks marks;
  EXPECT_EQ(FactsOf(marks, (int64_t{1} << 40) + 1, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(FactsOf(marks, int64_t{1} << 40, (1 << 20) - 1).ok());
}

TEST(EnvironmentAtTest, ThePlaceReplacesTheVariablesOfAnEarlierEpoch) {
  const EnvironmentReader before = [](const char* name) -> std::optional<std::string> {
    return absl::StrCat("old ", name);
  };
  EpochPlace place = {
      .epoch = 5,
      .topology = {.rank = 3, .size = 6, .local_rank = 1, .local_size = 2, .cross_rank = 1, .cross_size = 3}};
  const EnvironmentReader at = EnvironmentAt(place, before);
  EXPECT_EQ(at("RONDA_RANK"), "3");
  EXPECT_EQ(at("RONDA_SIZE"), "6");
  EXPECT_EQ(at("RONDA_LOCAL_RANK"), "1");
  EXPECT_EQ(at("RONDA_LOCAL_SIZE"), "2");
  EXPECT_EQ(at("RONDA_CROSS_RANK"), "1");
  EXPECT_EQ(at("RONDA_CROSS_SIZE"), "3");
  EXPECT_EQ(at("RONDA_EPOCH"), "5");
  EXPECT_EQ(at("RONDA_JOB_ID"), "old RONDA_JOB_ID");
  EXPECT_EQ(at("RONDA_MASTER_PORT"), "old RONDA_MASTER_PORT");
  place.master_address = "10.0.0.1";
  place.master_port = 29500;
  EXPECT_EQ(EnvironmentAt(place, before)("RONDA_MASTER_ADDR"), "10.0.0.1");
  EXPECT_EQ(EnvironmentAt(place, before)("RONDA_MASTER_PORT"), "29500");
}

TEST(HasOwnPlaceTest, ASizeIsAPlaceAndAnEpochAloneIsAnError) {
  ronda_options options = RONDA_OPTIONS_INIT;
  EXPECT_FALSE(HasOwnPlace(nullptr).value());
  EXPECT_FALSE(HasOwnPlace(&options).value());
  options.epoch = 3;
  EXPECT_THAT(HasOwnPlace(&options).status().message(), HasSubstr("leave it 0"));
  options.size = 2;
  EXPECT_TRUE(HasOwnPlace(&options).value());
}

}  // namespace
}  // namespace ronda
