// SPDX-License-Identifier: Apache-2.0

// Tests training on fake devices that wait wherever CUDA may wait. Their streams share one queue, and calls that
// allocate or free memory wait for all work of the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"

namespace ronda::testing {
namespace {

using ::testing::Each;

constexpr int kRanks = 2;

// The steps of a rank. Each of them sums the rank's tensors, and the rank's stream waits for the sums.
class StrictSteps {
 public:
  explicit StrictSteps(DeviceRank& rank) : rank_(rank) {}

  // Adds a tensor to the steps.
  void Add(size_t count) {
    tensors_.emplace_back(rank_, std::vector<float>(count));
    counts_.push_back(count);
  }

  void Run() {
    ++step_;
    std::vector<std::shared_ptr<Handle>> handles;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].Set(std::vector<float>(counts_[i], Value(rank_.rank(), i)));
      const auto handle = rank_.runtime().Submit(DeviceSum(absl::StrCat("t", i), rank_, tensors_[i], counts_[i]));
      ASSERT_EQ(handle.status(), absl::OkStatus());
      handles.push_back(*handle);
    }
    for (const auto& handle : handles) ASSERT_EQ(handle->OrderBefore(rank_.stream()), absl::OkStatus());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      ASSERT_THAT(tensors_[i].Get<float>(), Each(Value(0, i) + Value(1, i))) << "tensor " << i << " of step " << step_;
    }
  }

 private:
  float Value(RankId rank, size_t tensor) const { return static_cast<float>(step_ % 64 + rank + 3 * tensor); }

  DeviceRank& rank_;
  int step_ = 0;
  std::deque<DeviceTensor> tensors_;
  std::vector<size_t> counts_;
};

FakeCuda::Options OneQueue() { return {.delay_seed = 7, .queues = 1}; }
FakeCuda::Options WaitingMemory() {
  return {.delay_seed = 7,
          .frees = FakeCuda::Frees::kWaitForTheDevice,
          .allocations = FakeCuda::Options::Allocations::kWaitForTheDevice};
}

using Case = std::tuple<std::string, FakeCuda::Options>;

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return absl::StrCat(std::get<0>(info.param), "_",
                      std::get<1>(info.param).queues == 1 ? "one_queue" : "waiting_memory");
}

class DeviceStrict : public ::testing::TestWithParam<Case> {
 protected:
  static DeviceJobOptions Job() {
    return {.size = kRanks, .backend = std::get<0>(GetParam()), .cuda = std::get<1>(GetParam())};
  }
};

INSTANTIATE_TEST_SUITE_P(Strictness, DeviceStrict,
                         ::testing::Combine(::testing::Values("nccl", "staged", "peer"),
                                            ::testing::Values(OneQueue(), WaitingMemory())),
                         NameOf);

TEST_P(DeviceStrict, StepsAreLockedAndRight) {
  RunDeviceRanks(Job(), [](DeviceRank& rank) {
    StrictSteps steps(rank);
    for (const size_t count : {5, 1000, 20000}) steps.Add(count);
    for (int i = 0; i < 25; ++i) steps.Run();
    EXPECT_GE(rank.runtime().statistics().schedules_begun, 1u);
  });
}

// Tests steps that change, so that a rank votes against a bucket of a locked step.
class DeviceStrictChanges : public DeviceStrict {};

INSTANTIATE_TEST_SUITE_P(Strictness, DeviceStrictChanges,
                         ::testing::Combine(::testing::Values("nccl", "staged", "peer"),
                                            ::testing::Values(OneQueue(), WaitingMemory())),
                         NameOf);

// The steps change, and the buffers grow while the device is busy.
TEST_P(DeviceStrictChanges, StepsGrow) {
  RunDeviceRanks(Job(), [](DeviceRank& rank) {
    StrictSteps steps(rank);
    for (const size_t count : {10, 3000, 60000}) {
      steps.Add(count);
      for (int i = 0; i < 10; ++i) steps.Run();
    }
  });
}

// Rank 0 submits a new tensor some steps before the other ranks.
TEST_P(DeviceStrictChanges, AStepThatOneRankChangesIsRight) {
  std::barrier<> meeting(kRanks);
  RunDeviceRanks(Job(), [&](DeviceRank& rank) {
    StrictSteps steps(rank);
    for (const size_t count : {5, 1000}) steps.Add(count);
    for (int i = 0; i < 20; ++i) steps.Run();
    meeting.arrive_and_wait();
    const DeviceTensor other(rank, std::vector<float>(3, 1));
    const auto submit = [&] { return *rank.runtime().Submit(DeviceSum("new", rank, other, 3)); };
    std::shared_ptr<Handle> handle = rank.rank() == 0 ? submit() : nullptr;
    for (int i = 0; i < 3; ++i) steps.Run();
    if (handle == nullptr) handle = submit();
    EXPECT_EQ(handle->Wait(), absl::OkStatus());
    EXPECT_THAT(other.Get<float>(), Each(2.0f));
    for (int i = 0; i < 10; ++i) steps.Run();
    EXPECT_GE(rank.runtime().statistics().schedules_left, 1u);
    meeting.arrive_and_wait();
  });
}

}  // namespace
}  // namespace ronda::testing
