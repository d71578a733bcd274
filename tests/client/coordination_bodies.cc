// SPDX-License-Identifier: Apache-2.0

#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <thread>
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

void ProcessSetsOperateAmongThemselves() {
  const int size = ronda::size(), rank = ronda::rank();
  std::vector<int> even, all;
  for (int r = 0; r < size; ++r) {
    all.push_back(r);
    if (r % 2 == 0) even.push_back(r);
  }
  const ProcessSet evens = ronda::add_process_set(even);
  const ProcessSet everybody = ronda::add_process_set(all);
  EXPECT_EQ(evens.size(), static_cast<int>(even.size()));
  EXPECT_EQ(evens.ranks(), even);
  EXPECT_EQ(evens.included(), rank % 2 == 0);
  EXPECT_THAT(ronda::process_sets(), ElementsAre(ProcessSet(), evens, everybody));
  if (evens.included()) {
    EXPECT_EQ(evens.rank(), rank / 2);
    // Tensors with the same name are in flight in several process sets at once.
    float in_evens = 1, in_all = 10;
    Handle first = ronda::allreduce_async(ronda::tensor("w", &in_evens), {Op::Sum}, {evens});
    Handle second = ronda::allreduce_async(ronda::tensor("w", &in_all), {Op::Sum}, {everybody});
    EXPECT_EQ(Sum("w", 100), 100 * size);
    first.synchronize();
    second.synchronize();
    EXPECT_EQ(in_evens, even.size());
    EXPECT_EQ(in_all, 10 * size);
    ronda::barrier(evens);
    std::vector<float> value = {static_cast<float>(rank)};
    ronda::broadcast(ronda::tensor("b", value), even.back(), {evens});
    EXPECT_THAT(value, ElementsAre(even.back()));
    EXPECT_EQ(ronda::allgather_object("who", rank, {evens}), even);
  } else {
    float value = 0;
    const Status status = ronda::try_allreduce(ronda::tensor("w", &value), {Op::Sum}, {evens});
    EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("'w'"), HasSubstr("not in process set")));
    EXPECT_THROW(evens.rank(), Error);
    EXPECT_EQ(Sum("w", 10, {everybody}), 10 * size);
    EXPECT_EQ(Sum("w", 100), 100 * size);
  }
  ronda::remove_process_set(evens);
  ronda::remove_process_set(everybody);
  EXPECT_THAT(ronda::process_sets(), ElementsAre(ProcessSet()));
  EXPECT_THROW(evens.size(), Error);
  float value = 0;
  EXPECT_THAT(ronda::try_allreduce(ronda::tensor("w", &value), {}, {evens}).message(), HasSubstr("removed"));
}

void BadProcessSetsAreExplained() {
  const auto explain = [](const std::vector<int>& ranks) {
    const auto set = ronda::try_add_process_set(ranks);
    EXPECT_EQ(set.status().code(), RONDA_ERROR_INVALID_ARGUMENT);
    return set.status().message();
  };
  EXPECT_THAT(explain({}), HasSubstr("no ranks"));
  EXPECT_THAT(explain({ronda::size()}), HasSubstr("ranks of this job"));
  EXPECT_THAT(explain({0, 0}), HasSubstr("each once"));
  EXPECT_EQ(ronda::try_remove_process_set(ProcessSet()).code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda::try_remove_process_set(ProcessSet(77)).code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda::try_barrier(ProcessSet(77)).code(), RONDA_ERROR_INVALID_ARGUMENT);
}

void RanksMustAddTheSameSet() {
  if (ronda::size() == 1) return;
  const auto set = ronda::try_add_process_set({ronda::rank() == 0 ? 0 : 1});
  EXPECT_EQ(set.status().code(), RONDA_ERROR_MISMATCH) << set.status().message();
  EXPECT_EQ(ronda::add_process_set({0}).size(), 1) << "the job goes on";
}

