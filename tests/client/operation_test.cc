// SPDX-License-Identifier: Apache-2.0

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/c_api_support.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/engine/callback_thread.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns the handle of a completed operation whose result has these bytes.
std::shared_ptr<Handle> Completed(const void* data, size_t bytes, RowCounts first_dims) {
  OperationResult result{.data = ResultData(new std::byte[bytes]), .first_dims = std::move(first_dims)};
  std::memcpy(result.data.get(), data, bytes);
  auto handle = std::make_shared<Handle>(CallbackThread::Create({}), nullptr, std::make_shared<const std::string>("t"));
  handle->Complete(std::move(result));
  return handle;
}

std::shared_ptr<Handle> Gathered(const std::string& bytes, RowCounts sizes) {
  return Completed(bytes.data(), bytes.size(), std::move(sizes));
}

std::shared_ptr<const Group> ThreeRanks() { return std::make_shared<Group>(Group::All(3)); }

TEST(OperationTest, RowsComeFromMembersWhereTheyAreGathered) {
  const Operation allgather(Gathered("abc", {1, 2}), OpType::kAllgather);
  ASSERT_TRUE(allgather.HasOutput());
  EXPECT_EQ(allgather.output().rows, 3);
  EXPECT_THAT(allgather.output().rows_per_member, ElementsAre(1, 2));
  EXPECT_EQ(std::memcmp(allgather.output().data, "abc", 3), 0);
  const Operation scatter(Gathered("abc", {3}), OpType::kScatter);
  EXPECT_EQ(scatter.output().rows, 3);
  EXPECT_THAT(scatter.output().rows_per_member, IsEmpty());
}

// If the result is in host memory, there is no device work for a stream to wait for.
TEST(OperationTest, ToOrderAStreamBehindHostMemoryIsToWait) {
  Operation operation(Gathered("abc", {3}), OpType::kAllgather);
  EXPECT_FALSE(operation.is_ordered());
  EXPECT_TRUE(operation.OrderBefore(nullptr).ok());
  EXPECT_TRUE(operation.done());
  operation.MarkOrdered();
  EXPECT_TRUE(Operation(operation).is_ordered());
}

TEST(OperationTest, OnlySomeHaveAnOutputAndOnlySomeReduce) {
  const auto handle = Gathered("", {});
  for (OpType op : {OpType::kAllgather, OpType::kGather, OpType::kScatter, OpType::kReduceScatter, OpType::kAlltoall}) {
    EXPECT_TRUE(Operation(handle, op).HasOutput()) << Name(op);
  }
  for (OpType op : {OpType::kAllreduce, OpType::kReduce, OpType::kBroadcast, OpType::kSendRecv, OpType::kJoin}) {
    EXPECT_FALSE(Operation(handle, op).HasOutput()) << Name(op);
  }
  for (OpType op : {OpType::kAllreduce, OpType::kReduce, OpType::kReduceScatter}) {
    EXPECT_TRUE(Operation(handle, op).Reduces()) << Name(op);
  }
  EXPECT_FALSE(Operation(handle, OpType::kAllgather).Reduces());
}

// Returns the submission of an object with these bytes. The submitting rank declares `root` to be the root.
Submission Object(const std::string& bytes, RankId root) {
  return {.request = {.name = "o",
                      .op = OpType::kAllgather,
                      .dtype = DType::kUint8,
                      .shape = {static_cast<int64_t>(bytes.size())},
                      .root = root},
          .input = bytes.data()};
}

TEST(ObjectBroadcastTest, TheRootSendsACopyAndOneByteAndTheOthersNothing) {
  const std::string bytes = "abc";
  Submission root = Object(bytes, 1), other = Object(bytes, 1);
  const auto root_plan = ObjectBroadcast::Prepare(ThreeRanks(), 1, &root);
  ASSERT_TRUE(root_plan.ok()) << root_plan.status();
  EXPECT_EQ(root.request.shape, Shape{4});
  EXPECT_NE(root.input, bytes.data());
  EXPECT_EQ(std::memcmp(root.input, "abc", 4), 0);
  ASSERT_TRUE(ObjectBroadcast::Prepare(ThreeRanks(), 0, &other).ok());
  EXPECT_EQ(other.request.shape, Shape{0});
}

TEST(ObjectBroadcastTest, ARootOutsideTheSetAndMissingBytesAreRefused) {
  Submission outside = Object("abc", 3);
  EXPECT_THAT(std::string(ObjectBroadcast::Prepare(ThreeRanks(), 0, &outside).status().message()),
              AllOf(HasSubstr("'o'"), HasSubstr("root 3")));
  Submission null = Object("abc", 0);
  null.input = nullptr;
  EXPECT_THAT(std::string(ObjectBroadcast::Prepare(ThreeRanks(), 0, &null).status().message()),
              HasSubstr("data is NULL, but there are 3 bytes"));
}

// Returns the object broadcast on rank 0, after the bytes of all ranks have arrived. Rank 0 declares rank 1 to be the
// root.
Operation Received(const std::string& bytes, RowCounts sizes) {
  Submission submission = Object("", 1);
  auto plan = ObjectBroadcast::Prepare(ThreeRanks(), 0, &submission);
  return ObjectBroadcast::Of(Gathered(bytes, std::move(sizes)), *std::move(plan));
}

