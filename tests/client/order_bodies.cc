// SPDX-License-Identifier: Apache-2.0

// Tests unnamed tensors, and process sets that are created by their members.
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/rank_bodies.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> RanksFrom(int first, int last) {
  std::vector<int> ranks;
  for (int rank = first; rank <= last; ++rank) ranks.push_back(rank);
  return ranks;
}

// --- Process sets that their members create ---

void DisjointSetsAreCreatedAtTheSameTime() {
  const int size = ronda::size(), rank = ronda::rank();
  const std::vector<int> low = RanksFrom(0, size / 2 - 1), high = RanksFrom(size / 2, size - 1);
  const std::vector<int>& own = rank < size / 2 ? low : high;
  const ProcessSet set = ronda::create_process_set(own, "half");
  EXPECT_EQ(set.ranks(), own);
  EXPECT_EQ(Sum("w", 1, {set}), own.size());
  ronda::barrier();
  EXPECT_EQ(ronda::process_sets().size(), low.empty() ? 2u : 3u) << "all ranks know all sets";
  for (const ProcessSet& other : ronda::process_sets()) EXPECT_EQ(other.included(), other == set || other.id() == 0);
  ronda::barrier();
  ronda::remove_process_set(set);
  ronda::barrier();
  EXPECT_THAT(ronda::process_sets(), ElementsAre(ProcessSet()));
}

// The last rank only trains, while the other ranks create, use and remove process sets.
void TheOthersGoOnMeanwhile() {
  const int size = ronda::size();
  if (size == 1) return;
  const std::vector<int> makers = RanksFrom(0, size - 2);
  for (int round = 0; round < 20; ++round) {
    if (ronda::rank() != size - 1) {
      const ProcessSet a = ronda::create_process_set(makers), b = ronda::create_process_set(makers, "b");
      EXPECT_FALSE(a == b);
      EXPECT_EQ(Sum("in a", 1, {a}) + Sum("in b", 1, {b}), 2 * makers.size());
      ronda::remove_process_set(a);
      ronda::remove_process_set(b);
    }
    EXPECT_EQ(Sum("training", 1), size);
  }
}

void BadCreationsAreExplained() {
  const int size = ronda::size(), rank = ronda::rank();
  const auto explain = [](const std::vector<int>& ranks) {
    const auto set = ronda::try_create_process_set(ranks);
    EXPECT_EQ(set.status().code(), RONDA_ERROR_INVALID_ARGUMENT);
    return set.status().message();
  };
  EXPECT_THAT(explain({}), HasSubstr("no ranks"));
  EXPECT_THAT(explain({rank, rank}), HasSubstr("each once"));
  EXPECT_THAT(explain({rank, size}), HasSubstr("ranks of this job"));
  if (size == 1) return;
  EXPECT_THAT(explain({(rank + 1) % size}), HasSubstr("is not one of the members"));
  ProcessSet of_0(0);
  if (rank == 0) of_0 = ronda::create_process_set({0});
  ronda::barrier();
  if (rank != 0) of_0 = ronda::process_sets().back();
  ronda::barrier();
  if (rank != 0) {
    const Status status = ronda::try_remove_process_set(of_0);
    EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(status.message(), HasSubstr("is not in process set"));
  }
  ronda::barrier();
  if (rank == 0) ronda::remove_process_set(of_0);
}

// --- Tensors without a name ---

// Runs one step of a program without tensor names. The step has operations of several kinds, two of which are equal.
void Step(const CallOptions& call = {}) {
  const ProcessSet set = call.process_set;
  const int size = set.size(), rank = set.rank();
  float one = 1;
  std::vector<float> two(3, 2), same(3, 3);
  Handle first = ronda::allreduce_async(ronda::tensor("", two), {Op::Sum}, call);
  Handle second = ronda::allreduce_async(ronda::tensor("", same), {Op::Sum}, call);
  ronda::allreduce(ronda::tensor("", &one), {Op::Sum}, call);
  EXPECT_EQ(one, size);
  second.synchronize();
  first.synchronize();
  EXPECT_THAT(two, Each(2 * size));
  EXPECT_THAT(same, Each(3 * size));
  std::int32_t root = rank;
  ronda::broadcast(ronda::tensor("", &root), set.ranks().back(), call);
  EXPECT_EQ(root, size - 1);
  const std::vector<float> rows(static_cast<std::size_t>(rank) + 1, 1);
  const auto gathered = ronda::allgather("", rows.data(), {rank + 1}, call);
  EXPECT_EQ(gathered.size(), static_cast<std::size_t>(size * (size + 1) / 2));
  EXPECT_EQ(ronda::allgather_object("", rank, call).size(), static_cast<std::size_t>(size));
}

void UnnamedTensorsMeetInTheirOrder() {
  for (int i = 0; i < 30; ++i) Step();
}

void EachProcessSetHasAnOrderOfItsOwn() {
  const int size = ronda::size(), rank = ronda::rank();
  const std::vector<int> own = rank == 0 ? std::vector<int>{0} : RanksFrom(1, size - 1);
  const ProcessSet set = ronda::create_process_set(own);
  for (int i = 0; i < 10; ++i) {
    Step();
    for (int j = 0; j < (rank == 0 ? 3 : 1); ++j) Step({set});
  }
  ronda::remove_process_set(set);
}

