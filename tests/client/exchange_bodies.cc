// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <numeric>
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
using ::testing::IsEmpty;

// Returns, for each rank r below `size`, r copies of the number r.
std::vector<std::int32_t> EachRankTimesItself(int size) {
  std::vector<std::int32_t> values;
  for (int rank = 0; rank < size; ++rank) values.insert(values.end(), static_cast<std::size_t>(rank), rank);
  return values;
}

void GatherToEveryRoot() {
  const int rank = ronda::rank();
  const std::vector<std::int32_t> mine(static_cast<std::size_t>(rank), rank);
  for (int root = 0; root < ronda::size(); ++root) {
    auto handle = ronda::gather_async("g", mine.data(), {rank}, root);
    if (rank == root) {
      EXPECT_EQ(handle.result(), EachRankTimesItself(ronda::size()));
      Dims rows(static_cast<std::size_t>(ronda::size()));
      std::iota(rows.begin(), rows.end(), 0);
      EXPECT_EQ(handle.rows_per_rank(), rows);
    } else {
      EXPECT_EQ(handle.rows(), 0);
      EXPECT_THAT(handle.result(), IsEmpty());
    }
  }
}

void ScatterFromEveryRoot() {
  const int rank = ronda::rank(), size = ronda::size();
  for (int root = 0; root < size; ++root) {
    // Rank r receives r rows of two elements with the value r.
    std::vector<std::int32_t> all, expected(static_cast<std::size_t>(2 * rank), rank);
    Dims splits;
    for (int r = 0; r < size; ++r) {
      all.insert(all.end(), static_cast<std::size_t>(2 * r), r);
      splits.push_back(r);
    }
    const std::int64_t rows = size * (size - 1) / 2;
    EXPECT_EQ(ronda::scatter("s", rank == root ? all.data() : nullptr, {rank == root ? rows : 0, 2}, root,
                             rank == root ? splits : Dims()),
              expected);
  }
  // The rows are divided as evenly as possible. Rank 0 gets one row more than the other ranks.
  std::vector<float> values(static_cast<std::size_t>(size + 1));
  std::iota(values.begin(), values.end(), 0.0f);
  const std::vector<float> part = ronda::scatter("even", values.data(), {size + 1}, 0);
  if (rank == 0) {
    EXPECT_THAT(part, ElementsAre(0, 1));
  } else {
    EXPECT_THAT(part, ElementsAre(static_cast<float>(rank + 1)));
  }
}

void AlltoallWithUnevenSplits() {
  const int rank = ronda::rank(), size = ronda::size();
  // Rank r sends s + 1 elements with the value r to each other rank s, and none to itself.
  std::vector<std::int64_t> input, expected, splits, received;
  for (int other = 0; other < size; ++other) {
    splits.push_back(other == rank ? 0 : other + 1);
    input.insert(input.end(), static_cast<std::size_t>(splits.back()), rank);
    received.push_back(other == rank ? 0 : rank + 1);
    expected.insert(expected.end(), static_cast<std::size_t>(received.back()), other);
  }
  const auto result = ronda::alltoall("a", input.data(), {static_cast<std::int64_t>(input.size())}, splits);
  EXPECT_EQ(result.values, expected);
  EXPECT_EQ(result.received_splits, received);
  // Equal parts.
  std::vector<float> equal(static_cast<std::size_t>(size), static_cast<float>(rank));
  const auto transposed = ronda::alltoall("t", equal.data(), {size});
  for (int other = 0; other < size; ++other) EXPECT_EQ(transposed.values[static_cast<std::size_t>(other)], other);
  EXPECT_THAT(transposed.received_splits, Each(1));
}

void WrongSplitsAreExplained() {
  const std::vector<float> values(12);
  const Dims one_too_many(static_cast<std::size_t>(ronda::size() + 1), 0);
  const auto explain = [&](const Dims& splits) {
    const auto result = ronda::try_alltoall("a", values.data(), {12}, splits);
    EXPECT_EQ(result.status().code(), RONDA_ERROR_INVALID_ARGUMENT);
    return result.status().message();
  };
  EXPECT_THAT(explain(one_too_many), AllOf(HasSubstr("'a'"), HasSubstr("splits")));
  Dims negative(static_cast<std::size_t>(ronda::size()), 0);
  negative[0] = -1;
  EXPECT_THAT(explain(negative), HasSubstr("-1"));
  const Dims too_few(static_cast<std::size_t>(ronda::size()), 1);
  EXPECT_THAT(explain(too_few), HasSubstr("12 rows"));
}

