// SPDX-License-Identifier: Apache-2.0

// Tests the locked schedule with tensors in device memory. A job that repeats its steps locks a schedule. When it stops
// repeating them, all ranks unlock at the same position in the schedule, however far each rank has come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <deque>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;

constexpr size_t kCount = 5;

// ValueOf returns a rank's contribution to a sum in a step; SumOf returns the sum over all ranks.
float ValueOf(int step, RankId rank) { return static_cast<float>(step % 64 + rank); }
float SumOf(int step, int size) {
  float sum = 0;
  for (RankId rank = 0; rank < size; ++rank) sum += ValueOf(step, rank);
  return sum;
}

// A step with some sums on the device and some on the host. Every rank has the same tensors in the same order.
class MixedStep {
 public:
  MixedStep(DeviceRank& rank, std::vector<Memory> places) : rank_(rank), places_(std::move(places)) {
    for (const Memory place : places_) {
      host_.emplace_back(kCount);
      device_.emplace_back(rank, place == Memory::kCuda ? kCount * sizeof(float) : 0);
    }
  }

  std::vector<std::shared_ptr<Handle>> Submit(int step) {
    std::vector<Submission> submissions;
    const std::vector<float> values(kCount, ValueOf(step, rank_.rank()));
    for (size_t i = 0; i < places_.size(); ++i) {
      const std::string name = absl::StrCat("t", i);
      if (places_[i] == Memory::kHost) {
        host_[i] = values;
        submissions.push_back(Sum(name, &host_[i]));
      } else {
        device_[i].Set(values);
        submissions.push_back(DeviceSum(name, rank_, device_[i], kCount));
      }
    }
    const auto handles = SubmitAll(rank_.runtime(), submissions);
    EXPECT_TRUE(handles.ok()) << handles.status();
    return handles.ok() ? *handles : std::vector<std::shared_ptr<Handle>>();
  }

  // Waits on the host, or makes the rank's stream wait.
  void Await(const std::vector<std::shared_ptr<Handle>>& handles, bool on_stream) {
    for (const auto& handle : handles) {
      EXPECT_EQ(on_stream ? handle->OrderBefore(rank_.stream()) : handle->Wait(), absl::OkStatus());
    }
  }

  void ExpectSums(int step) const {
    for (size_t i = 0; i < places_.size(); ++i) {
      const std::vector<float> got = places_[i] == Memory::kHost ? host_[i] : device_[i].Get<float>();
      ASSERT_THAT(got, Each(SumOf(step, rank_.runtime().topology().size))) << "tensor " << i << " of step " << step;
    }
  }

  void Run(int step, bool on_stream) {
    Await(Submit(step), on_stream);
    ExpectSums(step);
  }

 private:
  DeviceRank& rank_;
  const std::vector<Memory> places_;
  std::deque<std::vector<float>> host_;
  std::deque<DeviceTensor> device_;
};

constexpr Memory kHost = Memory::kHost;
constexpr Memory kCuda = Memory::kCuda;

class DeviceSchedule : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Backends, DeviceSchedule,
                         ::testing::Values("nccl", "hierarchical-staged", "staged", "hierarchical-nccl", "peer"),
                         [](const auto& backend) {
                           return absl::StrReplaceAll(backend.param, {{"-", "_"}});
                         });

TEST_P(DeviceSchedule, IsEnteredAndCarriesTheSteps) {
  std::barrier<> meeting(3);
  RunDeviceRanks({.size = 3, .backend = GetParam(), .hosts = HostsFor(GetParam(), 3)}, [&](DeviceRank& rank) {
    MixedStep step(rank, {kCuda, kHost, kCuda});
    int steps = 0;
    for (; steps < 40; ++steps) step.Run(steps, steps % 2 == 0);
    const Statistics statistics = rank.runtime().statistics();
    EXPECT_GE(statistics.schedules_begun, 1u);
    EXPECT_EQ(statistics.schedules_begun, statistics.schedules_left + 1);
    EXPECT_THAT(statistics.schedule_rounds, AllOf(Ge(20u), Le(40u)));
    EXPECT_GE(statistics.buckets_scheduled, statistics.schedule_rounds);
    meeting.arrive_and_wait();
  });
}

