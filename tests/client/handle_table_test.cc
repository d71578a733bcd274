#include "client/handle_table.h"

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace ronda {
namespace {

TEST(HandleTableTest, FindsWhatWasAddedUntilItIsRemoved) {
  HandleTable table;
  const auto handle = std::make_shared<Handle>();
  const ronda_handle id = table.Add({handle, OpType::kAllgather});
  EXPECT_GT(id, 0);
  EXPECT_EQ(table.Find(id)->handle, handle);
  EXPECT_EQ(table.Find(id)->op, OpType::kAllgather);
  EXPECT_EQ(table.Remove(id)->handle, handle);
  EXPECT_FALSE(table.Find(id).has_value());
  EXPECT_FALSE(table.Remove(id).has_value());
}

TEST(HandleTableTest, NumbersAreNeverUsedTwice) {
  HandleTable table;
  const ronda_handle first = table.Add({std::make_shared<Handle>(), OpType::kAllreduce});
  table.Remove(first);
  EXPECT_NE(table.Add({std::make_shared<Handle>(), OpType::kAllreduce}), first);
}

TEST(HandleTableTest, KnowsNoNumberThatItDidNotGiveOut) {
  HandleTable table;
  for (ronda_handle id : {ronda_handle{0}, ronda_handle{-1}, ronda_handle{1}, INT64_MAX}) {
    EXPECT_FALSE(table.Find(id).has_value()) << id;
    EXPECT_FALSE(table.Remove(id).has_value()) << id;
  }
}

TEST(HandleTableTest, ThreadsKeepTheirHandlesApart) {
  HandleTable table;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&table] {
      for (int i = 0; i < 500; ++i) {
        const auto handle = std::make_shared<Handle>();
        const ronda_handle id = table.Add({handle, OpType::kBroadcast});
        EXPECT_EQ(table.Find(id)->handle, handle);
        EXPECT_EQ(table.Remove(id)->handle, handle);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ronda
