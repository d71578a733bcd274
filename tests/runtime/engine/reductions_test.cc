// SPDX-License-Identifier: Apache-2.0

// Tests allreduce, reduce and reducescatter with runtimes of one to four ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/runtime/engine/job.h"

namespace ronda {
namespace {

using ::ronda::testing::AddSet;
using ::ronda::testing::Received;
using ::ronda::testing::RunRuntimes;
using ::ronda::testing::Succeed;
using ::ronda::testing::Sum;
using ::testing::Each;
using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class ReductionsWithRanks : public ::testing::TestWithParam<int> {};

TEST_P(ReductionsWithRanks, EveryReductionHasItsResultEverywhere) {
  const int size = GetParam();
  RunRuntimes(size, [size](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const auto reduced = [&](Reduction reduction) {
      int64_t value = rank + 1;
      Succeed(runtime, {.request = {.name = Name(reduction), .dtype = DType::kInt64, .reduction = reduction},
                        .input = &value,
                        .output = &value});
      return value;
    };
    int64_t product = 1;
    int64_t all_bits = 0;
    int64_t odd_bits = 0;
    int64_t common_bits = -1;
    for (int64_t value = 1; value <= size; ++value) {
      product *= value;
      all_bits |= value;
      odd_bits ^= value;
      common_bits &= value;
    }
    EXPECT_EQ(reduced(Reduction::kSum), size * (size + 1) / 2);
    EXPECT_EQ(reduced(Reduction::kAverage), (size + 1) / 2);
    EXPECT_EQ(reduced(Reduction::kMin), 1);
    EXPECT_EQ(reduced(Reduction::kMax), size);
    EXPECT_EQ(reduced(Reduction::kProduct), product);
    EXPECT_EQ(reduced(Reduction::kBitOr), all_bits);
    EXPECT_EQ(reduced(Reduction::kBitXor), odd_bits);
    EXPECT_EQ(reduced(Reduction::kBitAnd), common_bits);
  });
}

TEST_P(ReductionsWithRanks, ScalesApplyBeforeAndAfter) {
  const int size = GetParam();
  RunRuntimes(size, [size](Runtime& runtime) {
    std::vector<float> data(3, 1.0f);
    Submission submission = Sum("x", &data);
    submission.request.prescale = 0.5;
    submission.request.postscale = 4;
    Succeed(runtime, submission);
    EXPECT_THAT(data, Each(2.0f * static_cast<float>(size)));
  });
}

TEST_P(ReductionsWithRanks, ReduceWritesOnTheRootAlone) {
  const int size = GetParam();
  RunRuntimes(size, [size](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    for (int root = 0; root < size; ++root) {
      const std::vector<float> input(5, static_cast<float>(rank + 1));
      std::vector<float> output(5, -1.0f);
      Succeed(runtime, {.request = {.name = "r", .op = OpType::kReduce, .shape = {5}, .root = root},
                        .input = input.data(),
                        .output = rank == root ? output.data() : nullptr});
      EXPECT_THAT(output, Each(rank == root ? static_cast<float>(size * (size + 1)) / 2 : -1.0f));
    }
  });
}

TEST_P(ReductionsWithRanks, ReduceInPlaceLeavesOtherRanksInputsAlone) {
  const int size = GetParam();
  RunRuntimes(size, [size](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    std::vector<float> data(1000, static_cast<float>(rank + 1));
    Submission submission = Sum("r", &data);
    submission.request.op = OpType::kReduce;
    submission.request.root = size - 1;
    Succeed(runtime, submission);
    const int expected = rank == size - 1 ? size * (size + 1) / 2 : rank + 1;
    EXPECT_THAT(data, Each(static_cast<float>(expected)));
  });
}

TEST_P(ReductionsWithRanks, ReduceScatterGivesTheFirstRanksOneRowMore) {
  const int size = GetParam();
  RunRuntimes(size, [size](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    for (int rows : {0, 1, size, 2 * size + 1, 7}) {
      std::vector<double> input;
      for (int i = 0; i < 2 * rows; ++i) input.push_back(i);
      const auto handle = Succeed(runtime, {.request = {.name = absl::StrCat("rs", rows),
                                                        .op = OpType::kReduceScatter,
                                                        .dtype = DType::kFloat64,
                                                        .shape = {rows, 2}},
                                            .input = input.data()});
      ASSERT_NE(handle, nullptr);
      const int begin = rank * (rows / size) + std::min(rank, rows % size);
      const int count = rows / size + (rank < rows % size ? 1 : 0);
      EXPECT_THAT(handle->result().first_dims, ElementsAre(count));
      std::vector<double> expected;
      for (int i = 2 * begin; i < 2 * (begin + count); ++i) expected.push_back(i * size);
      EXPECT_EQ(Received<double>(*handle, 2), expected);
    }
  });
}

TEST_P(ReductionsWithRanks, AdasumOfEqualGradientsIsTheirAverageAndOfOrthogonalOnesTheirSum) {
  const int size = GetParam();
  RunRuntimes(size, [size](Runtime& runtime) {
    const size_t rank = static_cast<size_t>(runtime.topology().rank);
    std::vector<float> equal = {3.0f, -4.0f};
    Submission submission = Sum("equal", &equal);
    submission.request.reduction = Reduction::kAdasum;
    Succeed(runtime, submission);
    EXPECT_THAT(equal, ::testing::Pointwise(::testing::FloatNear(1e-5f), {3.0f, -4.0f}));
    std::vector<float> orthogonal(static_cast<size_t>(size), 0.0f);
    orthogonal[rank] = 2.0f;
    submission = Sum("orthogonal", &orthogonal);
    submission.request.reduction = Reduction::kAdasum;
    Succeed(runtime, submission);
    EXPECT_THAT(orthogonal, Each(2.0f));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ReductionsWithRanks, ::testing::Values(1, 2, 3, 4));

TEST(Reductions, FusedReduceScattersAndReducesKeepTheirResultsApart) {
  RunRuntimes(3, {.tunables = {.cycle_time = absl::Milliseconds(5)}}, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    std::vector<std::vector<float>> data;
    for (int i = 0; i < 6; ++i) data.emplace_back(static_cast<size_t>(4 + i), static_cast<float>(i));
    std::vector<std::shared_ptr<Handle>> handles;
    for (int i = 0; i < 6; ++i) {
      Submission submission = Sum(absl::StrCat("t", i), &data[static_cast<size_t>(i)]);
      submission.request.op = i % 2 == 0 ? OpType::kReduceScatter : OpType::kReduce;
      if (i % 2 == 0) submission.output = nullptr;
      submission.request.root = 2;
      handles.push_back(*runtime.Submit(submission));
    }
    for (int i = 0; i < 6; ++i) {
      const Handle& handle = *handles[static_cast<size_t>(i)];
      ASSERT_TRUE(handle.Wait().ok());
      if (i % 2 == 0) {
        EXPECT_THAT(Received<float>(handle), Each(3.0f * static_cast<float>(i)));
      } else if (rank == 2) {
        EXPECT_THAT(data[static_cast<size_t>(i)], Each(3.0f * static_cast<float>(i)));
      }
    }
  });
}

TEST(Reductions, SubsetsReduceAmongThemselves) {
  RunRuntimes(4, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const ProcessSetId odd = AddSet(runtime, {1, 3});
    const ProcessSetId low = AddSet(runtime, {0, 1, 2});
    // The two process sets have tensors of the same name in flight at once.
    std::vector<std::shared_ptr<Handle>> handles;
    std::vector<float> in_odd(3, static_cast<float>(rank));
    std::vector<float> in_low(3, static_cast<float>(rank));
    const auto submit = [&](ProcessSetId set, std::vector<float>* data) {
      Submission submission = Sum("x", data);
      submission.request.process_set = set;
      submission.request.reduction = Reduction::kAverage;
      handles.push_back(*runtime.Submit(submission));
    };
    if (rank == 1 || rank == 3) submit(odd, &in_odd);
    if (rank != 3) submit(low, &in_low);
    for (const auto& handle : handles) EXPECT_TRUE(handle->Wait().ok());
    EXPECT_THAT(in_odd, Each(rank == 1 || rank == 3 ? 2.0f : static_cast<float>(rank)));
    EXPECT_THAT(in_low, Each(rank == 3 ? 3.0f : 1.0f));
  });
}

struct OverflowCase {
  OpType op;
  Reduction reduction = Reduction::kSum;
};

class Overflow : public ::testing::TestWithParam<OverflowCase> {};

TEST_P(Overflow, IsToldToEveryRankWhoeverHasIt) {
  RunRuntimes(3, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const auto found = [&](float last) {
      std::vector<float> data = {1, 2, 3, 4, 5, rank == 1 ? last : 6.0f};
      Submission submission = Sum("x", &data);
      submission.request.op = GetParam().op;
      if (TraitsOf(GetParam().op).by_rows) submission.output = nullptr;
      submission.request.reduction = GetParam().reduction;
      submission.request.root = 2;
      submission.request.overflow = TensorRequest::Overflow::kDetected;
      const auto handle = Succeed(runtime, submission);
      return handle != nullptr && handle->result().overflow == OperationResult::Overflow::kFound;
    };
    EXPECT_FALSE(found(6));
    EXPECT_TRUE(found(kInfinity));
    EXPECT_TRUE(found(std::numeric_limits<float>::quiet_NaN()));
    EXPECT_TRUE(found(std::numeric_limits<float>::max()) == (GetParam().reduction == Reduction::kProduct));
    EXPECT_FALSE(found(6)) << "each step is judged by itself";
  });
}

INSTANTIATE_TEST_SUITE_P(Operations, Overflow,
                         ::testing::Values(OverflowCase{OpType::kAllreduce}, OverflowCase{OpType::kReduce},
                                           OverflowCase{OpType::kReduceScatter},
                                           OverflowCase{OpType::kReduceScatter, Reduction::kProduct}),
                         [](const auto& info) {
                           return absl::StrCat(Name(info.param.op), Name(info.param.reduction));
                         });

TEST(Reductions, OverflowIsNotLookedForWithoutBeingAsked) {
  RunRuntimes(2, [](Runtime& runtime) {
    std::vector<float> data = {kInfinity};
    EXPECT_EQ(Succeed(runtime, Sum("x", &data))->result().overflow, OperationResult::Overflow::kNone);
  });
}

TEST(Reductions, OverflowOfASubsetIsTheSubsetsBusiness) {
  RunRuntimes(3, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const ProcessSetId set = AddSet(runtime, {0, 2});
    if (rank == 1) return;
    std::vector<float> data(4, rank == 2 ? kInfinity : 0.0f);
    Submission submission = Sum("x", &data);
    submission.request.process_set = set;
    submission.request.op = OpType::kReduceScatter;
    submission.output = nullptr;
    submission.request.overflow = TensorRequest::Overflow::kDetected;
    EXPECT_EQ(Succeed(runtime, submission)->result().overflow, OperationResult::Overflow::kFound);
  });
}

