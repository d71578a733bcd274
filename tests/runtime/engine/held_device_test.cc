// SPDX-License-Identifier: Apache-2.0

// Tests jobs that fail while streams wait for operations of the job. These tests have their own binary, because work on
// a held device, and NCCL's communicators, remain until the process ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRanks = 2;
constexpr size_t kCount = 3;

// Enqueues the sum of `tensor` on the rank's device, through the engine or a lane.
using SubmitFn = std::function<absl::StatusOr<std::shared_ptr<Handle>>(DeviceRank& rank, const DeviceTensor& tensor)>;

// Doubles a tensor of ones twice, in place. Rank 1 gives up when both ranks' streams wait for the second sum, which the
// devices carry out only after the runtimes have been destroyed. If the failure or the shutdown released a stream too
// early, the stream would find the first sum.
void ExpectThatStreamsWait(const SubmitFn& submit, const std::string& label) {
  std::barrier<> under_way(kRanks);
  std::atomic<int> held{0};
  Runtime::Options options;
  options.stream_is_held = [&](const std::string& why) {
    EXPECT_THAT(why, AllOf(HasSubstr("given up"), HasSubstr("a stream of the program waits for allreduce '" + label)));
    ++held;
  };
  RunDeviceRanks({.size = kRanks, .runtime = options, .expects_failure = true}, [&](DeviceRank& rank) {
    const DeviceTensor& tensor = rank.Keep(std::vector<float>(kCount, 1));
    const auto first = submit(rank, tensor);
    ASSERT_TRUE(first.ok()) << first.status();
    ASSERT_EQ((*first)->OrderBefore(rank.stream()), absl::OkStatus());
    ASSERT_THAT(tensor.Get<float>(), Each(2));
    rank.HoldStream();
    const auto second = submit(rank, tensor);
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_EQ((*second)->OrderBefore(rank.stream()), absl::OkStatus());
    under_way.arrive_and_wait();
    if (rank.rank() == 1) rank.runtime().Abandon(absl::AbortedError("given up"));
    while (held < kRanks) std::this_thread::yield();
    EXPECT_THAT(std::string((*second)->Wait().message()), HasSubstr("given up"));
    EXPECT_THAT(std::string((*second)->OrderBefore(rank.stream()).message()), HasSubstr("given up"));
    const auto third = submit(rank, tensor);
    EXPECT_THAT(std::string((third.ok() ? (*third)->Wait() : third.status()).message()), HasSubstr("given up"));
    rank.KeepAlive(std::shared_ptr<void>(nullptr, [&](void*) { EXPECT_THAT(tensor.Get<float>(), Each(4)); }));
  });
}

TEST(HeldDevice, AStreamThatWaitsForTheEngineNeverGoesOnWithAWrongResult) {
  const auto submit = [](DeviceRank& rank, const DeviceTensor& tensor) {
    return rank.runtime().Submit(DeviceSum("x", rank, tensor, kCount));
  };
  ExpectThatStreamsWait(submit, "x'");
}

TEST(HeldDevice, AStreamThatWaitsForALaneNeverGoesOnWithAWrongResult) {
  const auto submit = [](DeviceRank& rank, const DeviceTensor& tensor) -> absl::StatusOr<std::shared_ptr<Handle>> {
    Runtime& runtime = rank.runtime();
    const absl::StatusOr<bool> is_open = runtime.OpenLane(kGlobalProcessSet, nullptr, WaitLimits());
    if (!is_open.ok()) return is_open.status();
    Submission submission = DeviceSum("", rank, tensor, kCount);
    return runtime.lanes().Find(kGlobalProcessSet)->Submit(&submission);
  };
  ExpectThatStreamsWait(submit, "call 2 of lane 0");
}

}  // namespace
}  // namespace ronda::testing
