// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "bench/advise/profile.h"

namespace ronda::bench {
namespace {

using ::testing::HasSubstr;

// Writes the events of a timeline that a profile reads, in the format of runtime/monitor/timeline.
class TimelineText {
 public:
  // Writes an allreduce of the tensor in `row`, from `begin` to `end` in microseconds.
  void Reduce(int row, double begin, double end, int bytes, const std::string& dtype = "float32") {
    Span(row, absl::StrCat("tensor ", row), begin, end, "{\"outcome\":\"done\"}");
    Span(row, "LOCKED", begin, (begin + end) / 2, "{}");
    Span(row, "ALLREDUCE", (begin + end) / 2, end, absl::StrCat("{\"bytes\":", bytes, ",\"dtype\":\"", dtype, "\"}"));
    Span(1, "ALLREDUCE", begin, end,
         absl::StrCat("{\"bucket\":\"any\",\"bytes\":", bytes, ",\"dtype\":\"", dtype, "\",\"outcome\":\"done\"}"));
  }

  void Broadcast(int row, double begin, double end) {
    Span(row, absl::StrCat("tensor ", row), begin, end, "{\"outcome\":\"done\"}");
    Span(row, "BROADCAST", begin, end, "{\"bytes\":8,\"dtype\":\"float32\"}");
  }

  std::string text() const { return absl::StrCat("[\n", text_, "{\"ph\":\"i\",\"name\":\"CYCLE_START\"}\n]\n"); }

 private:
  void Span(int row, const std::string& name, double begin, double end, const std::string& args) {
    absl::StrAppend(&text_, "{\"ph\":\"X\",\"pid\":0,\"tid\":", row, ",\"name\":\"", name, "\",\"ts\":", begin,
                    ",\"dur\":", end - begin, ",\"args\":", args, "},\n");
  }

  std::string text_;
};

constexpr int kVote = 10, kSecond = 11, kFirst = 12, kMetric = 13;

// Returns a timeline of steps of 1,000 us each. A step has a vote, a gradient at 600 us, another at 900 us, and then 50
// us of waiting.
std::string Steps(int count) {
  TimelineText timeline;
  timeline.Broadcast(kSecond, 1, 2);
  for (int step = 0; step < count; ++step) {
    const double begin = 10000.0 + 1000 * step;
    timeline.Reduce(kVote, begin, begin + 5, 1, "uint8");
    timeline.Reduce(kFirst, begin + 600, begin + 610, 4000000);
    timeline.Reduce(kSecond, begin + 900, begin + 950, 8000);
    if (step % 10 == 9) timeline.Reduce(kMetric, begin + 960, begin + 970, 8, "float64");
  }
  return timeline.text();
}

TEST(ProfileTest, StepsGradientsAndVotesAreFound) {
  const absl::StatusOr<Profile> profile = ProfileOf(Steps(101));
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->steps.size(), 90u);  // without the 10 that warm up, and without the last one
  EXPECT_NEAR(profile->median(), 950e-6, 1e-9);
  EXPECT_EQ(profile->votes, 1);
  ASSERT_EQ(profile->gradients.size(), 2u);
  EXPECT_EQ(profile->gradients[0].bytes, 4000000);
  EXPECT_NEAR(profile->gradients[0].ready, 1 - 300.0 / 950, 1e-6);
  EXPECT_EQ(profile->gradients[1].bytes, 8000);
  EXPECT_EQ(profile->gradients[1].ready, 1);
  EXPECT_EQ(profile->bytes(), 4008000);
}

TEST(ProfileTest, AnUnfinishedLineIsLeftOut) {
  const std::string timeline = Steps(40);
  const absl::StatusOr<Profile> profile = ProfileOf(timeline.substr(0, timeline.size() * 3 / 4));
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_NEAR(profile->median(), 950e-6, 1e-9);
}

TEST(ProfileTest, TheSlowestOfManyRanksIsAQuantile) {
  Profile profile;
  for (int i = 0; i <= 100; ++i) profile.steps.push_back(i);
  EXPECT_NEAR(profile.SlowestOf(1), 50, 1e-9);
  EXPECT_NEAR(profile.SlowestOf(2), 70.71, 0.01);
  EXPECT_NEAR(profile.SlowestOf(4), 84.09, 0.01);
}

TEST(ProfileTest, TooFewStepsAreNamed) {
  EXPECT_THAT(ProfileOf(Steps(12)).status().message(), HasSubstr("has made 12 steps, of which 9 count"));
  EXPECT_TRUE(ProfileOf(Steps(14)).ok());
}

TEST(ProfileTest, AProgramWithoutAllreducesIsNoTrainer) {
  EXPECT_THAT(ProfileOf("[\n]\n").status().message(), HasSubstr("no floating-point tensor by allreduce"));
  TimelineText timeline;
  timeline.Broadcast(kFirst, 1, 2);
  timeline.Reduce(kVote, 3, 4, 1, "uint8");
  EXPECT_FALSE(ProfileOf(timeline.text()).ok());
}

}  // namespace
}  // namespace ronda::bench
