// SPDX-License-Identifier: Apache-2.0

// Tests runtimes of one to eight ranks in this process, over the in-process backend.
#include "runtime/engine/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/run_ranks.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ::ronda::testing::CarryOut;
using ::ronda::testing::RunRuntimes;
using ::ronda::testing::Sum;

class RuntimeWithRanks : public ::testing::TestWithParam<int> {};

TEST_P(RuntimeWithRanks, SumsAndAveragesOverRanks) {
  const int size = GetParam();
  RunRuntimes(size, [size](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    std::vector<float> data = {static_cast<float>(rank), 1};
    EXPECT_TRUE(CarryOut(runtime, Sum("sum", &data)).ok());
    EXPECT_THAT(data, ElementsAre(size * (size - 1) / 2.0f, size));
    Submission average = Sum("average", &data);
    average.request.reduction = Reduction::kAverage;
    EXPECT_TRUE(CarryOut(runtime, average).ok());
    EXPECT_THAT(data, ElementsAre(size * (size - 1) / 2.0f, size));
  });
}

TEST_P(RuntimeWithRanks, TensorsMeetByNameWhateverTheOrderOfSubmission) {
  RunRuntimes(GetParam(), [](Runtime& runtime) {
    constexpr int kTensors = 40;
    std::mt19937 random(runtime.topology().rank);
    for (int step = 0; step < 5; ++step) {
      std::vector<int> order(kTensors);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      std::vector<std::vector<float>> data(kTensors);
      std::vector<std::shared_ptr<Handle>> handles;
      for (int i : order) {
        data[i].assign(1 + i * 7, static_cast<float>(i));
        auto handle = runtime.Submit(Sum(absl::StrCat("tensor", i), &data[i]));
        ASSERT_TRUE(handle.ok()) << handle.status();
        handles.push_back(*std::move(handle));
      }
      for (const auto& handle : handles) EXPECT_TRUE(handle->Wait().ok());
      for (int i = 0; i < kTensors; ++i) {
        EXPECT_THAT(data[i], ::testing::Each(static_cast<float>(i * runtime.topology().size)));
      }
    }
  });
}

TEST_P(RuntimeWithRanks, GathersDifferingFirstDimensions) {
  const int size = GetParam();
  RunRuntimes(size, [size](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    for (int step = 0; step < 3; ++step) {  // the second and third use the response cache
      const std::vector<int32_t> mine(2 * rank, rank);
      const auto handle = runtime.Submit(
          {.request = {.name = "g", .op = OpType::kAllgather, .dtype = DType::kInt32, .shape = {rank, 2}},
           .input = mine.data()});
      ASSERT_TRUE(handle.ok()) << handle.status();
      ASSERT_TRUE((*handle)->Wait().ok());
      std::vector<int32_t> expected;
      for (int r = 0; r < size; ++r) expected.insert(expected.end(), 2 * r, r);
      const auto* first = reinterpret_cast<const int32_t*>((*handle)->result().data.get());
      const std::vector<int32_t> got(first, first + expected.size());
      EXPECT_EQ(got, expected);
      EXPECT_EQ((*handle)->result().first_dims.size(), static_cast<size_t>(size));
    }
  });
}

TEST_P(RuntimeWithRanks, BroadcastsFromEveryRoot) {
  RunRuntimes(GetParam(), [](Runtime& runtime) {
    for (int root = 0; root < runtime.topology().size; ++root) {
      std::vector<double> data(3, runtime.topology().rank);
      EXPECT_TRUE(
          CarryOut(
              runtime,
              {.request = {.name = "b", .op = OpType::kBroadcast, .dtype = DType::kFloat64, .shape = {3}, .root = root},
               .output = data.data()})
              .ok());
      EXPECT_THAT(data, ::testing::Each(static_cast<double>(root)));
    }
  });
}