void GroupsRunAsAWhole() {
  std::vector<float> a(10, 1), b(20, 2);
  ronda::grouped_allreduce("g", {ronda::tensor("a", a), ronda::tensor("b", b)}, {Op::Sum});
  EXPECT_THAT(a, Each(ronda::size()));
  EXPECT_THAT(b, Each(2 * ronda::size()));
  const std::int32_t rank = ronda::rank();
  auto gathered = ronda::grouped_allgather_async<std::int32_t>("gg", {{"x", &rank, {1}}, {"y", &rank, {1}}});
  EXPECT_EQ(gathered[0].result(), gathered[1].result());
  EXPECT_EQ(gathered[0].rows(), ronda::size());
  std::vector<float> c(static_cast<std::size_t>(ronda::size()), 1), d(static_cast<std::size_t>(2 * ronda::size()), 2);
  auto parts = ronda::grouped_reducescatter_async<float>("gr", {ronda::tensor("c", c), ronda::tensor("d", d)});
  EXPECT_THAT(parts[0].result(), ElementsAre(1));
  EXPECT_THAT(parts[1].result(), ElementsAre(2, 2));
  EXPECT_TRUE(ronda::try_grouped_allreduce("none", {}).ok());
}

void ResultsOfAGroupMayGoToTheCallersMemory() {
  const auto size = static_cast<std::size_t>(ronda::size());
  std::vector<float> x(1, static_cast<float>(ronda::rank())), y(2, 1), all_x(size), all_y(2 * size);
  const std::vector<ronda::Tensor> inputs = {ronda::tensor("x", x), ronda::tensor("y", y)};
  for (auto& handle :
       ronda::grouped_allgather_async<float>("gather", inputs, {}, {ronda::into(all_x), ronda::into(all_y)})) {
    handle.synchronize();
  }
  for (std::size_t rank = 0; rank < size; ++rank) EXPECT_EQ(all_x[rank], static_cast<float>(rank));
  EXPECT_THAT(all_y, Each(1));

  const std::vector<ronda::Tensor> sums = {ronda::tensor("all x", all_x), ronda::tensor("all y", all_y)};
  auto parts =
      ronda::grouped_reducescatter_async<float>("scatter", sums, {Op::Sum}, {}, {ronda::into(x), ronda::into(y)});
  for (auto& handle : parts) handle.synchronize();
  EXPECT_THAT(x, ElementsAre(static_cast<float>(ronda::rank() * ronda::size())));
  EXPECT_THAT(y, Each(ronda::size()));

  const auto few = ronda::try_grouped_allgather_async<float>("few", inputs, {}, {ronda::into(all_x)});
  EXPECT_EQ(few.status().code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(few.status().message(), HasSubstr("'few' has 2 tensors, but places for 1"));
}

void AGroupWithAWrongMemberFailsAsAWhole() {
  if (ronda::size() == 1) return;
  std::vector<float> good(4, 1), odd(ronda::rank() == 1 ? 5 : 4, 1);
  auto handles = ronda::grouped_allreduce_async("g", {ronda::tensor("good", good), ronda::tensor("odd", odd)});
  for (const Handle& handle : handles) {
    const Status status = handle.wait();
    EXPECT_EQ(status.code(), RONDA_ERROR_MISMATCH) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("'odd'"));
  }
  const Tensor null{"null", nullptr, RONDA_FLOAT32, {3}};
  EXPECT_THAT(ronda::try_grouped_allreduce("g", {ronda::tensor("good", good), null}).message(), HasSubstr("'null'"));
  ronda::grouped_allreduce("g", {ronda::tensor("good", good)});
  EXPECT_THAT(good, Each(1)) << "the job goes on";
}

// Rank r trains r + 1 batches, and then calls join().
void RanksJoinWhenTheyRunOut() {
  const int rank = ronda::rank(), size = ronda::size();
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int batch = 0; batch <= rank; ++batch) {
      std::vector<float> gradient(5, static_cast<float>(rank));
      ronda::allreduce(ronda::tensor("w", gradient));
      // Ranks below `batch` have joined, so the average is over the other ranks.
      EXPECT_THAT(gradient, Each(::testing::FloatEq(static_cast<float>(batch + size - 1) / 2))) << batch;
      EXPECT_EQ(static_cast<int>(ronda::allgather("g", gradient.data(), {5}).size()), 5 * (size - batch));
    }
    EXPECT_EQ(ronda::join(), size - 1) << "the last to join";
    EXPECT_EQ(Sum("all", 1), size);
  }
}