// Adds up the gradients of many steps, and returns the largest error of the sum relative to the exact sum.
float DriftAfter(int steps, WireFormat wire, Submission::ErrorFeedback feedback) {
  constexpr size_t kCount = 300;
  std::atomic<float> drift{0};
  RunRuntimes(2, [&](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    std::vector<double> exact(kCount, 0.0);
    std::vector<double> got(kCount, 0.0);
    for (int step = 0; step < steps; ++step) {
      std::vector<float> sum(kCount);
      std::vector<float> mine(kCount);
      for (size_t i = 0; i < kCount; ++i) {
        // Each rank knows the contributions of both ranks, so it can compute the exact sum.
        const float parts[] = {0.3f + 1e-3f * static_cast<float>(i), -0.1f};
        mine[i] = parts[rank];
        exact[i] += static_cast<double>(parts[0]) + static_cast<double>(parts[1]);
      }
      Succeed(runtime, {.request = {.name = "g", .shape = {kCount}, .wire = wire},
                        .input = mine.data(),
                        .output = sum.data(),
                        .error_feedback = feedback});
      for (size_t i = 0; i < kCount; ++i) got[i] += static_cast<double>(sum[i]);
    }
    if (rank != 0) return;
    for (size_t i = 0; i < kCount; ++i) {
      drift = std::max(drift.load(), static_cast<float>(std::abs(got[i] - exact[i]) / exact[i]));
    }
  });
  return drift;
}

TEST(Reductions, ErrorFeedbackKeepsTheSumOfManyStepsCloseToTheExactOne) {
  for (WireFormat wire : {WireFormat::kFp8E4M3, WireFormat::kFp8E5M2, WireFormat::kBfloat16}) {
    const float without = DriftAfter(40, wire, Submission::ErrorFeedback::kOff);
    const float with = DriftAfter(40, wire, Submission::ErrorFeedback::kOn);
    EXPECT_LT(with, 0.75f * without) << Name(wire);
  }
  EXPECT_LT(DriftAfter(5, WireFormat::kNone, Submission::ErrorFeedback::kOn), 1e-6f) << "nothing to make up for";
}

}  // namespace
}  // namespace ronda
