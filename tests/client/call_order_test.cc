// SPDX-License-Identifier: Apache-2.0

#include "client/call_order.h"

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ronda {
namespace {

// Records one call for each letter. Returns the names assigned to the calls.
std::vector<uint64_t> Call(CallOrder& order, const std::string& letters) {
  std::vector<uint64_t> names;
  for (char letter : letters) {
    names.push_back(order.NextName());
    order.Add(static_cast<uint64_t>(letter));
  }
  return names;
}

std::string Times(int count, const std::string& letters) {
  std::string all;
  for (int i = 0; i < count; ++i) all += letters;
  return all;
}

// Expects that the calls of `step` have different names, and the same names in each repetition.
void ExpectSettled(CallOrder& order, const std::string& step) {
  const std::vector<uint64_t> first = Call(order, step);
  EXPECT_EQ(std::set<uint64_t>(first.begin(), first.end()).size(), step.size()) << step;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Call(order, step), first) << step;
}

TEST(CallOrderTest, AStepThatRepeatsGetsTheSameNamesEachTime) {
  for (const std::string& step :
       {std::string("a"), std::string("ab"), std::string("aab"), std::string("aabb"), std::string("abcabd"),
        Times(24, "a") + Times(24, "r"), Times(20, "a") + "x" + Times(20, "a"), Times(60, "abc") + "d"}) {
    CallOrder order;
    Call(order, Times(12, step));
    ExpectSettled(order, step);
  }
}

TEST(CallOrderTest, NamesDifferUntilAStepRepeats) {
  CallOrder order;
  std::set<uint64_t> names;
  for (uint64_t i = 0; i < CallOrder::kNames; ++i) {
    EXPECT_TRUE(names.insert(order.NextName()).second);
    order.Add(i);
  }
  EXPECT_EQ(order.NextName(), 0u);
}

TEST(CallOrderTest, TheNameOfACallDoesNotDependOnItsSignature) {
  CallOrder a, b;
  Call(a, Times(20, "abc"));
  Call(b, Times(20, "abc"));
  EXPECT_EQ(Call(a, "a"), Call(b, "x"));
}

TEST(CallOrderTest, AStepThatIsInterruptedSettlesAgain) {
  CallOrder order;
  Call(order, Times(10, "abc"));
  ExpectSettled(order, "abc");
  Call(order, "x");
  Call(order, Times(8, "abc"));
  ExpectSettled(order, "abc");
  Call(order, Times(10, "abcde"));
  ExpectSettled(order, "abcde");
}

TEST(CallOrderTest, AStepThatHasLastedSettlesQuickly) {
  CallOrder order;
  for (int i = 0; i < 10; ++i) {
    Call(order, Times(500, "abc") + "x" + Times(5, "abc"));
    ExpectSettled(order, "abc");
  }
}

TEST(CallOrderTest, RememberedNamesAreThoseThatWereGiven) {
  CallOrder order;
  const std::vector<uint64_t> names = Call(order, Times(30, "ab") + "c" + Times(5, "d"));
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(order.NameOf(i), names[i]) << i;
  EXPECT_EQ(order.count(), names.size());
}

// Two ranks make different calls once, and learn of the difference at different times. After that, both ranks make the
// same calls.
TEST(CallOrderTest, RanksThatHaveDifferedAgreeAgain) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    CallOrder a, b;
    const std::string step = std::string("abcdefgh").substr(0, 1 + random() % 8);
    const std::string before = Times(static_cast<int>(random() % 12), step) + step.substr(0, random() % step.size());
    EXPECT_EQ(Call(a, before), Call(b, before));
    const uint64_t differs = a.count();
    EXPECT_EQ(Call(a, "a"), Call(b, "x"));
    const std::string after = Times(40, step);
    const size_t a_learns = random() % 10, b_learns = random() % 10;
    for (size_t i = 0; i < after.size(); ++i) {
      if (i == a_learns) a.RestartAfter(differs);
      if (i == b_learns) b.RestartAfter(differs);
      const uint64_t name_of_a = Call(a, {after[i]}).front(), name_of_b = Call(b, {after[i]}).front();
      if (i < a_learns || i < b_learns) continue;
      EXPECT_EQ(name_of_a, name_of_b) << round << ", call " << i << " after";
    }
    ExpectSettled(a, step);
  }
}

}  // namespace
}  // namespace ronda