void JoinedRanksMayCountAsZeros() {
  const int size = ronda::size();
  const bool last = ronda::rank() == size - 1;
  if (last) {
    // The other ranks do not submit the tensor "w", so the allreduce completes only after they have joined.
    std::vector<float> gradient(5, static_cast<float>(size));
    ronda::allreduce(ronda::tensor("w", gradient));
    EXPECT_THAT(gradient, Each(1));
    const SparseRows<float> rows = {{7}, {static_cast<float>(size)}};
    EXPECT_THAT(ronda::sparse_allreduce("s", rows, {}).values, ::testing::ElementsAre(1));
  }
  EXPECT_EQ(ronda::last_rank(ronda::join_async({}, Absent::counted_as_zeros)), size - 1);
}

void WhatNeedsARankThatHasJoinedFails() {
  if (ronda::size() == 1) return;
  if (ronda::rank() == 0) {
    ronda::join();
    return;
  }
  float value = 1;
  // The broadcast fails because rank 0, the root, has joined or will join next.
  Status status = ronda::try_broadcast(ronda::tensor("from 0", &value), 0);
  EXPECT_EQ(status.code(), RONDA_ERROR_MISMATCH) << status.message();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 0"), HasSubstr("joined")));
  const auto object = ronda::try_broadcast_object("object", std::string("x"), 0);
  EXPECT_EQ(object.status().code(), RONDA_ERROR_MISMATCH) << object.status().message();
  ronda::join();
}

// A rank that has joined misses the unnamed operations of the other ranks. After all ranks have joined, the unnamed
// operations of all ranks must match again.
void BarriersAndMessagesGoOnAfterAJoin() {
  if (ronda::size() == 1) return;
  constexpr CallOptions kSoon = {.deadline = std::chrono::seconds(20)};
  float value = static_cast<float>(ronda::rank());
  for (int epoch = 0; epoch < 2; ++epoch) {
    if (ronda::rank() != 0) {
      ronda::monitored_barrier(std::chrono::seconds(20));
      // The error shows that rank 0 has joined, so the barrier did not wait for rank 0.
      EXPECT_EQ(ronda::try_add_process_set({0}).status().code(), RONDA_ERROR_MISMATCH);
    }
    if (ronda::rank() == 1) {
      EXPECT_EQ(ronda::try_send(ronda::tensor("", &value), 0, 0, kSoon).code(), RONDA_ERROR_MISMATCH);
    }
    ronda::join();
    EXPECT_TRUE(ronda::try_monitored_barrier(std::chrono::seconds(20)).ok());
    if (ronda::rank() == 0) ronda::recv(ronda::tensor("", &value), 1, 0, kSoon);
    if (ronda::rank() == 1) ronda::send(ronda::tensor("", &value), 0, 0, kSoon);
    EXPECT_EQ(value, ronda::rank() == 0 ? 1 : ronda::rank());
    ronda::remove_process_set(ronda::add_process_set({0}));
  }
}

void APreparedGroupIsReducedInEveryStep() {
  constexpr std::size_t kTensors = 70;
  std::vector<std::vector<float>> values(kTensors, std::vector<float>(3));
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < kTensors; ++i) tensors.push_back(ronda::tensor("g" + std::to_string(i), values[i]));
  PreparedGroup group = ronda::prepare_group("gradients", tensors, {Op::Sum});
  for (int step = 0; step < 10; ++step) {
    for (std::size_t i = kTensors; i > 0; --i) {
      values[i - 1].assign(3, static_cast<float>(step));
      group.ready(i - 1);
    }
    group.synchronize();
    EXPECT_THAT(values, Each(Each(static_cast<float>(step * ronda::size()))));
  }
  EXPECT_EQ(group.try_ready(kTensors).code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(group.wait().code(), RONDA_ERROR_INVALID_ARGUMENT) << "nothing was announced";
  EXPECT_FALSE(group.found_inf());
  EXPECT_EQ(ronda::try_prepare_group("twice", {tensors[0], tensors[0]}).status().code(), RONDA_ERROR_INVALID_ARGUMENT);
}

void BarriersMayHaveHandles() {
  std::vector<Handle> barriers;
  for (int i = 0; i < 3; ++i) barriers.push_back(ronda::barrier_async());
  ronda::barrier();  // the fourth
  ronda::synchronize_all(barriers);
  EXPECT_TRUE(ronda::poll_all(barriers));
}

void BarriersMayBeMonitored() {
  ronda::barrier();
  ronda::monitored_barrier(std::chrono::seconds(30));
  EXPECT_EQ(ronda::try_monitored_barrier(std::chrono::seconds(0)).code(), RONDA_ERROR_INVALID_ARGUMENT);
}