TEST(ObjectBroadcastTest, TheAdditionalByteIsNotSeen) {
  const Operation object = Received(std::string("abc\0", 4), {0, 4, 0});
  ASSERT_TRUE(object.Wait().ok()) << object.Wait();
  EXPECT_EQ(object.output().rows, 3);
  EXPECT_THAT(object.output().rows_per_member, IsEmpty());
  EXPECT_EQ(Received(std::string(1, '\0'), {0, 1, 0}).output().rows, 0);
}

TEST(ObjectBroadcastTest, RanksThatDisagreeAboutTheRootAreNamed) {
  const absl::Status two = Received("ab", {0, 1, 1}).Wait();
  EXPECT_EQ(two.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(two.message()), AllOf(HasSubstr("'o'"), HasSubstr("rank 2 takes itself for the root")));
  EXPECT_EQ(Received("ab", {0, 1, 1}).OrderBefore(nullptr), two);
  const absl::Status none = Received("", {0, 0, 0}).Wait();
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(none.message()), HasSubstr("rank 1 sent nothing"));
}

TEST(SparseAverageTest, DividesByTheRanksThatAveragesCount) {
  const float values[3] = {2, 4, 8};
  OperationResult gathered{.data = ResultData(new std::byte[sizeof(values)]), .first_dims = {1, 0, 2}, .number = 2};
  std::memcpy(gathered.data.get(), values, sizeof(values));
  auto handle = std::make_shared<Handle>(CallbackThread::Create({}), nullptr, std::make_shared<const std::string>("t"));
  handle->Complete(std::move(gathered));
  const Operation average = SparseAverage::Of(std::move(handle), DType::kFloat32, 1);
  for (int times = 0; times < 2; ++times) {
    const Output output = average.output();
    EXPECT_EQ(output.rows, 3);
    const float* const elements = static_cast<const float*>(output.data);
    EXPECT_THAT(std::vector<float>(elements, elements + 3), ElementsAre(1, 2, 4));
  }
}

Operation NewOperation() {
  return Operation(
      std::make_shared<Handle>(CallbackThread::Create({}), nullptr, std::make_shared<const std::string>("t")),
      OpType::kAllreduce);
}

TEST(HandleTableTest, FindsWhatWasAddedUntilItIsRemoved) {
  HandleTable table;
  const auto operation = NewOperation();
  const ronda_handle id = table.Add(operation);
  EXPECT_GT(id, 0);
  EXPECT_EQ(&table.Find(id).handle(), &operation.handle());
  EXPECT_EQ(&table.Remove(id).handle(), &operation.handle());
  EXPECT_FALSE(table.Find(id).exists());
  EXPECT_FALSE(table.Remove(id).exists());
}

TEST(HandleTableTest, OrderOnAStreamBelongsToTheHandle) {
  HandleTable table;
  const auto operation = NewOperation();
  const ronda_handle ordered = table.Add(operation), other = table.Add(operation);
  table.MarkOrdered(ordered);
  EXPECT_TRUE(table.Find(ordered).is_ordered());
  EXPECT_FALSE(table.Find(other).is_ordered());
  EXPECT_TRUE(table.Remove(ordered).is_ordered());
  const ronda_handle next = table.Add(operation);
  table.MarkOrdered(ordered);
  EXPECT_FALSE(table.Find(next).is_ordered()) << "the slot's next use";
}

TEST(HandleTableTest, NumbersAreNeverUsedTwice) {
  HandleTable table;
  const ronda_handle first = table.Add(NewOperation());
  table.Remove(first);
  EXPECT_NE(table.Add(NewOperation()), first);
}

TEST(HandleTableTest, ASlotIsUsedAgainUnderAnotherNumber) {
  HandleTable table;
  std::set<ronda_handle> numbers;
  const ronda_handle kept = table.Add(NewOperation());
  for (int i = 0; i < 1000; ++i) {
    const auto operation = NewOperation();
    const ronda_handle id = table.Add(operation);
    EXPECT_TRUE(numbers.insert(id).second);
    EXPECT_EQ(&table.Find(id).handle(), &operation.handle());
    EXPECT_EQ(&table.Remove(id).handle(), &operation.handle());
    EXPECT_FALSE(table.Remove(id).exists()) << "twice";
    EXPECT_FALSE(table.Find(*numbers.begin()).exists()) << "an earlier use of the slot";
  }
  EXPECT_TRUE(table.Find(kept).exists());
}

TEST(HandleTableTest, ReservedRoomIsUsedAgainWhenItIsGivenUp) {
  HandleTable table;
  table.Reserve(3);
  const ronda_handle id = table.Add(NewOperation());
  table.Unreserve(2);
  table.Remove(id);
  table.Reserve(2);
  EXPECT_TRUE(table.Find(table.Add(NewOperation())).exists());
  EXPECT_TRUE(table.Find(table.Add(NewOperation())).exists());
}

TEST(HandleTableTest, KnowsNoNumberThatItDidNotGiveOut) {
  HandleTable table;
  for (ronda_handle id : {ronda_handle{0}, ronda_handle{-1}, ronda_handle{1}, INT64_MAX}) {
    EXPECT_FALSE(table.Find(id).exists()) << id;
    EXPECT_FALSE(table.Remove(id).exists()) << id;
  }
}

TEST(HandleTableTest, ThreadsKeepTheirHandlesApart) {
  HandleTable table;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&table] {
      for (int i = 0; i < 500; ++i) {
        const auto operation = NewOperation();
        const ronda_handle id = table.Add(operation);
        EXPECT_EQ(&table.Find(id).handle(), &operation.handle());
        EXPECT_EQ(&table.Remove(id).handle(), &operation.handle());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

}  // namespace ronda