// Every rank contributes one row with its rank number. The results go directly into the caller's memory.
void ResultsMayGoToMemoryOfTheCallers() {
  const int rank = ronda::rank(), size = ronda::size();
  const auto count = static_cast<std::size_t>(size);
  std::vector<float> one = {static_cast<float>(rank)}, all(count, -1), expected(count);
  std::iota(expected.begin(), expected.end(), 0.0f);
  auto gathered = ronda::allgather_async<float>(ronda::tensor("allgather", one), {}, ronda::into(all));
  EXPECT_EQ(gathered.data(), all.data());
  EXPECT_EQ(gathered.rows(), size);
  EXPECT_EQ(all, expected);
  std::vector<float> received(count, -1);
  auto exchanged = ronda::alltoall_async<float>(ronda::tensor("alltoall", all), {}, {}, ronda::into(received));
  exchanged.synchronize();
  EXPECT_THAT(received, Each(static_cast<float>(rank)));
  float part = -1;
  ronda::scatter_async<float>(ronda::tensor("scatter", all), 0, {}, {}, ronda::into(&part, 1)).synchronize();
  EXPECT_EQ(part, static_cast<float>(rank));
  for (int root = 0; root < size; ++root) {
    std::vector<float> on_root(count, -1);
    ronda::gather_async<float>(ronda::tensor("gather", one), root, {}, ronda::into(on_root)).synchronize();
    if (rank == root) {
      EXPECT_EQ(on_root, expected);
    } else {
      EXPECT_THAT(on_root, Each(-1));
    }
  }
}

