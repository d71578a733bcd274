// SPDX-License-Identifier: Apache-2.0

// Tests broadcast, allgather, gather, scatter, alltoall, send/recv and barrier with runtimes of one to four ranks.
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
using ::ronda::testing::Received;
using ::ronda::testing::RunRuntimes;
using ::ronda::testing::Succeed;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

class ExchangesWithRanks : public ::testing::TestWithParam<int> {};

TEST_P(ExchangesWithRanks, GatherLeavesTheRowsOfAllWithTheRootAlone) {
  const int size = GetParam();
  RunRuntimes(size, [size](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    for (int root = 0; root < size; ++root) {
      const std::vector<int16_t> mine(static_cast<size_t>(2 * rank), static_cast<int16_t>(rank));
      const auto handle = Succeed(
          runtime,
          {.request = {.name = "g", .op = OpType::kGather, .dtype = DType::kInt16, .shape = {rank, 2}, .root = root},
           .input = mine.data()});
      ASSERT_NE(handle, nullptr);
      std::vector<int16_t> expected;
      for (int r = 0; r < size; ++r)
        expected.insert(expected.end(), static_cast<size_t>(2 * r), static_cast<int16_t>(r));
      if (rank == root) {
        EXPECT_EQ(Received<int16_t>(*handle, 2), expected);
      } else {
        EXPECT_EQ(handle->result().data, nullptr);
        EXPECT_THAT(handle->result().first_dims, IsEmpty());
      }
    }
  });
}

TEST_P(ExchangesWithRanks, ScatterSplitsTheRootsRowsAsItSays) {
  const int size = GetParam();
  RunRuntimes(size, [size](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    for (int root = 0; root < size; ++root) {
      // Rank r gets r rows of the value r.
      std::vector<int32_t> rows;
      std::vector<int64_t> splits;
      for (int r = 0; r < size; ++r) {
        splits.push_back(r);
        rows.insert(rows.end(), static_cast<size_t>(r), r);
      }
      Submission submission = {.request = {.name = "s", .op = OpType::kScatter, .dtype = DType::kInt32, .root = root}};
      submission.request.shape = {rank == root ? static_cast<int64_t>(rows.size()) : 0};
      if (rank == root) {
        submission.input = rows.data();
        submission.splits = splits;
      }
      const auto handle = Succeed(runtime, submission);
      ASSERT_NE(handle, nullptr);
      EXPECT_THAT(handle->result().first_dims, ElementsAre(rank));
      EXPECT_EQ(Received<int32_t>(*handle), std::vector<int32_t>(static_cast<size_t>(rank), rank));
    }
  });
}

TEST_P(ExchangesWithRanks, ScatterWithoutSplitsIsAsEvenAsCanBe) {
  const int size = GetParam();
  RunRuntimes(size, [size](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const std::vector<uint8_t> rows(static_cast<size_t>(size + 1), 7);
    Submission submission = {.request = {.name = "s", .op = OpType::kScatter, .dtype = DType::kUint8, .shape = {0}}};
    if (rank == 0) {
      submission.input = rows.data();
      submission.request.shape = {size + 1};
    }
    const auto handle = Succeed(runtime, submission);
    ASSERT_NE(handle, nullptr);
    EXPECT_EQ(Received<uint8_t>(*handle), std::vector<uint8_t>(rank == 0 ? 2 : 1, 7));
  });
}

TEST_P(ExchangesWithRanks, AlltoallWithUnevenSplitsReturnsWhatEachHasSent) {
  const int size = GetParam();
  RunRuntimes(size, [size](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    for (int step = 0; step < 3; ++step) {
      // Rank r sends (r + to + step) % 3 rows to each rank `to`, all with the value 10 r + to.
      const auto rows_between = [&](int from, int to) { return (from + to + step) % 3; };
      std::vector<float> input;
      std::vector<int64_t> splits;
      std::vector<float> expected;
      std::vector<int64_t> received;
      for (int other = 0; other < size; ++other) {
        splits.push_back(rows_between(rank, other));
        input.insert(input.end(), static_cast<size_t>(2 * splits.back()), static_cast<float>(10 * rank + other));
        received.push_back(rows_between(other, rank));
        expected.insert(expected.end(), static_cast<size_t>(2 * received.back()),
                        static_cast<float>(10 * other + rank));
      }
      const auto handle = Succeed(
          runtime,
          {.request = {.name = "a", .op = OpType::kAlltoall, .shape = {static_cast<int64_t>(input.size() / 2), 2}},
           .input = input.data(),
           .splits = splits});
      ASSERT_NE(handle, nullptr);
      EXPECT_THAT(handle->result().first_dims, ElementsAreArray(received));
      EXPECT_EQ(Received<float>(*handle, 2), expected);
    }
  });
}

