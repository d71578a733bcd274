// SPDX-License-Identifier: Apache-2.0

#include <errno.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/time/time.h"
#include "bench/harness/machine.h"
#include "runtime/base/clock.h"
#include "tests/testing/refuse_call.h"

namespace ronda::bench {
namespace {

TEST(DescribeMachineTest, FactsOfThisMachineAreKnown) {
  const Machine machine = DescribeMachine();
  EXPECT_FALSE(machine.cpu.empty());
  EXPECT_GE(machine.cores, 1);
  EXPECT_GT(machine.memory_gib, 0.1);
  EXPECT_EQ(machine.kernel.rfind("Linux ", 0), 0u) << machine.kernel;
}

// Open MPI binds each rank of a two-rank job to one core. DescribeMachine must still count all cores.
TEST(DescribeMachineTest, CoresAreTheMachinesWhereverARankIsBound) {
  const int before = DescribeMachine().cores;
  int described = 0;
  int bound = 0;
  std::thread([&] {
    Bind(Binding::kCore, 0);
    cpu_set_t own;
    ASSERT_EQ(sched_getaffinity(0, sizeof(own), &own), 0);
    bound = CPU_COUNT(&own);
    described = DescribeMachine().cores;
  }).join();
  ASSERT_EQ(bound, 1) << "the binding did not take effect";
  EXPECT_EQ(described, before);
}

// The columns are user, nice, system, idle, iowait, irq, softirq, steal, guest (a part of user), and guest_nice.
TEST(BusyCoresTest, AreTheShareOfTheTimeThatWasNotIdle) {
  const std::string before = "cpu  100 0 100 1000 50 0 0 0 100 0\ncpu0 1 2 3\ncpu1 1 2 3\nintr 7\n";
  const std::string after = "cpu  130 0 110 1050 60 0 0 20 130 0\ncpu0 1 2 3\ncpu1 1 2 3\nintr 9\n";
  EXPECT_DOUBLE_EQ(BusyCores(before, after), 2 * 60.0 / 120);
  EXPECT_EQ(BusyCores(before, before), 0);
  EXPECT_EQ(BusyCores("", ""), 0);
}

TEST(BusyCoresTest, AreNoMoreThanThereAre) {
  const double busy = BusyCoresNow();
  EXPECT_GE(busy, 0);
  EXPECT_LE(busy, static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)));
}

TEST(NowInUtcTest, IsADateThatOthersRead) {
  absl::Time read;
  std::string error;
  ASSERT_TRUE(absl::ParseTime("%Y-%m-%dT%H:%M:%SZ", NowInUtc(), &read, &error)) << error;
  EXPECT_LT(absl::AbsDuration(CalendarNow() - read), absl::Minutes(1));
}

TEST(CoreDistanceTest, IsPositiveUnlessThereIsOneCore) {
  const double distance = CoreDistanceNanoseconds();
  if (distance == 0) GTEST_SKIP() << "there is one core";
  EXPECT_GT(distance, 1);
}

// Two threads that the system does not bind may share a core, and then the time says nothing about cores.
TEST(CoreDistanceTest, IsUnknownIfNoThreadCanBeBound) {
  EXPECT_EXIT(
      {
        ronda::testing::RefuseCall(SYS_sched_setaffinity, EINVAL);
        _exit(CoreDistanceNanoseconds() == 0 ? 7 : 8);
      },
      ::testing::ExitedWithCode(7), "");
}

// Binds a thread as rank `rank` would be bound, and returns the cores on which it can then run.
cpu_set_t CoresAfter(Binding binding, int rank) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::thread([&] {
    Bind(binding, rank);
    sched_getaffinity(0, sizeof(cores), &cores);
  }).join();
  return cores;
}

TEST(BindTest, ARankMayHaveACoreOfItsOwn) {
  const cpu_set_t core = CoresAfter(Binding::kCore, 0);
  EXPECT_EQ(CPU_COUNT(&core), 1);
}

TEST(BindTest, RanksUseEveryCoreBeforeTheyShareOne) {
  const cpu_set_t all = CoresAfter(Binding::kNone, 0);
  const int cores = CPU_COUNT(&all);
  cpu_set_t used;
  CPU_ZERO(&used);
  for (int rank = 0; rank < cores; ++rank) {
    const cpu_set_t own = CoresAfter(Binding::kCore, rank);
    CPU_OR(&used, &used, &own);
  }
  EXPECT_TRUE(CPU_EQUAL(&used, &all));
  const cpu_set_t first = CoresAfter(Binding::kCore, 0);
  const cpu_set_t next = CoresAfter(Binding::kCore, cores);
  EXPECT_TRUE(CPU_EQUAL(&first, &next));
}

TEST(BindTest, ThreadsStayWhereTheLauncherHasPutThem) {
  cpu_set_t before;
  sched_getaffinity(0, sizeof(before), &before);
  const cpu_set_t after = CoresAfter(Binding::kLauncher, 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(GrantedCoresTest, AreAllAndTheThreadStaysWhereItIs) {
  const cpu_set_t all = CoresAfter(Binding::kNone, 0);
  cpu_set_t after;
  size_t granted = 0;
  std::thread([&] {
    Bind(Binding::kCore, 0);
    granted = GrantedCores().size();
    sched_getaffinity(0, sizeof(after), &after);
  }).join();
  EXPECT_EQ(granted, static_cast<size_t>(CPU_COUNT(&all)));
  EXPECT_EQ(CPU_COUNT(&after), 1);
}

TEST(BindTest, NoBindingUndoesALaunchersOne) {
  cpu_set_t after;
  std::thread([&] {
    Bind(Binding::kCore, 0);
    Bind(Binding::kNone, 0);
    sched_getaffinity(0, sizeof(after), &after);
  }).join();
  const cpu_set_t all = CoresAfter(Binding::kNone, 0);
  EXPECT_TRUE(CPU_EQUAL(&after, &all));
}

}  // namespace
}  // namespace ronda::bench
