#include "runtime/engine/process_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Response Added(ProcessSetId id, std::vector<RankId> members) {
  return {.request = {.op = OpType::kAddProcessSet, .members = std::move(members), .subject = id}};
}

TEST(ProcessSets, TellsRemovedSetsFromThoseThatNeverWere) {
  ProcessSets sets(4);
  EXPECT_EQ((*sets.Find(0))->size(), 4);
  ASSERT_TRUE(sets.Apply(Added(1, {0, 2})).ok());
  ASSERT_TRUE(sets.Apply(Added(2, {1})).ok());
  EXPECT_THAT(sets.Ids(), ElementsAre(0, 1, 2));
  EXPECT_THAT((*sets.Find(1))->ranks(), ElementsAre(0, 2));
  ASSERT_TRUE(sets.Apply({.request = {.op = OpType::kRemoveProcessSet, .subject = 1}}).ok());
  EXPECT_THAT(sets.Ids(), ElementsAre(0, 2));
  EXPECT_EQ(sets.Find(1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(sets.Find(1).status().message()), HasSubstr("process set 1 was removed"));
  EXPECT_THAT(std::string(sets.Find(7).status().message()), HasSubstr("there is no process set 7, only 0, 2"));
}

TEST(ProcessSets, OtherResponsesChangeNothing) {
  ProcessSets sets(2);
  EXPECT_TRUE(sets.Apply({.request = {.name = "x", .op = OpType::kJoin}}).ok());
  EXPECT_THAT(sets.Ids(), ElementsAre(0));
}

}  // namespace
}  // namespace ronda
