#include "bench/machine.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/binding.h"
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

// As Open MPI does with each of two ranks.
TEST(DescribeMachineTest, CoresAreTheMachinesWhereverARankIsBound) {
  const int before = DescribeMachine().cores;
  int bound = 0;
  std::thread([&] {
    Bind(Binding::kCore, 0);
    bound = DescribeMachine().cores;
  }).join();
  EXPECT_EQ(bound, before);
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
