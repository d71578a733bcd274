// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/response_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Group kTwo = Group::All(2);

Response Of(const std::string& name, int64_t count = 3) { return {{.name = name, .shape = {count}}, {}}; }

ResponseList List(std::vector<Execution> executions) {
  ResponseList list;
  list.buckets = {{std::move(executions)}};
  return list;
}

TEST(ResponseCache, FindsExactlyWhatWasAgreedOn) {
  ResponseCache cache(4);
  ASSERT_TRUE(cache.Apply(List({Of("a")})).ok());
  EXPECT_EQ(cache.Find(Of("a").request, 0, kTwo), CacheId{1});
  EXPECT_EQ(cache.Find(Of("a", 4).request, 0, kTwo), std::nullopt);
  EXPECT_EQ(cache.Find(Of("b").request, 0, kTwo), std::nullopt);
}

TEST(ResponseCache, AllgatherIsFoundByEachRankUnderItsOwnFirstDimension) {
  ResponseCache cache(4);
  const TensorRequest request = {.name = "g", .op = OpType::kAllgather, .shape = {5, 2}};
  ASSERT_TRUE(cache.Apply(List({Response{request, {5, 8}}})).ok());
  TensorRequest other = request;
  other.shape = {8, 2};
  EXPECT_EQ(cache.Find(request, 0, kTwo), CacheId{1});
  EXPECT_EQ(cache.Find(other, 1, kTwo), CacheId{1});
  EXPECT_EQ(cache.Find(other, 0, kTwo), std::nullopt);
  EXPECT_EQ(RequestOf(*cache.Get(1), 1, kTwo), other);
}

TEST(ResponseCache, RanksOfAProcessSetAreFoundByTheirPlaceInIt) {
  ResponseCache cache(4);
  const Group members({3, 9});
  const TensorRequest request = {.name = "g", .process_set = 2, .op = OpType::kGather, .shape = {8, 2}, .root = 3};
  ASSERT_TRUE(cache.Apply(List({Response{request, {5, 8}}})).ok());
  EXPECT_EQ(cache.Find(request, 9, members), CacheId{1});
  EXPECT_EQ(cache.Find(request, 3, members), std::nullopt);
  EXPECT_EQ(RequestOf(*cache.Get(1), 3, members).shape, Shape({5, 2}));
}

TEST(ResponseCache, FirstDimensionThatIsNotNegotiatedDoesNotMatter) {
  ResponseCache cache(4);
  TensorRequest alltoall = {.name = "a", .op = OpType::kAlltoall, .shape = {0, 2}};
  TensorRequest scatter = {.name = "s", .op = OpType::kScatter, .shape = {8, 2}, .root = 1};
  ASSERT_TRUE(cache.Apply(List({Response{alltoall, {}}, Response{scatter, {}}})).ok());
  for (int64_t rows : {0, 3, 7}) {
    alltoall.shape[0] = scatter.shape[0] = rows;
    EXPECT_EQ(cache.Find(alltoall, 0, kTwo), CacheId{1});
    EXPECT_EQ(cache.Find(scatter, 0, kTwo), CacheId{2});
    EXPECT_EQ(cache.Find(scatter, 1, kTwo), std::nullopt) << "the root's rows do";
  }
  alltoall.shape[1] = 3;
  EXPECT_EQ(cache.Find(alltoall, 0, kTwo), std::nullopt);
}

