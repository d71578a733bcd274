// SPDX-License-Identifier: Apache-2.0

// Tests jobs whose buffers are symmetric NCCL windows (RONDA_NCCL_WINDOWS).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/engine/device_job.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DeviceWindows : public ::testing::Test {
 protected:
  void TearDown() override {
    SetFakeNcclFaults(kNoFaults);
    EXPECT_EQ(PopFakeNcclReport(), "");
  }
};

// Submits two tensors as one bucket, waits, and returns the first error.
absl::Status SumTwo(DeviceRank& rank, const DeviceTensor& x, const DeviceTensor& y) {
  auto first = rank.runtime().Submit(DeviceSum("x", rank, x, 3));
  auto second = rank.runtime().Submit(DeviceSum("y", rank, y, 3));
  if (!first.ok() || !second.ok()) return first.ok() ? second.status() : first.status();
  const absl::Status status = (*first)->Wait();
  return status.ok() ? (*second)->Wait() : status;
}

TEST_F(DeviceWindows, SettingOfRankZeroAppliesToLockedSteps) {
  for (const RankId setter : {0, 1}) {
    const int before = FakeNcclWindows();
    RunDeviceRanks({.size = 3, .with_windows = {setter}}, [](DeviceRank& rank) {
      const DeviceTensor x(rank, std::vector<float>(3, 1));
      const DeviceTensor y(rank, std::vector<float>(3, 2));
      for (int step = 0; step < 10; ++step) ASSERT_EQ(SumTwo(rank, x, y), absl::OkStatus());
      EXPECT_EQ(x.Get<float>(), std::vector<float>(3, 59049.0f));
      EXPECT_EQ(y.Get<float>(), std::vector<float>(3, 118098.0f));
    });
    EXPECT_EQ(FakeNcclWindows() > before, setter == 0);
  }
}

TEST_F(DeviceWindows, RankThatCannotRegisterEndsTheJobOnAllRanks) {
  fake_nccl_faults faults = kNoFaults;
  faults.rank = 1;
  faults.fail_register = 1;
  SetFakeNcclFaults(faults);
  RunDeviceRanks({.size = 2, .with_windows = {0}, .expects_failure = true}, [](DeviceRank& rank) {
    const DeviceTensor& x = rank.Keep(std::vector<float>(3, 1));
    const DeviceTensor& y = rank.Keep(std::vector<float>(3, 1));
    absl::Status status;
    for (int step = 0; step < 10 && status.ok(); ++step) status = SumTwo(rank, x, y);  // once fused, they are packed
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("registering memory as a window"),
                                                     HasSubstr("on rank 1"), HasSubstr("unhandled system error")));
  });
}

}  // namespace
}  // namespace ronda::testing
