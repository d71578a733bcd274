// SPDX-License-Identifier: Apache-2.0

// Tests jobs on several hosts whose tensors are on devices. The ranks communicate in two levels, within a host and
// across hosts. Either level may fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <string>
#include <vector>

#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// With two ranks per host, only the communicators across hosts have a rank 2.
const HostMap& ThreeHosts() {
  static const HostMap* const map = new HostMap{.hosts = {{0, 1}, {2, 3}, {4, 5}}};
  return *map;
}

// A failure of NCCL in all communicators that have a rank `nccl_rank`.
struct Fault {
  std::string name;
  std::string backend;
  int nccl_rank;
  std::string ranks;  // a regular expression for the ranks of the named communicator, by their numbers in the job
};

std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }

class DeviceHierarchyFaults : public ::testing::TestWithParam<Fault> {
 protected:
  ~DeviceHierarchyFaults() override { SetFakeNcclFaults(kNoFaults); }

  // Runs a job whose second operation fails in this way.
  void Run(fake_nccl_faults faults, const Runtime::Options& options, absl::StatusCode expected) {
    faults.rank = GetParam().nccl_rank;
    SetFakeNcclFaults(faults);
    RunDeviceRanks(
        {.size = 6, .backend = GetParam().backend, .hosts = ThreeHosts(), .runtime = options, .expects_failure = true},
        [&](DeviceRank& rank) {
          const DeviceTensor& tensor = rank.Keep(std::vector<float>(3, 1));
          absl::Status status;
          for (int step = 0; step < 5 && status.ok(); ++step) {
            status = CarryOut(rank.runtime(), DeviceSum("x", rank, tensor, 3));
          }
          EXPECT_EQ(status.code(), expected) << status;
        });
    EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
  }
};

INSTANTIATE_TEST_SUITE_P(Levels, DeviceHierarchyFaults,
                         ::testing::Values(Fault{"OnHostsUnderMessages", "hierarchical-staged", 1,
                                                 "(0 and 1|2 and 3|4 and 5)"},
                                           Fault{"OnBothLevels", "hierarchical-nccl", 1, "(. and .|., . and .)"},
                                           Fault{"Across", "hierarchical-nccl", 2, "(0, 2 and 4|1, 3 and 5)"}),
                         [](const auto& fault) { return fault.param.name; });

TEST_P(DeviceHierarchyFaults, ErrorOfNcclReachesAllRanks) {
  fake_nccl_faults faults = kNoFaults;
  faults.error_at = 1;
  faults.hang_at = 1;
  Run(faults, {}, absl::StatusCode::kUnavailable);
}

TEST_P(DeviceHierarchyFaults, ALevelThatHangsEndsTheJobByItsDeadline) {
  fake_nccl_faults faults = kNoFaults;
  faults.hang_at = 1;
  Runtime::Options options;
  options.tunables.stall_warning = absl::Milliseconds(100);
  options.tunables.stall_deadline = absl::Milliseconds(1500);
  Run(faults, options, absl::StatusCode::kDeadlineExceeded);
}

class DeviceHierarchy : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Backends, DeviceHierarchy, ::testing::Values("hierarchical-staged", "hierarchical-nccl"),
                         [](const auto& backend) { return backend.param.substr(sizeof("hierarchical")); });

TEST_P(DeviceHierarchy, ARankThatIsGoneLeavesNoThreadWaitingForTheDevice) {
  std::barrier<> under_way(6);
  RunDeviceRanks({.size = 6, .backend = GetParam(), .hosts = ThreeHosts(), .expects_failure = true},
                 [&](DeviceRank& rank) {
                   const DeviceTensor& tensor = rank.Keep(std::vector<float>(3, 1));
                   ASSERT_NE(SucceedOn(rank, DeviceSum("x", rank, tensor, 3)), nullptr);
                   ASSERT_NE(SucceedOn(rank, Barrier("b")), nullptr);
                   // Rank 3's stream is held, so the sum begins on the other ranks' devices, and waits there for rank
                   // 3's device.
                   std::unique_ptr<StreamHold> hold;
                   if (rank.rank() == 3) hold = std::make_unique<StreamHold>(rank.stream());
                   const auto handle = rank.runtime().Submit(DeviceSum("x", rank, tensor, 3));
                   ASSERT_TRUE(handle.ok()) << handle.status();
                   under_way.arrive_and_wait();
                   if (rank.rank() == 3) rank.runtime().Abandon(absl::AbortedError("given up"));
                   EXPECT_THAT(std::string((*handle)->Wait().message()), HasSubstr("given up"));
                 });
  EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
}

TEST_P(DeviceHierarchy, AStuckDeviceDoesNotHoldUpTheEndOfAFailedJob) {
  Runtime::Options options;
  options.tunables.stall_warning = absl::Milliseconds(100);
  options.tunables.stall_deadline = absl::Milliseconds(1500);
  RunDeviceRanks({.size = 6,
                  .backend = GetParam(),
                  .hosts = ThreeHosts(),
                  .runtime = options,
                  .cuda = {.frees = FakeCuda::Frees::kWaitForTheDevice},
                  .expects_failure = true},
                 [&](DeviceRank& rank) {
                   const DeviceTensor& tensor = rank.Keep(std::vector<float>(3, 1));
                   ASSERT_NE(SucceedOn(rank, DeviceSum("x", rank, tensor, 3)), nullptr);
                   ASSERT_NE(SucceedOn(rank, Barrier("b")), nullptr);
                   if (rank.rank() == 3) rank.HoldStream();
                   const absl::Status status = CarryOut(rank.runtime(), DeviceSum("x", rank, tensor, 3));
                   EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
                 });
}

TEST_P(DeviceHierarchy, NeitherMemoryNorEventsGrowWithTheNumberOfSteps) {
  RunDeviceRanks({.size = 3, .backend = GetParam(), .hosts = {.hosts = {{0, 1}, {2}}}}, [](DeviceRank& rank) {
    const DeviceTensor first(rank, std::vector<float>(1000, 0));
    const DeviceTensor second(rank, std::vector<float>(100, 1));
    const auto step = [&] {
      const auto handles =
          SubmitAll(rank.runtime(), {DeviceSum("a", rank, first, 1000), DeviceSum("b", rank, second, 100)});
      ASSERT_TRUE(handles.ok()) << handles.status();
      for (const auto& handle : *handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
      ASSERT_NE(SucceedOn(rank, Barrier("step")), nullptr);
    };
    for (int i = 0; i < 40; ++i) step();
    ASSERT_NE(SucceedOn(rank, Barrier("begin")), nullptr);
    const size_t allocations = rank.fake().allocations();
    const size_t events = rank.fake().created_events();
    for (int i = 0; i < 60; ++i) step();
    // The number of objects in use may depend on when threads release handles, but must not grow with each step.
    EXPECT_LE(rank.fake().allocations(), allocations + 10);
    EXPECT_LE(rank.fake().created_events(), events + 10);
    ASSERT_NE(SucceedOn(rank, Barrier("end")), nullptr);
  });
}

}  // namespace
}  // namespace ronda::testing