TEST(ResponseCache, RequestThatDiffersInAnythingIsNotFound) {
  const TensorRequest cached = {.name = "x", .shape = {4, 2}};
  ResponseCache cache(4);
  ASSERT_TRUE(cache.Apply(List({Response{cached, {}}})).ok());
  const std::vector<void (*)(TensorRequest*)> changes = {
      [](TensorRequest* r) { r->process_set = 1; },
      [](TensorRequest* r) { r->op = OpType::kBroadcast; },
      [](TensorRequest* r) { r->dtype = DType::kInt32; },
      [](TensorRequest* r) { r->memory = Memory::kCuda; },
      [](TensorRequest* r) {
        r->shape = {4, 3};
      },
      [](TensorRequest* r) {
        r->shape = {3, 2};
      },
      [](TensorRequest* r) { r->shape = {4}; },
      [](TensorRequest* r) { r->shape = {}; },
      [](TensorRequest* r) { r->reduction = Reduction::kMax; },
      [](TensorRequest* r) { r->wire = WireFormat::kFp8E4M3; },
      [](TensorRequest* r) { r->prescale = 2; },
      [](TensorRequest* r) { r->postscale = 2; },
      [](TensorRequest* r) { r->overflow = TensorRequest::Overflow::kDetected; },
      [](TensorRequest* r) { r->root = 1; },
      [](TensorRequest* r) { r->receiver = 1; },
      [](TensorRequest* r) { r->group = "g"; },
      [](TensorRequest* r) { r->group_size = 2; },
      [](TensorRequest* r) { r->absent = TensorRequest::Absent::kCountedAsZeros; },
      [](TensorRequest* r) { r->members = {1}; },
      [](TensorRequest* r) { r->subject = 1; },
      [](TensorRequest* r) { r->limits = WaitLimits{}; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    TensorRequest request = cached;
    changes[i](&request);
    EXPECT_EQ(cache.Find(request, 0, kTwo), std::nullopt) << "change " << i;
  }
  EXPECT_EQ(cache.Find(cached, 0, kTwo), CacheId{1});
}

TEST(ResponseCache, SameNameInTwoProcessSetsIsTwoEntries) {
  ResponseCache cache(4);
  Response other = Of("a");
  other.request.process_set = 1;
  ASSERT_TRUE(cache.Apply(List({Of("a"), other})).ok());
  EXPECT_EQ(cache.Find(Of("a").request, 0, kTwo), CacheId{1});
  EXPECT_EQ(cache.Find(other.request, 0, kTwo), CacheId{2});
}

TEST(ResponseCache, RemovedProcessSetTakesItsEntriesAlong) {
  ResponseCache cache(4);
  Response a = Of("a"), b = Of("b");
  a.request.process_set = b.request.process_set = 3;
  ASSERT_TRUE(cache.Apply(List({a, Of("c"), b})).ok());
  const Response removal = {{.name = "remove", .op = OpType::kRemoveProcessSet, .subject = 3}, {}};
  const auto evicted = cache.Apply(List({removal}));
  ASSERT_TRUE(evicted.ok());
  std::vector<CacheId> ids;
  for (const ResponseCache::Evicted& entry : *evicted) ids.push_back(entry.id);
  EXPECT_THAT(ids, ElementsAre(1, 3));
  EXPECT_EQ(cache.size(), 1u);
}

TEST(ResponseCache, JoinsAndChangesOfProcessSetsAreNotKept) {
  ResponseCache cache(4);
  const Response join = {{.name = std::string(kJoinName), .op = OpType::kJoin}, {}};
  const Response add = {{.name = "add", .op = OpType::kAddProcessSet, .members = {0}, .subject = 1}, {}};
  ASSERT_TRUE(cache.Apply(List({join, add})).ok());
  EXPECT_EQ(cache.size(), 0u);
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
  EXPECT_EQ(cache.Find(Of("a", 9).request, 0, kTwo), CacheId{3});
  EXPECT_EQ(cache.Find(Of("b").request, 0, kTwo), CacheId{2});
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
  EXPECT_EQ(cache.Find(Of("a").request, 0, kTwo), std::nullopt);
}

TEST(ResponseCache, UnknownIdIsRefusedAndChangesNothing) {
  ResponseCache cache(4);
  EXPECT_EQ(cache.Apply(List({Of("a"), CacheId{77}})).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.size(), 0u);
}

}  // namespace
}  // namespace ronda
