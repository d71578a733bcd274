// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/handle.h"

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace ronda {
namespace {

TEST(BlockPoolTest, AFreeBlockIsTheNextOne) {
  const BlockPool::Owner pool = BlockPool::Create();
  void* const first = pool->Allocate(48);
  void* const second = pool->Allocate(48);
  EXPECT_NE(first, second);
  pool->Free(first, 48);
  EXPECT_EQ(pool->Allocate(48), first);
  pool->Free(first, 48);
  pool->Free(second, 48);
}

TEST(BlockPoolTest, OtherSizesThanTheFirstAreNotKept) {
  const BlockPool::Owner pool = BlockPool::Create();
  void* const block = pool->Allocate(48);
  pool->Free(block, 48);
  for (const size_t bytes : {size_t{1}, size_t{4}, size_t{47}, size_t{96}, size_t{4096}}) {
    void* const other = pool->Allocate(bytes);
    EXPECT_NE(other, block) << bytes;
    pool->Free(other, bytes);
  }
  EXPECT_EQ(pool->Allocate(48), block);
  pool->Free(block, 48);
}

TEST(BlockPoolTest, BlocksThatHaveNoRoomForALinkAreNotKept) {
  const BlockPool::Owner pool = BlockPool::Create();
  pool->Free(pool->Allocate(1), 1);
  void* const block = pool->Allocate(64);
  pool->Free(block, 64);
  EXPECT_EQ(pool->Allocate(64), block) << "the size of this one counts";
  pool->Free(block, 64);
}

struct Numbers {
  explicit Numbers(uint64_t first) : values{first, first + 1, first + 2} {}
  uint64_t values[3];
};

TEST(PoolAllocatorTest, SharedObjectsComeBackInTheSameMemory) {
  const BlockPool::Owner pool = BlockPool::Create();
  const PoolAllocator<Numbers> allocator(pool.get());
  const Numbers* where = nullptr;
  for (uint64_t i = 0; i < 3; ++i) {
    const auto numbers = std::allocate_shared<Numbers>(allocator, i);
    EXPECT_EQ(numbers->values[2], i + 2);
    if (i == 0) where = numbers.get();
    EXPECT_EQ(numbers.get(), where);
  }
}

// AddressSanitizer reports an error if the pool is freed too soon, or never.
TEST(PoolAllocatorTest, ObjectsMayOutliveTheOwnerOfThePool) {
  BlockPool::Owner pool = BlockPool::Create();
  auto kept = std::allocate_shared<Numbers>(PoolAllocator<Numbers>(pool.get()), 7);
  auto dropped = std::allocate_shared<Numbers>(PoolAllocator<Numbers>(pool.get()), 8);
  void* const other_size = pool->Allocate(3);
  BlockPool* const orphan = pool.get();
  pool.reset();
  dropped.reset();
  EXPECT_EQ(kept->values[0], 7u);
  orphan->Free(other_size, 3);
  EXPECT_EQ(kept->values[2], 9u);
  kept.reset();
}

TEST(PoolAllocatorTest, ThreadsMayDropTheLastObjectsWhileTheOwnerGoes) {
  for (int round = 0; round < 50; ++round) {
    BlockPool::Owner pool = BlockPool::Create();
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 3; ++t) {
      auto numbers = std::allocate_shared<Numbers>(PoolAllocator<Numbers>(pool.get()), t);
      threads.emplace_back([numbers = std::move(numbers), t]() mutable {
        EXPECT_EQ(numbers->values[1], t + 1);
        numbers.reset();
      });
    }
    pool.reset();
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(PoolAllocatorTest, ThreadsKeepTheirObjectsApart) {
  const BlockPool::Owner pool = BlockPool::Create();
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (uint64_t i = 0; i < 1000; ++i) {
        const auto first = std::allocate_shared<Numbers>(PoolAllocator<Numbers>(pool.get()), 1000 * t + i);
        const auto second = std::allocate_shared<Numbers>(PoolAllocator<Numbers>(pool.get()), 0);
        EXPECT_EQ(first->values[1], 1000 * t + i + 1);
        EXPECT_EQ(second->values[0], 0u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ronda