TEST_P(ExchangesWithRanks, AlltoallWithoutSplitsCutsEvenly) {
  const int size = GetParam();
  RunRuntimes(size, [size](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    std::vector<int64_t> input;
    std::vector<int64_t> expected;
    for (int other = 0; other < size; ++other) {
      input.push_back(10 * rank + other);
      expected.push_back(10 * other + rank);
    }
    const auto handle =
        Succeed(runtime, {.request = {.name = "a", .op = OpType::kAlltoall, .dtype = DType::kInt64, .shape = {size}},
                          .input = input.data()});
    ASSERT_NE(handle, nullptr);
    EXPECT_EQ(Received<int64_t>(*handle), expected);
  });
}

TEST_P(ExchangesWithRanks, EveryRankSendsToEveryOtherAtOnce) {
  const int size = GetParam();
  RunRuntimes(size, [size](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    std::vector<std::vector<float>> received(static_cast<size_t>(size), std::vector<float>(3, -1.0f));
    const std::vector<float> mine(3, static_cast<float>(rank));
    std::vector<std::shared_ptr<Handle>> handles;
    for (int other = 0; other < size; ++other) {
      if (other == rank) continue;
      const auto request = [](int from, int to) {
        return TensorRequest{.name = absl::StrCat("ronda/sendrecv/", from, "-", to, "/0/0"),
                             .op = OpType::kSendRecv,
                             .shape = {3},
                             .root = from,
                             .receiver = to};
      };
      handles.push_back(*runtime.Submit({.request = request(rank, other), .input = mine.data()}));
      handles.push_back(
          *runtime.Submit({.request = request(other, rank), .output = received[static_cast<size_t>(other)].data()}));
    }
    for (const auto& handle : handles) EXPECT_TRUE(handle->Wait().ok());
    for (int other = 0; other < size; ++other) {
      EXPECT_THAT(received[static_cast<size_t>(other)],
                  ::testing::Each(other == rank ? -1.0f : static_cast<float>(other)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExchangesWithRanks, ::testing::Values(1, 2, 3, 4));

TEST(Exchanges, SubsetsExchangeAmongThemselves) {
  RunRuntimes(4, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const ProcessSetId set = AddSet(runtime, {0, 2, 3});
    if (rank == 1) return;
    const auto request = [&](OpType op, Shape shape) {
      return TensorRequest{
          .name = Name(op), .process_set = set, .op = op, .dtype = DType::kInt32, .shape = shape, .root = 2};
    };
    const int position = rank == 0 ? 0 : rank - 1;
    std::vector<int32_t> three = {rank, rank + 10, rank + 20};
    const auto gathered = Succeed(runtime, {.request = request(OpType::kAllgather, {1}), .input = three.data()});
    EXPECT_THAT(Received<int32_t>(*gathered), ElementsAre(0, 2, 3));
    const auto swapped = Succeed(runtime, {.request = request(OpType::kAlltoall, {3}), .input = three.data()});
    EXPECT_THAT(Received<int32_t>(*swapped), ElementsAre(10 * position, 10 * position + 2, 10 * position + 3));
    const auto scattered = Succeed(runtime, {.request = request(OpType::kScatter, {3}), .input = three.data()});
    EXPECT_THAT(Received<int32_t>(*scattered), ElementsAre(2 + 10 * position));
    Succeed(runtime, {.request = request(OpType::kBroadcast, {3}), .output = three.data()});
    EXPECT_THAT(three, ElementsAre(2, 12, 22));
    Succeed(runtime, Barrier("b", set));
  });
}

TEST(Exchanges, OfNothingWork) {
  RunRuntimes(3, [](Runtime& runtime) {
    for (OpType op : {OpType::kAllgather, OpType::kGather, OpType::kScatter, OpType::kAlltoall, OpType::kReduceScatter,
                      OpType::kReduce, OpType::kBroadcast}) {
      const auto handle = Succeed(runtime, {.request = {.name = Name(op), .op = op, .shape = {0, 5}}});
      ASSERT_NE(handle, nullptr);
      EXPECT_THAT(Received<float>(*handle, 5), IsEmpty()) << Name(op);
    }
  });
}

TEST(Exchanges, DifferingLengthsOfASendAreExplainedToBoth) {
  RunRuntimes(3, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    if (rank == 1) return;
    float data[4] = {};
    const absl::Status status = testing::CarryOut(
        runtime,
        {.request = {.name = "s", .op = OpType::kSendRecv, .shape = {rank == 0 ? 3 : 4}, .root = 0, .receiver = 2},
         .input = data,
         .output = data});
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("shape [3]"));
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("shape [4]"));
  });
}

}  // namespace
}  // namespace ronda
