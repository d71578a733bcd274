#include "runtime/negotiation/response_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ronda {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

Response Of(const std::string& name, int64_t count = 3) { return {{.name = name, .shape = {count}}, {}}; }

ResponseList List(std::vector<Execution> executions) {
  ResponseList list;
  list.buckets = {std::move(executions)};
  return list;
}

TEST(ResponseCache, FindsExactlyWhatWasAgreedOn) {
  ResponseCache cache(4);
  ASSERT_TRUE(cache.Apply(List({Of("a")})).ok());
  EXPECT_EQ(cache.Find(Of("a").request, 0), CacheId{1});
  EXPECT_EQ(cache.Find(Of("a", 4).request, 0), std::nullopt);
  EXPECT_EQ(cache.Find(Of("b").request, 0), std::nullopt);
}

TEST(ResponseCache, AllgatherIsFoundByEachRankUnderItsOwnFirstDimension) {
  ResponseCache cache(4);
  const TensorRequest request = {.name = "g", .op = OpType::kAllgather, .shape = {5, 2}};
  ASSERT_TRUE(cache.Apply(List({Response{request, {5, 8}}})).ok());
  TensorRequest other = request;
  other.shape = {8, 2};
  EXPECT_EQ(cache.Find(request, 0), CacheId{1});
  EXPECT_EQ(cache.Find(other, 1), CacheId{1});
  EXPECT_EQ(cache.Find(other, 0), std::nullopt);
  EXPECT_EQ(RequestOf(*cache.Get(1), 1), other);
}

TEST(ResponseCache, LeastRecentlyExecutedEntryGoesFirst) {
  ResponseCache cache(2);
  ASSERT_TRUE(cache.Apply(List({Of("a"), Of("b")})).ok());
  ASSERT_TRUE(cache.Apply(List({CacheId{1}})).ok());
  const auto evicted = cache.Apply(List({Of("c")}));
  ASSERT_TRUE(evicted.ok());
  ASSERT_THAT(*evicted, SizeIs(1));
  EXPECT_EQ(evicted->front().id, CacheId{2});
  EXPECT_EQ(evicted->front().response->request.name, "b");
  EXPECT_EQ(cache.size(), 2u);
}

TEST(ResponseCache, SameNameReplacesItsEntryAlone) {
  ResponseCache cache(4);
  ASSERT_TRUE(cache.Apply(List({Of("a"), Of("b")})).ok());
  const auto evicted = cache.Apply(List({Of("a", 9)}));
  ASSERT_THAT(*evicted, SizeIs(1));
  EXPECT_EQ(evicted->front().id, CacheId{1});
  EXPECT_EQ(cache.Find(Of("a", 9).request, 0), CacheId{3});
  EXPECT_EQ(cache.Find(Of("b").request, 0), CacheId{2});
}

TEST(ResponseCache, EntryEvictedByItsOwnListIsNotTouched) {
  ResponseCache cache(1);
  ASSERT_TRUE(cache.Apply(List({Of("a")})).ok());
  const auto evicted = cache.Apply(List({Of("b"), CacheId{1}}));
  ASSERT_TRUE(evicted.ok());
  EXPECT_THAT(*evicted, SizeIs(1));
  EXPECT_EQ(cache.Get(1), nullptr);
  EXPECT_NE(cache.Get(2), nullptr);
}

TEST(ResponseCache, CapacityZeroRemembersNothing) {
  ResponseCache cache(0);
  EXPECT_THAT(*cache.Apply(List({Of("a")})), IsEmpty());
  EXPECT_EQ(cache.Find(Of("a").request, 0), std::nullopt);
}

TEST(ResponseCache, UnknownIdIsRefusedAndChangesNothing) {
  ResponseCache cache(4);
  EXPECT_EQ(cache.Apply(List({Of("a"), CacheId{77}})).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.size(), 0u);
}

}  // namespace
}  // namespace ronda