TEST_P(RuntimeWithRanks, BarrierHoldsUntilEveryRankHasArrived) {
  const int size = GetParam();
  std::atomic<int> arrived{0};
  RunRuntimes(size, [&](Runtime& runtime) {
    ++arrived;
    EXPECT_TRUE(CarryOut(runtime, {.request = {.name = "barrier", .op = OpType::kBarrier}}).ok());
    EXPECT_EQ(arrived.load(), size);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, RuntimeWithRanks, ::testing::Values(1, 2, 3, 4, 8));

TEST(Runtime, MismatchIsToldToEveryRankAndTheNextCollectiveWorks) {
  RunRuntimes(3, [](Runtime& runtime) {
    std::vector<float> data(runtime.topology().rank == 2 ? 4 : 3, 1.0f);
    const absl::Status status = CarryOut(runtime, Sum("x", &data));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("tensor 'x'"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("shape [3]"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 (host localhost, pid"));
    EXPECT_THAT(data, ::testing::Each(1.0f)) << "nothing is written";
    data.assign(3, 1.0f);
    EXPECT_TRUE(CarryOut(runtime, Sum("x", &data)).ok());
    EXPECT_THAT(data, ::testing::Each(3.0f));
  });
}

TEST(Runtime, NameInFlightIsRefused) {
  RunRuntimes(2, [](Runtime& runtime) {
    std::vector<float> data(3, 1.0f);
    if (runtime.topology().rank == 0) {
      const auto first = runtime.Submit(Sum("x", &data));
      ASSERT_TRUE(first.ok());
      std::vector<float> other(3, 5.0f);
      const auto second = runtime.Submit(Sum("x", &other));
      EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
      EXPECT_THAT(std::string(second.status().message()), HasSubstr("'x' is in flight"));
      EXPECT_TRUE(CarryOut(runtime, {.request = {.name = "go", .op = OpType::kBarrier}}).ok());
      EXPECT_TRUE((*first)->Wait().ok());
    } else {
      EXPECT_TRUE(CarryOut(runtime, {.request = {.name = "go", .op = OpType::kBarrier}}).ok());
      EXPECT_TRUE(CarryOut(runtime, Sum("x", &data)).ok());
    }
    EXPECT_THAT(data, ::testing::Each(2.0f));
  });
}

TEST(Runtime, BadArgumentsAreRefusedAtOnce) {
  RunRuntimes(1, [](Runtime& runtime) {
    const auto refused = runtime.Submit({.request = {.name = "x", .shape = {1}}});
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("tensor 'x': input is null"));
  });
}

TEST(Runtime, ZeroElementsAreCarriedOut) {
  RunRuntimes(2, [](Runtime& runtime) {
    EXPECT_TRUE(CarryOut(runtime, {.request = {.name = "none", .shape = {0, 4}}}).ok());
  });
}

TEST(Runtime, TensorThatOneRankNeverSubmitsFailsAfterTheDeadlineAndTheJobGoesOn) {
  testing::FakeClock clock;
  const Runtime::Options options = {
      .tunables = {.stall_warning = absl::Milliseconds(50), .stall_deadline = absl::Milliseconds(200)},
      .clock = &clock};
  std::latch expired(1);
  RunRuntimes(2, options, [&](Runtime& runtime) {
    std::vector<float> data(3, 1.0f);
    if (runtime.topology().rank == 0) {
      const auto lonely = runtime.Submit(Sum("lonely", &data));
      ASSERT_TRUE(lonely.ok());
      const absl::Status status = testing::WaitAndAdvance(**lonely, &clock);
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(std::string(status.message()), HasSubstr("tensor 'lonely'"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("missing: rank 1"));
      expired.count_down();
    }
    expired.wait();
    EXPECT_TRUE(CarryOut(runtime, Sum("together", &data)).ok());
    EXPECT_THAT(data, ::testing::Each(2.0f));
  });
}

TEST(Runtime, SubmissionsAfterAnotherRankHasLeftFailAndNameIt) {
  RunRuntimes(2, [](Runtime& runtime) {
    if (runtime.topology().rank == 1) return;
    std::vector<float> data(3, 1.0f);
    const absl::Status status = CarryOut(runtime, Sum("late", &data));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("has shut down"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
  });
}

TEST(Runtime, RankThatEndsWithoutShutdownFailsTheOthersWithItsName) {
  testing::RunRanks(3, [](RankId rank, Transport transport) {
    auto runtime = Runtime::Create({}, {.rank = rank, .size = 3}, std::move(transport));
    if (rank == 1) return;
    std::vector<float> data(3, 1.0f);
    const absl::Status status = CarryOut(*runtime, Sum("x", &data));
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("without shutdown"));
    EXPECT_FALSE(runtime->Submit(Sum("y", &data)).ok()) << "the failure is sticky";
    EXPECT_FALSE(runtime->Shutdown().ok());
  });
}

TEST(Runtime, ShutdownRefusesNewTensorsAndIsIdempotent) {
  testing::RunRanks(1, [](RankId rank, Transport transport) {
    auto runtime = Runtime::Create({}, {.rank = rank}, std::move(transport));
    EXPECT_TRUE(runtime->Shutdown().ok());
    EXPECT_TRUE(runtime->Shutdown().ok());
    std::vector<float> data(3, 1.0f);
    EXPECT_EQ(runtime->Submit(Sum("x", &data)).status().code(), absl::StatusCode::kCancelled);
  });
}

TEST(Runtime, SettingsOfRankZeroHoldForTheJob) {
  testing::RunRanks(3, [](RankId rank, Transport transport) {
    const Tunables own = {.cache_capacity = static_cast<size_t>(2 * rank),
                          .stall_deadline = rank == 0 ? absl::InfiniteDuration() : absl::Milliseconds(1)};
    auto runtime = Runtime::Create({.tunables = own}, {.rank = rank, .size = 3}, std::move(transport));
    for (int step = 0; step < 20; ++step) {
      std::vector<float> data(3, 1.0f);
      ASSERT_TRUE(CarryOut(*runtime, Sum(absl::StrCat("x", step % 5), &data)).ok());
      EXPECT_THAT(data, ::testing::Each(3.0f));
    }
    EXPECT_TRUE(runtime->Shutdown().ok());
  });
}

TEST(Runtime, CycleTimeHoldsTensorsBackForCompanyButNotForever) {
  RunRuntimes(2, {.tunables = {.cycle_time = absl::Milliseconds(5)}}, [](Runtime& runtime) {
    std::vector<float> data(3, 1.0f);
    EXPECT_TRUE(CarryOut(runtime, Sum("x", &data)).ok());
    EXPECT_THAT(data, ::testing::Each(2.0f));
  });
}

}  // namespace
}  // namespace ronda