TEST_P(DeviceSchedule, IsLeftForSomethingNewOfOneRankAndComesAgain) {
  std::barrier<> meeting(3);
  RunDeviceRanks({.size = 3, .backend = GetParam(), .hosts = HostsFor(GetParam(), 3)}, [&](DeviceRank& rank) {
    MixedStep step(rank, {kCuda, kCuda});
    int steps = 0;
    for (; steps < 20; ++steps) step.Run(steps, false);
    EXPECT_EQ(rank.runtime().statistics().schedules_begun, rank.runtime().statistics().schedules_left + 1);
    meeting.arrive_and_wait();
    const DeviceTensor other(rank, std::vector<float>(3, 1));
    std::shared_ptr<Handle> early;
    // Rank 0 submits the new tensor three steps before the other ranks.
    if (rank.rank() == 0) early = *rank.runtime().Submit(DeviceSum("new", rank, other, 3));
    for (int i = 0; i < 3; ++i, ++steps) step.Run(steps, true);
    if (rank.rank() != 0) early = *rank.runtime().Submit(DeviceSum("new", rank, other, 3));
    EXPECT_EQ(early->Wait(), absl::OkStatus());
    EXPECT_THAT(other.Get<float>(), Each(3.0f));
    for (int i = 0; i < 20; ++i, ++steps) step.Run(steps, true);
    EXPECT_GE(rank.runtime().statistics().schedules_begun, 2u);
    EXPECT_GE(rank.runtime().statistics().schedules_left, 1u);
    meeting.arrive_and_wait();
  });
}

// Three ranks sum and scatter four rows, and vote in every step. NCCL scatters the sums, and no rank needs to send its
// number of rows.
TEST(DeviceScheduleOverNccl, AReduceScatterIsOneOfNcclsInLockedStepsToo) {
  constexpr int kSteps = 30;
  const int scatters = FakeNcclCalls("ReduceScatter");
  std::barrier<> meeting(3);
  RunDeviceRanks({.size = 3}, [&](DeviceRank& rank) {
    for (int step = 0; step < kSteps; ++step) {
      std::vector<float> values(8);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(10 * i) + ValueOf(step, rank.rank());
      DeviceTensor input(rank, values);
      Submission submission = DeviceSum("x", rank, input, 8);
      submission.request.op = OpType::kReduceScatter;
      submission.request.shape = {4, 2};
      submission.output = nullptr;  // the handle holds the result
      const auto handle = SucceedOn(rank, submission);
      ASSERT_NE(handle, nullptr);
      const size_t first = rank.rank() == 0 ? 0 : static_cast<size_t>(2 + 2 * rank.rank());
      std::vector<float> expected;
      for (size_t i = first; i < first + (rank.rank() == 0 ? 4 : 2); ++i) {
        expected.push_back(static_cast<float>(30 * i) + SumOf(step, 3));
      }
      EXPECT_EQ(DeviceTensor::ReadAs<float>(rank, handle->result().rows(), expected.size()), expected);
    }
    EXPECT_GE(rank.runtime().statistics().schedule_rounds, 10u);
    meeting.arrive_and_wait();
  });
  EXPECT_GE(FakeNcclCalls("ReduceScatter") - scatters, 3 * kSteps);
}

TEST(DeviceScheduleOfOne, NeedsNoVotes) {
  RunDeviceRanks({.size = 1}, [&](DeviceRank& rank) {
    MixedStep step(rank, {kCuda, kHost});
    for (int i = 0; i < 20; ++i) step.Run(i, true);
    EXPECT_EQ(rank.runtime().statistics().schedules_begun, 1u);
  });
}

TEST(DeviceScheduleOfOne, StreamsMayLagFarBehind) {
  RunDeviceRanks({.size = 1}, [&](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(3, 1));
    for (int i = 0; i < 20; ++i) ASSERT_NE(SucceedOn(rank, DeviceSum("x", rank, tensor, 3)), nullptr);
    StreamHold hold(rank.stream());
    std::shared_ptr<Handle> last;
    for (int i = 0; i < 20; ++i) {
      last = *rank.runtime().Submit(DeviceSum("x", rank, tensor, 3));
      EXPECT_EQ(last->OrderBefore(rank.stream()), absl::OkStatus());
    }
    EXPECT_FALSE(last->done());
    hold.Release();
    EXPECT_EQ(last->Wait(), absl::OkStatus());
  });
}