// Submits 200 equal operations before waiting for any of them. A step that repeats has fewer names than that, so some
// operations get the same name. Operations with the same name run one after the other.
void ManyAlikeMayBeInFlight() {
  constexpr int kMany = 200;
  for (int round = 0; round < 3; ++round) {
    std::vector<float> values(kMany);
    std::vector<Handle> handles;
    for (int i = 0; i < kMany; ++i) {
      values[static_cast<std::size_t>(i)] = static_cast<float>(i);
      handles.push_back(ronda::allreduce_async(ronda::tensor("", &values[static_cast<std::size_t>(i)]), {Op::Sum}));
    }
    for (int i = kMany - 1; i >= 0; --i) {
      handles[static_cast<std::size_t>(i)].synchronize();
      EXPECT_EQ(values[static_cast<std::size_t>(i)], i * ronda::size());
    }
  }
}

// Rank r trains r + 1 batches and then calls join(). After the join, all ranks restart the numbering of their
// operations.
void UnnamedTensorsGoOnAfterAJoin() {
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int batch = 0; batch <= ronda::rank(); ++batch) {
      std::vector<float> gradient(5, 1);
      ronda::allreduce(ronda::tensor("", gradient));
      EXPECT_THAT(gradient, Each(1));
      EXPECT_EQ(ronda::allgather("", gradient.data(), {5}).size(), 5 * static_cast<std::size_t>(ronda::size() - batch));
    }
    ronda::join();
    Step();
  }
}

// Only rank 0 makes the first call, and gives up. Rank 0's next call matches the first call of the other ranks.
void ALateRankIsMetByTheNextCall() {
  float go = 0, value = 1;
  if (ronda::rank() == 0 && ronda::size() > 1) {
    CallOptions call;
    call.deadline = std::chrono::milliseconds(50);
    const Status status = ronda::try_allreduce(ronda::tensor("", &value), {Op::Sum}, call);
    EXPECT_EQ(status.code(), RONDA_ERROR_DEADLINE) << status.message();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("unnamed call"), HasSubstr("allreduce of float32 []")));
  }
  ronda::broadcast(ronda::tensor("go", &go), 0);
  EXPECT_EQ(Sum("", 1), ronda::size());
  Step();
}

// Checks the `status` of a call in which rank 1 submitted a broadcast of an int32, and the other ranks an allreduce.
void ExpectMismatch(const Status& status, int call) {
  EXPECT_EQ(status.code(), RONDA_ERROR_MISMATCH) << status.message();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("unnamed call " + std::to_string(call) + ", counted alike"),
                                      HasSubstr("says allreduce of float32 [3]"), HasSubstr("rank 1"),
                                      HasSubstr("says broadcast of int32 []")));
}

// One rank makes two calls in a different order than the other ranks, in the first step and after many equal steps.
void AnotherOrderIsAMismatchWithItsPosition() {
  const int size = ronda::size();
  if (size == 1) return;
  const ProcessSet set = ronda::create_process_set(RanksFrom(0, size - 1));
  constexpr int kCallsOfAStep = 6;
  const auto cross = [&](int call) {
    std::vector<float> sum(3, 1);
    std::int32_t copy = 1;
    const Tensor reduced = ronda::tensor("", sum), copied = ronda::tensor("", &copy);
    Status first, second;
    if (ronda::rank() == 1) {
      first = ronda::try_broadcast(copied, 0, {set});
      second = ronda::try_allreduce(reduced, {Op::Sum}, {set});
    } else {
      first = ronda::try_allreduce(reduced, {Op::Sum}, {set});
      second = ronda::try_broadcast(copied, 0, {set});
    }
    ExpectMismatch(first, call);
    ExpectMismatch(second, call + 1);
  };
  cross(1);
  for (int i = 0; i < 30; ++i) Step({set});
  cross(3 + 30 * kCallsOfAStep);
  for (int i = 0; i < 30; ++i) Step({set});
  ronda::remove_process_set(set);
}

void WhatNeedsANameSaysSo() {
  std::vector<float> value(2, 1);
  const Tensor unnamed = ronda::tensor("", value);
  EXPECT_THAT(ronda::try_grouped_allreduce("g", {unnamed}).message(), HasSubstr("the tensors of a group need names"));
  ReduceOptions options;
  options.compression = Compression::fp16;
  options.error_feedback = true;
  EXPECT_THAT(ronda::try_allreduce(unnamed, options).message(), HasSubstr("error feedback is kept by"));
  EXPECT_EQ(Sum("", 1), ronda::size()) << "calls that were refused do not count";
}

}  // namespace

std::vector<RankBody> OrderBodies() {
  return {{"DisjointSetsAreCreatedAtTheSameTime", DisjointSetsAreCreatedAtTheSameTime},
          {"TheOthersGoOnMeanwhile", TheOthersGoOnMeanwhile},
          {"BadCreationsAreExplained", BadCreationsAreExplained},
          {"UnnamedTensorsMeetInTheirOrder", UnnamedTensorsMeetInTheirOrder},
          {"EachProcessSetHasAnOrderOfItsOwn", EachProcessSetHasAnOrderOfItsOwn},
          {"ManyAlikeMayBeInFlight", ManyAlikeMayBeInFlight},
          {"UnnamedTensorsGoOnAfterAJoin", UnnamedTensorsGoOnAfterAJoin},
          {"ALateRankIsMetByTheNextCall", ALateRankIsMetByTheNextCall},
          {"AnotherOrderIsAMismatchWithItsPosition", AnotherOrderIsAMismatchWithItsPosition},
          {"WhatNeedsANameSaysSo", WhatNeedsANameSaysSo}};
}

}  // namespace ronda::testing