// Only rank 0 calls the first barrier, and gives up. Rank 0's next barrier matches the first barrier of the other
// ranks.
void AMonitoredBarrierNamesWhoIsMissing() {
  const int size = ronda::size();
  float go = 0;
  if (ronda::rank() == 0 && size > 1) {
    const Status status = ronda::try_monitored_barrier(std::chrono::milliseconds(50));
    EXPECT_EQ(status.code(), RONDA_ERROR_DEADLINE) << status.message();
    for (int rank = 1; rank < size; ++rank) EXPECT_THAT(status.message(), HasSubstr(std::to_string(rank)));
  }
  ronda::broadcast(ronda::tensor("go", &go), 0);
  ronda::barrier();
}

void ACallMayHaveADeadlineOfItsOwn() {
  float go = 0, value = 1;
  if (ronda::rank() == 0 && ronda::size() > 1) {
    CallOptions call;
    call.deadline = std::chrono::milliseconds(50);
    const Status status = ronda::try_allreduce(ronda::tensor("late", &value), {Op::Sum}, call);
    EXPECT_EQ(status.code(), RONDA_ERROR_DEADLINE) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("'late'"));
    value = 1;
  }
  ronda::broadcast(ronda::tensor("go", &go), 0);
  EXPECT_EQ(Sum("late", 1), ronda::size());
}

void CallbacksRunOnce() {
  std::promise<float> done;
  float value = 1, second = 1;
  Handle handle = ronda::allreduce_async(ronda::tensor("w", &value), {Op::Sum});
  handle.on_completion([&](const Status& status) {
    EXPECT_TRUE(status.ok()) << status.message();
    done.set_value(value);
  });
  EXPECT_EQ(done.get_future().get(), ronda::size());
  // Tests a callback for an operation that has already completed, and then one for an operation that fails.
  std::promise<void> late;
  handle.on_completion([&](const Status&) { late.set_value(); });
  late.get_future().get();
  if (ronda::size() == 1) return;
  std::promise<ronda_status> failed;
  Handle wrong = ronda::allreduce_async(ronda::tensor("second", &second), {ronda::rank() == 0 ? Op::Min : Op::Max});
  wrong.on_completion([&](const Status& status) { failed.set_value(status.code()); });
  EXPECT_EQ(failed.get_future().get(), RONDA_ERROR_MISMATCH);
  bool called = false;
  Handle().on_completion([&](const Status& status) { called = status.ok(); });
  EXPECT_TRUE(called);
}

}  // namespace

std::vector<RankBody> CoordinationBodies() {
  return {{"ProcessSetsOperateAmongThemselves", ProcessSetsOperateAmongThemselves},
          {"BadProcessSetsAreExplained", BadProcessSetsAreExplained},
          {"RanksMustAddTheSameSet", RanksMustAddTheSameSet},
          {"GroupsRunAsAWhole", GroupsRunAsAWhole},
          {"ResultsOfAGroupMayGoToTheCallersMemory", ResultsOfAGroupMayGoToTheCallersMemory},
          {"AGroupWithAWrongMemberFailsAsAWhole", AGroupWithAWrongMemberFailsAsAWhole},
          {"RanksJoinWhenTheyRunOut", RanksJoinWhenTheyRunOut},
          {"JoinedRanksMayCountAsZeros", JoinedRanksMayCountAsZeros},
          {"WhatNeedsARankThatHasJoinedFails", WhatNeedsARankThatHasJoinedFails},
          {"BarriersAndMessagesGoOnAfterAJoin", BarriersAndMessagesGoOnAfterAJoin},
          {"APreparedGroupIsReducedInEveryStep", APreparedGroupIsReducedInEveryStep},
          {"BarriersMayHaveHandles", BarriersMayHaveHandles},
          {"BarriersMayBeMonitored", BarriersMayBeMonitored},
          {"AMonitoredBarrierNamesWhoIsMissing", AMonitoredBarrierNamesWhoIsMissing},
          {"ACallMayHaveADeadlineOfItsOwn", ACallMayHaveADeadlineOfItsOwn},
          {"CallbacksRunOnce", CallbacksRunOnce}};
}

}  // namespace ronda::testing