void TooLittleRoomForAResultIsExplained() {
  std::vector<double> one = {1}, all(static_cast<std::size_t>(ronda::size()), -1);
  const bool is_short = ronda::rank() == ronda::size() - 1;
  auto gathered = ronda::allgather_async<double>(ronda::tensor("a", one), {},
                                                 ronda::into(all.data(), all.size() - (is_short ? 1 : 0)));
  const Status status = gathered.wait();
  EXPECT_EQ(status.ok(), !is_short) << status.message();
  EXPECT_THAT(all, Each(is_short ? -1 : 1));
  if (!is_short) return;
  EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'a'"), HasSubstr("bytes (8 of rank 0"), HasSubstr("output_bytes is")));
  EXPECT_THROW(gathered.result(), Error);
}

// Each rank sends to the next rank in a ring, twice, with two tags. Messages with the same tag must stay in order.
void SendAndReceiveInARing() {
  const int rank = ronda::rank(), size = ronda::size();
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  if (size == 1) return;
  for (int round = 0; round < 2; ++round) {
    std::vector<float> small = {static_cast<float>(rank + round)}, large(1000, static_cast<float>(rank));
    std::vector<float> from_small(1), from_large(1000);
    Handle sent_small = ronda::send_async(ronda::tensor("", small), next, 1);
    Handle sent_large = ronda::send_async(ronda::tensor("", large), next, 2);
    ronda::recv(ronda::tensor("", from_large), previous, 2);
    ronda::recv(ronda::tensor("", from_small), previous, 1);
    EXPECT_THAT(from_large, Each(previous));
    EXPECT_THAT(from_small, ElementsAre(previous + round));
    sent_small.synchronize();
    sent_large.synchronize();
  }
  if (rank == 0) {
    std::vector<float> value = {7};
    ronda::send(ronda::tensor("", value), 1);
  } else if (rank == 1) {
    std::vector<float> value(1);
    ronda::recv(ronda::tensor("", value), 0);
    EXPECT_THAT(value, ElementsAre(7));
  }
}

void ImpossibleChannelsAreExplained() {
  float value = 0;
  const Tensor view = ronda::tensor("", &value);
  const Status itself = ronda::try_send(view, ronda::rank());
  EXPECT_EQ(itself.code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda::try_recv(view, ronda::size()).code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda::try_recv(view, -2).code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda::try_send(view, (ronda::rank() + 1) % ronda::size(), -3).message(), HasSubstr("tag is -3"));
}

void BroadcastObjects() {
  for (int root = 0; root < ronda::size(); ++root) {
    const std::string mine = ronda::rank() == root ? std::string(100, 'x') + std::to_string(root) : "ignored";
    EXPECT_EQ(ronda::broadcast_object("text", mine, root), std::string(100, 'x') + std::to_string(root));
    EXPECT_EQ(ronda::broadcast_object("empty", std::string(), root), "");
    EXPECT_EQ(ronda::broadcast_object("number", 1000 + ronda::rank(), root), 1000 + root);
  }
}

void RootsOfObjectsMustAgree() {
  if (ronda::size() == 1) return;
  const int root = ronda::rank() == 0 ? 0 : 1;  // ranks 0 and 1 name themselves as the root
  const auto result = ronda::try_broadcast_object("text", std::string("a"), root);
  EXPECT_EQ(result.status().code(), RONDA_ERROR_MISMATCH) << result.status().message();
  EXPECT_THAT(result.status().message(), AllOf(HasSubstr("'text'"), HasSubstr("root")));
  const auto nobody = ronda::try_broadcast_object("text", std::string("a"), ronda::rank() == 1 ? 0 : 1);
  EXPECT_EQ(nobody.status().code(), RONDA_ERROR_MISMATCH);
}

void AllgatherObjects() {
  const std::string mine(static_cast<std::size_t>(3 * ronda::rank()), static_cast<char>('a' + ronda::rank()));
  const std::vector<std::string> all = ronda::allgather_object("text", mine);
  ASSERT_EQ(static_cast<int>(all.size()), ronda::size());
  for (int rank = 0; rank < ronda::size(); ++rank) {
    EXPECT_EQ(all[static_cast<std::size_t>(rank)],
              std::string(static_cast<std::size_t>(3 * rank), static_cast<char>('a' + rank)));
  }
  struct Point {
    int x, y;
  };
  const std::vector<Point> points = ronda::allgather_object("point", Point{ronda::rank(), -ronda::rank()});
  for (int rank = 0; rank < ronda::size(); ++rank) EXPECT_EQ(points[static_cast<std::size_t>(rank)].y, -rank);
}

void SparseSumsAndAverages() {
  const int rank = ronda::rank(), size = ronda::size();
  // Rank r contributes r rows of two elements. Each row has the index r and the values 6.
  const SparseRows<float> mine = {std::vector<std::int64_t>(static_cast<std::size_t>(rank), rank),
                                  std::vector<float>(static_cast<std::size_t>(2 * rank), 6)};
  const std::vector<std::int32_t> ranks = EachRankTimesItself(size);
  const std::vector<std::int64_t> indices(ranks.begin(), ranks.end());
  const auto sum = ronda::sparse_allreduce("s", mine, {2}, Op::Sum);
  EXPECT_EQ(sum.indices, indices);
  EXPECT_EQ(sum.values.size(), 2 * indices.size());
  EXPECT_THAT(sum.values, Each(6));
  const auto average = ronda::sparse_allreduce("s", mine, {2});
  EXPECT_EQ(average.indices, indices);
  EXPECT_THAT(average.values, Each(::testing::FloatEq(6.0f / static_cast<float>(size))));
  const SparseRows<std::int32_t> whole = {{1}, {3}};
  EXPECT_EQ(ronda::try_sparse_allreduce("i", whole, {}, Op::Average).status().code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda::try_sparse_allreduce("m", mine, {2}, Op::Max).status().code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda::sparse_allreduce("i", whole, {}, Op::Sum).values.size(), static_cast<std::size_t>(size));
  if (size == 1) return;
  const Status disagreed = ronda::try_sparse_allreduce("d", mine, {2}, rank == 0 ? Op::Sum : Op::Average).status();
  EXPECT_EQ(disagreed.code(), RONDA_ERROR_MISMATCH) << disagreed.message();
  EXPECT_THAT(disagreed.message(), ::testing::HasSubstr("reduce op average"));
  const SparseRows<float> odd = {{1, 2}, {3}};
  EXPECT_THAT(ronda::try_sparse_allreduce("odd", odd, {}).status().message(), HasSubstr("1 values for 2 rows"));
}

}  // namespace

std::vector<RankBody> ExchangeBodies() {
  return {{"GatherToEveryRoot", GatherToEveryRoot},
          {"ScatterFromEveryRoot", ScatterFromEveryRoot},
          {"ResultsMayGoToMemoryOfTheCallers", ResultsMayGoToMemoryOfTheCallers},
          {"TooLittleRoomForAResultIsExplained", TooLittleRoomForAResultIsExplained},
          {"AlltoallWithUnevenSplits", AlltoallWithUnevenSplits},
          {"WrongSplitsAreExplained", WrongSplitsAreExplained},
          {"SendAndReceiveInARing", SendAndReceiveInARing},
          {"ImpossibleChannelsAreExplained", ImpossibleChannelsAreExplained},
          {"BroadcastObjects", BroadcastObjects},
          {"RootsOfObjectsMustAgree", RootsOfObjectsMustAgree},
          {"AllgatherObjects", AllgatherObjects},
          {"SparseSumsAndAverages", SparseSumsAndAverages}};
}

}  // namespace ronda::testing
