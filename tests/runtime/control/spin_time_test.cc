// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/spin_time.h"

#include <gtest/gtest.h>

namespace ronda {
namespace {

TEST(SpinTimeTest, ShortSleepsLengthenItUpToALimit) {
  SpinTime spin;
  EXPECT_EQ(spin.length(), absl::ZeroDuration());
  spin.Learn(absl::Microseconds(10));
  EXPECT_EQ(spin.length(), absl::Microseconds(2));
  spin.Learn(absl::Microseconds(79));
  EXPECT_EQ(spin.length(), absl::Microseconds(4));
  for (int i = 0; i < 10; ++i) spin.Learn(absl::ZeroDuration());
  EXPECT_EQ(spin.length(), absl::Microseconds(40));
}

TEST(SpinTimeTest, LongSleepsShortenItToNothing) {
  SpinTime spin;
  for (int i = 0; i < 10; ++i) spin.Learn(absl::ZeroDuration());
  spin.Learn(absl::Microseconds(80));
  EXPECT_EQ(spin.length(), absl::Microseconds(20));
  for (int i = 0; i < 4; ++i) spin.Learn(absl::Seconds(1));
  EXPECT_EQ(spin.length(), absl::ZeroDuration());
}

}  // namespace
}  // namespace ronda
