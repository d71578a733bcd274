#include "bench/machine.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/core_distance.h"

namespace ronda::bench {
namespace {

TEST(DescribeMachineTest, EverythingIsKnownOfThisOne) {
  const Machine machine = DescribeMachine();
  EXPECT_FALSE(machine.cpu.empty());
  EXPECT_GE(machine.cores, 1);
  EXPECT_GT(machine.memory_gib, 0.1);
  EXPECT_EQ(machine.kernel.rfind("Linux ", 0), 0u) << machine.kernel;
}

TEST(NowInUtcTest, IsADateThatOthersRead) {
  absl::Time read;
  std::string error;
  ASSERT_TRUE(absl::ParseTime("%Y-%m-%dT%H:%M:%SZ", NowInUtc(), &read, &error)) << error;
  EXPECT_LT(absl::AbsDuration(absl::Now() - read), absl::Minutes(1));
}

TEST(CoreDistanceTest, LightTakesTimeUnlessThereIsOneCore) {
  const double distance = CoreDistanceNanoseconds();
  if (distance == 0) GTEST_SKIP() << "there is one core";
  EXPECT_GT(distance, 1);
}

}  // namespace
}  // namespace ronda::bench
