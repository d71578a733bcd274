#include "client/operation.h"

#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/engine/callback_thread.h"

namespace ronda {
namespace {

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

TEST(HandleTableTest, WhatAStreamWaitsForIsRememberedWithTheHandleAlone) {
  HandleTable table;
  const auto operation = NewOperation();
  const ronda_handle ordered = table.Add(operation), other = table.Add(operation);
  table.NoteOrdered(ordered);
  EXPECT_TRUE(table.Find(ordered).is_ordered());
  EXPECT_FALSE(table.Find(other).is_ordered());
  EXPECT_TRUE(table.Remove(ordered).is_ordered());
  const ronda_handle next = table.Add(operation);
  table.NoteOrdered(ordered);
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
