// SPDX-License-Identifier: Apache-2.0

// Tests groups of tensors, callbacks, and calls that submit several tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/run_ranks.h"

namespace ronda {
namespace {

using ::ronda::testing::Barrier;
using ::ronda::testing::CarryOut;
using ::ronda::testing::Received;
using ::ronda::testing::RunRuntimes;
using ::ronda::testing::SubmitAll;
using ::ronda::testing::Succeed;
using ::ronda::testing::Sum;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Returns a group with one tensor for each element of `data`.
std::vector<Submission> Group(const std::string& name, OpType op, std::vector<std::vector<float>>* data) {
  std::vector<Submission> submissions;
  for (size_t i = 0; i < data->size(); ++i) {
    Submission submission = Sum(absl::StrCat(name, "/", i), &(*data)[i]);
    submission.request.op = op;
    if (TraitsOf(op).by_rows) submission.output = nullptr;
    submission.request.group = name;
    submission.request.group_size = static_cast<int>(data->size());
    submissions.push_back(std::move(submission));
  }
  return submissions;
}

TEST(Groups, RunAsAWhole) {
  RunRuntimes(3, [](Runtime& runtime) {
    for (OpType op : {OpType::kAllreduce, OpType::kAllgather, OpType::kReduceScatter}) {
      for (int step = 0; step < 3; ++step) {
        std::vector<std::vector<float>> data(4, std::vector<float>(6, 1.0f));
        const auto handles = SubmitAll(runtime, Group(Name(op), op, &data));
        ASSERT_TRUE(handles.ok()) << handles.status();
        ASSERT_THAT(*handles, SizeIs(4));
        for (size_t i = 0; i < data.size(); ++i) {
          ASSERT_TRUE((*handles)[i]->Wait().ok());
          const auto& result = op == OpType::kAllreduce ? data[i] : Received<float>(*(*handles)[i]);
          EXPECT_THAT(result, Each(op == OpType::kAllgather ? 1.0f : 3.0f));
        }
      }
    }
  });
}

TEST(Groups, OneMembersMismatchFailsAll) {
  RunRuntimes(2, [](Runtime& runtime) {
    std::vector<std::vector<float>> data(3, std::vector<float>(2, 1.0f));
    if (runtime.topology().rank == 1) data[1].resize(5);
    const auto handles = SubmitAll(runtime, Group("g", OpType::kAllreduce, &data));
    ASSERT_TRUE(handles.ok());
    for (const auto& handle : *handles) {
      EXPECT_EQ(handle->Wait().code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(handle->Wait().message()), HasSubstr("g/1")) << "the culprit";
    }
    EXPECT_THAT(data[0], Each(1.0f)) << "nothing is written";
  });
}

TEST(Groups, AreSubmittedWholeOrNotAtAll) {
  RunRuntimes(1, [](Runtime& runtime) {
    std::vector<std::vector<float>> data(3, std::vector<float>(2, 1.0f));
    std::vector<Submission> group = Group("g", OpType::kAllreduce, &data);
    group.pop_back();
    EXPECT_EQ(SubmitAll(runtime, group).status().code(), absl::StatusCode::kInvalidArgument);
    group = Group("g", OpType::kAllreduce, &data);
    group[2].request.name = "g/0";
    EXPECT_EQ(SubmitAll(runtime, group).status().code(), absl::StatusCode::kAlreadyExists);
    const auto handles = SubmitAll(runtime, Group("g", OpType::kAllreduce, &data));
    ASSERT_TRUE(handles.ok()) << "nothing is left of the others: " << handles.status();
    for (const auto& handle : *handles) EXPECT_TRUE(handle->Wait().ok());
  });
}

// If two groups of the same name were in flight together, timing would decide which tensors belong to which group.
TEST(Groups, OfOneNameAreNotInFlightTogether) {
  RunRuntimes(2, [](Runtime& runtime) {
    std::vector<std::vector<float>> data(2, std::vector<float>(2, 1.0f));
    std::vector<std::shared_ptr<Handle>> handles;
    if (runtime.topology().rank == 0) {
      // Rank 1 submits nothing before it has met rank 0 in a barrier.
      handles = *SubmitAll(runtime, Group("g", OpType::kAllreduce, &data));
      std::vector<Submission> others = Group("g", OpType::kAllreduce, &data);
      for (Submission& other : others) absl::StrAppend(&other.request.name, "/other");
      const absl::Status refused = SubmitAll(runtime, others).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
      EXPECT_THAT(std::string(refused.message()), HasSubstr("group 'g' is in flight already"));
    }
    Succeed(runtime, Barrier("refused"));
    if (runtime.topology().rank == 1) handles = *SubmitAll(runtime, Group("g", OpType::kAllreduce, &data));
    for (const auto& handle : handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
    EXPECT_THAT(data, Each(Each(2.0f)));
  });
}

TEST(Callbacks, MaySubmitAndWait) {
  RunRuntimes(2, [](Runtime& runtime) {
    std::vector<float> first(3, 1.0f);
    std::vector<float> second(3, 1.0f);
    std::promise<absl::Status> status;
    const auto handle = runtime.Submit(Sum("first", &first));
    ASSERT_TRUE((*handle)
                    ->OnCompletion([&](const absl::Status& completed) {
                      EXPECT_TRUE(completed.ok());
                      status.set_value(CarryOut(runtime, Sum("second", &second)));
                    })
                    .ok());
    EXPECT_TRUE(status.get_future().get().ok());
    EXPECT_THAT(second, Each(2.0f));
  });
}

TEST(Callbacks, HaveRunWhenShutdownReturns) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ran{0};
    testing::RunRanks(2, [&](RankId rank, Transport transport) {
      const auto runtime = Runtime::Create({}, {.rank = rank, .size = 2}, std::move(transport));
      std::vector<float> data(3, 1.0f);
      const auto handle = runtime->Submit(Sum("x", &data));
      ASSERT_TRUE((*handle)->OnCompletion([&](const absl::Status&) { ++ran; }).ok());
      EXPECT_TRUE(runtime->Shutdown().ok());
      EXPECT_GE(ran.load(), 1);
    });
    EXPECT_EQ(ran.load(), 2);
  }
}

TEST(Callbacks, ExceptionFailsTheJobOnEveryRankAndNamesTheTensor) {
  testing::RunRanks(3, [](RankId rank, Transport transport) {
    const auto runtime = Runtime::Create({}, {.rank = rank, .size = 3}, std::move(transport));
    std::vector<float> data(3, 1.0f);
    const auto handle = runtime->Submit(Sum("x", &data));
    if (rank == 1) {
      ASSERT_TRUE((*handle)->OnCompletion([](const absl::Status&) { throw std::runtime_error("disk full"); }).ok());
    }
    absl::Status status;
    for (int step = 0; status.ok(); ++step) status = CarryOut(*runtime, Barrier(absl::StrCat("b", step % 4)));
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 (host localhost, pid "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("callback of tensor 'x' threw: disk full"));
    EXPECT_FALSE(runtime->Shutdown().ok());
  });
}

TEST(Callbacks, MayNotShutDown) {
  RunRuntimes(1, [](Runtime& runtime) {
    std::promise<absl::Status> status;
    const auto handle = runtime.Submit(Barrier("b"));
    ASSERT_TRUE((*handle)->OnCompletion([&](const absl::Status&) { status.set_value(runtime.Shutdown()); }).ok());
    EXPECT_EQ(status.get_future().get().code(), absl::StatusCode::kFailedPrecondition);
  });
}

TEST(Callbacks, AreToldOfTheJobsFailure) {
  testing::RunRanks(2, [](RankId rank, Transport transport) {
    auto runtime = Runtime::Create({}, {.rank = rank, .size = 2}, std::move(transport));
    std::promise<absl::Status> status;
    std::vector<float> data(3, 1.0f);
    if (rank == 0) {
      const auto handle = runtime->Submit(Sum("x", &data));
      // The job may already have failed because of rank 1.
      if (!handle.ok()) return;
      ASSERT_TRUE((*handle)->OnCompletion([&](const absl::Status& failed) { status.set_value(failed); }).ok());
      EXPECT_THAT(std::string(status.get_future().get().message()), HasSubstr("tensor 'x': rank 1"));
    } else {
      runtime->Abandon(absl::DataLossError("wrong input file"));
    }
  });
}

}  // namespace
}  // namespace ronda