// If a rank does not take part, the other ranks request an unlock. The negotiation then names the missing rank.
TEST(DeviceScheduleFailures, ARankThatStopsIsNamedByTheNegotiation) {
  Runtime::Options options;
  options.tunables.stall_warning = absl::Milliseconds(100);
  options.tunables.stall_deadline = absl::Milliseconds(1500);
  std::barrier<> meeting(2);
  RunDeviceRanks({.size = 2, .runtime = options}, [&](DeviceRank& rank) {
    MixedStep step(rank, {kCuda, kCuda});
    for (int i = 0; i < 20; ++i) step.Run(i, false);
    meeting.arrive_and_wait();
    if (rank.rank() == 0) {
      const DeviceTensor tensor(rank, std::vector<float>(kCount, 1));
      const absl::Status status = CarryOut(rank.runtime(), DeviceSum("t0", rank, tensor, kCount));
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("rank 1"));
    }
    meeting.arrive_and_wait();
  });
}

// One rank of a job whose ranks repeat the same steps for a while. Once per phase, each rank also submits an extra sum
// at a random step of its own. The rank waits for results on the host or on its stream.
class RandomDeviceTrainer {
 public:
  RandomDeviceTrainer(DeviceRank& rank, uint32_t seed)
      : rank_(rank), common_(seed), own_(seed + 1 + static_cast<uint32_t>(rank.rank())) {}

  void Train(int phases) {
    for (int phase = 0; phase < phases && !::testing::Test::HasFailure(); ++phase) Phase(phase);
  }

 private:
  int Common(int below) { return static_cast<int>(common_() % static_cast<uint32_t>(below)); }
  int Own(int below) { return static_cast<int>(own_() % static_cast<uint32_t>(below)); }

  void Phase(int phase) {
    std::vector<Memory> places;
    const int tensors = 1 + Common(5);
    for (int i = 0; i < tensors; ++i) places.push_back(Common(3) == 0 ? kHost : kCuda);
    MixedStep step(rank_, places);
    const int times = 1 + Common(40);
    const bool extra_on_device = Common(2) == 0;
    const int extra_at = Own(times);
    DeviceTensor on_device(rank_, std::vector<float>(3, 1));
    std::vector<float> on_host(3, 1);
    const std::string name = absl::StrCat("extra", phase);
    std::shared_ptr<Handle> extra;
    for (int i = 0; i < times; ++i) {
      const auto submit_extra = [&] {
        extra = *rank_.runtime().Submit(extra_on_device ? DeviceSum(name, rank_, on_device, 3) : Sum(name, &on_host));
      };
      const bool is_time = i == extra_at;
      const bool is_before = Own(2) == 0;
      if (is_time && is_before) submit_extra();
      const auto handles = step.Submit(i);
      if (is_time && !is_before) submit_extra();
      step.Await(handles, Own(2) == 0);
      step.ExpectSums(i);
    }
    ASSERT_EQ(extra->Wait(), absl::OkStatus());
    const float sum = static_cast<float>(rank_.runtime().topology().size);
    EXPECT_THAT(extra_on_device ? on_device.Get<float>() : on_host, Each(sum));
  }

  DeviceRank& rank_;
  std::mt19937 common_;
  std::mt19937 own_;
};

class DeviceScheduleStress : public ::testing::TestWithParam<uint32_t> {};

INSTANTIATE_TEST_SUITE_P(Seeds, DeviceScheduleStress, ::testing::Range(1u, 7u));

TEST_P(DeviceScheduleStress, ResultsAreRightWhereverRanksLeave) {
  const uint32_t seed = GetParam();
  std::cout << "seed " << seed << std::endl;
  Runtime::Options options;
  options.tunables.lock_after = 2;
  if (seed % 2 == 0) options.tunables.fusion_threshold = 0;  // one bucket per tensor, so many votes
  RunDeviceRanks({.size = 2 + static_cast<int>(seed % 2),
                  .backend = seed % 4 == 3 ? "staged" : "nccl",
                  .runtime = options,
                  .cuda = {.delay_seed = seed}},
                 [&](DeviceRank& rank) { RandomDeviceTrainer(rank, seed).Train(4); });
}

}  // namespace
}  // namespace ronda::testing
