// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/packing/plan_cache.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <set>
#include <vector>

namespace ronda {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

// Returns segments with these numbers of elements. The tests do not access the tensors' memory.
class Bucket {
 public:
  explicit Bucket(const std::vector<size_t>& counts) : memory_(counts.size()) {
    for (size_t i = 0; i < counts.size(); ++i) {
      segments_.push_back({.input = &memory_[i], .output = &memory_[i], .count = counts[i]});
    }
  }

  ReduceCall call() const { return {.info = {}, .segments = segments_}; }
  Segment& segment(size_t i) { return segments_[i]; }
  float* memory(size_t i) { return &memory_[i]; }

 private:
  std::vector<float> memory_;
  std::vector<Segment> segments_;
};

// Marks the tables as made, as a user of the plan does.
void FillTables(ReductionPlan& plan) {
  for (ReductionPlan::Tables& tables : plan.chunks) tables.has_packed = tables.has_unpacked = true;
}

bool HasTables(const ReductionPlan& plan) {
  for (const ReductionPlan::Tables& tables : plan.chunks) {
    if (!tables.has_packed || !tables.has_unpacked) return false;
  }
  return true;
}

TEST(PlanCacheTest, ACallThatIsRepeatedFindsItsTables) {
  PlanCache cache(kChunkBytes);
  const Bucket first({5, 7});
  const Bucket second({5, 7, 9});
  ReductionPlan* const plan = &cache.Find(first.call());
  EXPECT_FALSE(HasTables(*plan));
  FillTables(*plan);
  EXPECT_NE(&cache.Find(second.call()), plan);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(&cache.Find(first.call()), plan);
    EXPECT_TRUE(HasTables(*plan));
    cache.Find(second.call());
  }
}

TEST(PlanCacheTest, BucketsOfTheSameSizesHaveTablesOfTheirOwn) {
  PlanCache cache(kChunkBytes);
  const Bucket first({5, 7});
  const Bucket second({5, 7});
  FillTables(cache.Find(first.call()));
  ReductionPlan& plan = cache.Find(second.call());
  EXPECT_FALSE(HasTables(plan)) << "those of other tensors";
  FillTables(plan);
  EXPECT_TRUE(HasTables(cache.Find(first.call())));
  EXPECT_TRUE(HasTables(cache.Find(second.call())));
}

TEST(PlanCacheTest, TensorsWithEverNewAddressesTakeOverThePlanOfOthers) {
  PlanCache cache(kChunkBytes);
  std::set<const ReductionPlan*> plans;
  std::deque<Bucket> buckets;  // each at another address
  for (size_t step = 0; step < 3 * PlanCache::kMostPlans; ++step) {
    const Bucket& bucket = buckets.emplace_back(std::vector<size_t>{5, 7});
    ReductionPlan& plan = cache.Find(bucket.call());
    EXPECT_FALSE(HasTables(plan));
    EXPECT_EQ(plan.segments.front().input, bucket.call().segments.front().input);
    EXPECT_EQ(plan.wire.chunks(), 1u);
    FillTables(plan);
    plans.insert(&plan);
  }
  EXPECT_EQ(plans.size(), PlanCache::kMostPlans);
}

TEST(PlanCacheTest, OfATensorThatHasMovedTheTablesAreMadeAgain) {
  PlanCache cache(kChunkBytes);
  Bucket bucket({5, 7});
  FillTables(cache.Find(bucket.call()));
  bucket.segment(1).output = bucket.memory(0);
  EXPECT_FALSE(HasTables(cache.Find(bucket.call())));
  FillTables(cache.Find(bucket.call()));
  bucket.segment(0).residual = bucket.memory(1);
  EXPECT_FALSE(HasTables(cache.Find(bucket.call())));
}

TEST(PlanCacheTest, AnotherWireLayoutHasAnotherPlan) {
  PlanCache cache(kChunkBytes);
  const Bucket bucket({5, 7});
  const ReductionPlan* const plan = &cache.Find(bucket.call());
  ReduceCall narrow = bucket.call();
  narrow.wire = WireFormat::kFloat16;
  const ReductionPlan& narrowed = cache.Find(narrow);
  EXPECT_NE(&narrowed, plan);
  EXPECT_LT(narrowed.wire.bytes(), plan->wire.bytes());
  ReduceCall integers = bucket.call();
  integers.dtype = DType::kInt32;
  EXPECT_NE(&cache.Find(integers), plan);
}

TEST(PlanCacheTest, ALargeBucketHasTablesForEachChunk) {
  PlanCache cache(kChunkBytes);
  const Bucket bucket({size_t{1} << 20});
  const ReductionPlan& plan = cache.Find(bucket.call());
  EXPECT_EQ(plan.wire.chunks(), 4u);
  EXPECT_EQ(plan.chunks.size(), 4u);
}

TEST(PlanCacheTest, AProgramWithEverOtherSizesKeepsABoundedNumberOfPlans) {
  PlanCache cache(kChunkBytes);
  const Bucket repeated({3});
  for (size_t count = 4; count < 4 + 3 * PlanCache::kMostPlans; ++count) {
    const Bucket other({count});
    const ReductionPlan& plan = cache.Find(other.call());
    ASSERT_EQ(plan.segments.front().count, count);
    ASSERT_FALSE(HasTables(plan));
    ReductionPlan& again = cache.Find(repeated.call());
    ASSERT_EQ(again.segments.front().count, 3u);
  }
}

}  // namespace
}  // namespace ronda
