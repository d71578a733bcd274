// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/membership/slot_table.h"

#include <gtest/gtest.h>

#include "absl/time/time.h"

namespace ronda {
namespace {

using Choice = SlotTable::Choice;

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

SlotTable TwoHosts() {
  SlotTable slots({});
  slots.List({{.name = "alpha", .slots = 1}, {.name = "beta", .slots = 1}});
  return slots;
}

TEST(SlotTableTest, AFreeSlotComesBeforeOneThatWasLeft) {
  SlotTable slots = TwoHosts();
  slots.Leave({.host = 0});
  EXPECT_EQ(slots.FindUsable(Choice::kFreeOrLeft, kNow)->host, 1);
  slots.Occupy({.host = 1});
  EXPECT_EQ(slots.FindUsable(Choice::kFreeOrLeft, kNow)->host, 0);
  EXPECT_FALSE(slots.FindUsable(Choice::kFree, kNow).has_value());
  EXPECT_EQ(slots.UsableFrom(Choice::kFree), absl::InfiniteFuture());
}

TEST(SlotTableTest, ASlotIsUsableWhenItAndItsHostHaveCooledDown) {
  SlotTable slots = TwoHosts();
  slots.Occupy({.host = 1});
  slots.OnDeath({.host = 0}, kNow);
  EXPECT_EQ(slots.UsableFrom(Choice::kFree), kNow + absl::Milliseconds(100));
  slots.OnLoss(0, kNow);
  EXPECT_EQ(slots.UsableFrom(Choice::kFree), kNow + absl::Seconds(1));
  EXPECT_FALSE(slots.FindUsable(Choice::kFree, kNow + absl::Milliseconds(999)).has_value());
  EXPECT_TRUE(slots.FindUsable(Choice::kFree, kNow + absl::Seconds(1)).has_value());
}

TEST(SlotTableTest, AHostThatIsListedAgainBeginsAfresh) {
  SlotTable slots = TwoHosts();
  slots.Leave({.host = 0});
  slots.OnLoss(0, kNow);
  slots.List({{.name = "beta", .slots = 1}});
  EXPECT_FALSE(slots.IsListed({.host = 0}));
  EXPECT_TRUE(slots.IsListed({.host = 1}));
  slots.List({{.name = "beta", .slots = 1}, {.name = "alpha", .slots = 1}});
  EXPECT_EQ(slots.FindUsable(Choice::kFree, kNow)->host, 0) << "it keeps its place among the hosts";
}

TEST(SlotTableTest, AllHostsFailIfEachThatIsListedFailsThreeTimesInARow) {
  SlotTable slots = TwoHosts();
  for (int time = 0; time < 3; ++time) slots.OnFailureToStart(0, kNow);
  EXPECT_FALSE(slots.DoAllFail());
  for (int time = 0; time < 3; ++time) slots.OnLoss(1, kNow);
  EXPECT_TRUE(slots.DoAllFail());
  slots.OnStart(1);
  EXPECT_FALSE(slots.DoAllFail());
  slots.List({});
  EXPECT_FALSE(slots.DoAllFail()) << "there is none that could fail";
}

}  // namespace
}  // namespace ronda
