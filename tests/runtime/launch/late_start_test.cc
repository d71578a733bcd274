#include "runtime/launch/late_start.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(LateStartTest, RanksAndHostsAreNamed) {
  EXPECT_THAT(DescribeLateStart({{2, "beta"}}, absl::Seconds(30)),
              StartsWith("rank 2 (host beta) was not started within 30s: "));
  EXPECT_THAT(DescribeLateStart({{2, "beta"}, {3, "beta"}}, absl::Milliseconds(1500)),
              StartsWith("ranks 2 and 3 (host beta) were not started within 1.5s: "));
  EXPECT_THAT(DescribeLateStart({{3, "beta"}, {0, "alpha"}, {1, "alpha"}}, absl::Seconds(30)),
              StartsWith("ranks 0, 1 and 3 (hosts beta and alpha) were not started within 30s: "));
}

TEST(LateStartTest, SaysWhatToLookAt) {
  EXPECT_THAT(DescribeLateStart({{0, "alpha"}}, absl::Seconds(30)),
              AllOf(HasSubstr("rondarun --check"), HasSubstr("--network-interfaces"), HasSubstr("--start-timeout")));
}

}  // namespace
}  // namespace ronda
