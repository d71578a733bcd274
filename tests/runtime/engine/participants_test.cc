// SPDX-License-Identifier: Apache-2.0

// Tests joins, and adding and removing process sets, with runtimes of two to four ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/runtime/engine/job.h"

namespace ronda {
namespace {

using ::ronda::testing::AddSet;
using ::ronda::testing::Barrier;
using ::ronda::testing::CarryOut;
using ::ronda::testing::Join;
using ::ronda::testing::Received;
using ::ronda::testing::RunRuntimes;
using ::ronda::testing::Succeed;
using ::ronda::testing::Sum;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Submission Average(const std::string& name, std::vector<float>* data) {
  Submission submission = Sum(name, data);
  submission.request.reduction = Reduction::kAverage;
  return submission;
}

TEST(Join, RanksWithMoreDataGoOnAndAverageOverThoseStillPresent) {
  RunRuntimes(3, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    for (int round = 0; round < 2; ++round) {
      // Rank r has r + 1 batches, and its gradient is r.
      for (int step = 0; step <= rank; ++step) {
        std::vector<float> data(3, static_cast<float>(rank));
        Succeed(runtime, Average(absl::StrCat("g", step), &data));
        EXPECT_THAT(data, Each(step == 0 ? 1.0f : step == 1 ? 1.5f : 2.0f));
      }
      const auto joined = Succeed(runtime, Join());
      ASSERT_NE(joined, nullptr);
      EXPECT_EQ(joined->result().number, 2) << "the last to join";
    }
  });
}

TEST(Join, RanksThatHaveJoinedCountAsZerosIfTheySaySo) {
  RunRuntimes(4, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    if (rank < 3) {
      std::vector<float> data(2, 4.0f);
      Succeed(runtime, Barrier("some have joined"));
      Succeed(runtime, Average("g", &data));
      EXPECT_THAT(data, Each(3.0f));
    } else {
      Succeed(runtime, Barrier("some have joined"));
    }
    const auto joined = Succeed(runtime, Join(kGlobalProcessSet, TensorRequest::Absent::kCountedAsZeros));
    ASSERT_NE(joined, nullptr);
    EXPECT_NE(joined->result().number, 3);
  });
}

TEST(Join, OperationThatNeedsEveryRankFailsAndNamesTheJoinedRank) {
  RunRuntimes(3, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    std::vector<float> data(3, 1.0f);
    if (rank != 1) {
      for (OpType op : {OpType::kReduceScatter, OpType::kAlltoall, OpType::kBroadcast, OpType::kScatter}) {
        Submission submission = Sum(Name(op), &data);
        submission.request.op = op;
        if (TraitsOf(op).by_rows) submission.output = nullptr;
        submission.request.root = 1;
        const absl::Status status = CarryOut(runtime, submission);
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << Name(op);
        EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1")) << Name(op);
      }
      Submission gathered = Sum("allgather", &data);
      gathered.request.op = OpType::kAllgather;
      gathered.output = nullptr;
      const auto handle = Succeed(runtime, gathered);
      EXPECT_THAT(handle->result().first_dims, ElementsAre(3, 0, 3));
      EXPECT_THAT(Received<float>(*handle), ::testing::SizeIs(6));
      Succeed(runtime, Barrier("b"));
    }
    Succeed(runtime, Join());
    Succeed(runtime, Sum("together again", &data));
  });
}

TEST(Join, IsAProcessSetsOwn) {
  RunRuntimes(3, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const ProcessSetId set = AddSet(runtime, {0, 1});
    std::shared_ptr<Handle> joined;
    if (rank == 0) joined = *runtime.Submit(Join(set));
    std::vector<float> data(3, 1.0f);
    Succeed(runtime, Sum("x", &data));
    EXPECT_THAT(data, Each(3.0f)) << "rank 0 is present in the job";
    if (rank == 1) joined = *runtime.Submit(Join(set));
    if (rank == 2) return;
    EXPECT_TRUE(joined->Wait().ok());
    EXPECT_EQ(joined->result().number, 1);
  });
}

TEST(ProcessSets, AreNumberedAlikeOnEveryRankAndKnownToAll) {
  RunRuntimes(3, [](Runtime& runtime) {
    EXPECT_EQ(AddSet(runtime, {0, 2}), 1U);
    EXPECT_EQ(AddSet(runtime, {1}), 2U);
    EXPECT_EQ(AddSet(runtime, {0, 2}), 3U) << "an equal set is another set";
    EXPECT_THAT(runtime.ProcessSetIds(), ElementsAre(0, 1, 2, 3));
    EXPECT_THAT((*runtime.ProcessSet(1))->ranks(), ElementsAre(0, 2));
    EXPECT_FALSE(runtime.ProcessSet(4).ok());
  });
}

TEST(ProcessSets, RemovedOnesFailWhatIsPendingAndRefuseMore) {
  RunRuntimes(3, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const ProcessSetId set = AddSet(runtime, {0, 1});
    std::vector<float> data(3, 1.0f);
    Submission in_set = Sum("x", &data);
    in_set.request.process_set = set;
    std::shared_ptr<Handle> lonely;
    if (rank == 0) lonely = *runtime.Submit(in_set);
    Succeed(runtime, {.request = {.name = "remove", .op = OpType::kRemoveProcessSet, .subject = set}});
    if (rank == 0) {
      EXPECT_EQ(lonely->Wait().code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(lonely->Wait().message()), HasSubstr(absl::StrCat("process set ", set, " was removed")));
    }
    EXPECT_EQ(runtime.Submit(in_set).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(AddSet(runtime, {0, 1}), set) << "ids are not used twice";
  });
}

TEST(ProcessSets, DisagreementAboutMembersIsExplained) {
  RunRuntimes(2, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const absl::Status status =
        CarryOut(runtime, {.request = {.name = "add", .op = OpType::kAddProcessSet, .members = {rank}}});
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
    EXPECT_THAT(runtime.ProcessSetIds(), ElementsAre(0));
  });
}

}  // namespace
}  // namespace ronda
