// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/job_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ronda::chaos {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class JobLogTest : public ::testing::Test {
 protected:
  void Add(const std::string& line) { log_.Read(text_ += line + "\n"); }

  std::string text_;
  JobLog log_{2};
};

TEST_F(JobLogTest, KnowsTheMembersAndHowFarTheyAre) {
  Add("rondarun: job 0123456789abcdef0123456789abcdef: 2 ranks of train --epochs 3");
  Add("rondarun: member 0 is pid 70 on host vm");
  Add("[0]<stdout>: 2 ranks go on after step 0");
  Add("[0]<stdout>: epoch 1 is done");
  Add("rondarun: member 2 is pid 72 on host vm");
  Add("rondarun: epoch 1 begins with members 0, 2");
  EXPECT_FALSE(log_.have_met());
  Add("[0]<stdout>: 2 ranks go on after step 12");
  EXPECT_TRUE(log_.have_met());
  Add("[0]<stdout>: epoch 2: accuracy 0.9310");
  log_.Read(text_ += "[0]<stdout>: epoch 3 is");
  EXPECT_EQ(log_.job_id(), "0123456789abcdef0123456789abcdef");
  EXPECT_THAT(log_.pids(), ElementsAre(Pair(0, 70), Pair(2, 72)));
  EXPECT_THAT(log_.members(), ElementsAre(0, 2));
  EXPECT_THAT(log_.beginnings(), ElementsAre(0, 12));
  EXPECT_EQ(log_.epochs(), 2);
  EXPECT_EQ(log_.passes(), 2) << "the line of the third is not whole";
  EXPECT_DOUBLE_EQ(log_.accuracy(), 0.931);
  EXPECT_TRUE(log_.HasBeenPlaced(1));
  EXPECT_FALSE(log_.HasBeenPlaced(3));
  Add(" done");
  EXPECT_EQ(log_.passes(), 3);
}

TEST_F(JobLogTest, AfterALossOnlyAStepOfTheOthersIsProgress) {
  EXPECT_FALSE(log_.HasTrained());
  Add("[0]<stdout>: 2 ranks go on after step 0");
  EXPECT_TRUE(log_.HasTrained());
  log_.ExpectLossOf(1);
  Add("[0]<stdout>: epoch 1 is done");
  EXPECT_FALSE(log_.HasTrained()) << "it was written before";
  Add("rondarun: epoch 1 begins with members 0, 1");
  Add("[0]<stdout>: 2 ranks go on after step 20");
  Add("[0]<stdout>: 2 ranks go on after step 21");
  EXPECT_FALSE(log_.HasTrained()) << "the member was still there";
  Add("rondarun: epoch 2 begins with member 0");
  Add("[0]<stdout>: 1 rank go on after step 21");
  EXPECT_FALSE(log_.HasTrained());
  Add("rondarun: epoch 3 begins with members 0, 3");
  Add("[0]<stdout>: 2 ranks go on after step 22");
  EXPECT_TRUE(log_.HasTrained());
}

TEST_F(JobLogTest, APassIsProgressToo) {
  log_.ExpectLossOf(0);
  Add("rondarun: epoch 1 begins with member 1");
  Add("[1]<stdout>: 1 rank go on after step 20");
  Add("[1]<stdout>: epoch 7 is done");
  EXPECT_TRUE(log_.HasTrained());
}

}  // namespace
}  // namespace ronda::chaos
