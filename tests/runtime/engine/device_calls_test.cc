// SPDX-License-Identifier: Apache-2.0

// Tests which calls a locked step makes to the driver. The step makes calls for buckets and streams, but no calls for a
// tensor that was in an earlier step.
#include <gtest/gtest.h>

#include <barrier>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/engine/device/rank_device.h"
#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

constexpr int kRanks = 2;
constexpr size_t kCount = 5;
constexpr size_t kSteps = 7;  // whose calls are counted
constexpr int kRounds = 10;

// The calls of the driver for a bucket. The first four are for Ronda's stream: it waits for the submissions, runs two
// kernels, and records an event. The fifth call makes the trainer's stream wait for this event.
constexpr size_t kCallsOfBucket = 5;
// The two queries of a stream: whether it is being captured, and its number.
constexpr size_t kLook = 2;
// A submission makes the two queries, and records the stream's point.
constexpr size_t kCallsOfSubmission = kLook + 1;
// The changes of the current device that Ronda makes if the trainer's thread uses another device. Ronda changes to its
// own device and back up to four times. Ronda changes the device for the submission, and for the bucket if this thread
// launches the bucket. Ronda also changes the device to look up the number of the waiting stream, and to make this
// stream wait.
constexpr size_t kMostChanges = 4 * 2;

enum class Submit { kTogether, kOneByOne };

// Training steps with sums, for whose results the rank's stream waits.
class Steps {
 public:
  Steps(DeviceRank& rank, size_t tensors, Submit way) : rank_(rank), way_(way) {
    for (size_t i = 0; i < tensors; ++i) {
      tensors_.emplace_back(rank, std::vector<float>(kCount, 1));
      submissions_.push_back(DeviceSum(absl::StrCat("t", i), rank, tensors_.back(), kCount));
    }
  }

  void Run() {
    StreamHold hold(rank_.stream());  // the bucket is not done before the stream has its wait
    const size_t changes = FakeCuda::DeviceChangesOfThisThread();
    std::vector<std::shared_ptr<Handle>> handles = SubmitAll();
    WaitingStream together(rank_.stream());
    for (const std::shared_ptr<Handle>& handle : handles) {
      const absl::Status status =
          way_ == Submit::kTogether ? handle->OrderBefore(together) : handle->OrderBefore(rank_.stream());
      EXPECT_EQ(status, absl::OkStatus());
    }
    device_changes_ += FakeCuda::DeviceChangesOfThisThread() - changes;
    hold.Release();
    for (const std::shared_ptr<Handle>& handle : handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
  }

  // Returns how often the current device was changed in all steps. A step ends after the stream's waits.
  size_t device_changes() const { return device_changes_; }

 private:
  std::vector<std::shared_ptr<Handle>> SubmitAll() {
    if (way_ == Submit::kTogether) return *testing::SubmitAll(rank_.runtime(), submissions_);
    std::vector<std::shared_ptr<Handle>> handles;
    for (const Submission& submission : submissions_) handles.push_back(*rank_.runtime().Submit(submission));
    return handles;
  }

  DeviceRank& rank_;
  const Submit way_;
  std::deque<DeviceTensor> tensors_;
  std::vector<Submission> submissions_;
  size_t device_changes_ = 0;
};

struct Calls {
  // The number of calls of the driver. Queries of events are not counted, because their number depends on timing. Calls
  // that create events or memory are not counted, because they occur only until enough events and memory exist.
  size_t all = 0;
  size_t pointers = 0;
  size_t streams = 0;
  int threads = 0;  // the threads that NCCL has started
  size_t buckets = 0;
};

Calls CallsSoFar(FakeCuda& cuda) {
  return {.all = cuda.calls() - cuda.queried_events() - cuda.created_events() - cuda.allocations(),
          .pointers = cuda.looks_at_pointers(),
          .streams = cuda.looks_at_streams(),
          .threads = FakeNcclThreads()};
}

// Returns the calls of kSteps steps of all ranks, as rank 0 counts them. On all other ranks, the result is nullopt.
std::optional<Calls> CountRound(DeviceRank& rank, Steps& steps, std::barrier<>& together) {
  together.arrive_and_wait();
  const Calls before = CallsSoFar(rank.fake());
  if (rank.rank() == 0) rank.fake().TakeRanges();  // forgets the earlier ranges; each bucket makes one
  together.arrive_and_wait();
  for (size_t i = 0; i < kSteps; ++i) steps.Run();
  together.arrive_and_wait();
  const Calls after = CallsSoFar(rank.fake());
  const size_t buckets = rank.rank() == 0 ? rank.fake().TakeRanges().size() : 0;
  together.arrive_and_wait();
  if (rank.rank() != 0) return std::nullopt;
  return Calls{.all = after.all - before.all,
               .pointers = after.pointers - before.pointers,
               .streams = after.streams - before.streams,
               .threads = after.threads - before.threads,
               .buckets = buckets};
}

// Returns the calls of kSteps locked steps of all ranks. The result is the lowest count of several rounds, because a
// round creates objects if more buckets are in flight at once than ever before.
Calls CallsOfLockedSteps(size_t tensors, Submit way) {
  Calls fewest;
  std::barrier<> together(kRanks);
  RunDeviceRanks({.size = kRanks}, [&](DeviceRank& rank) {
    Steps steps(rank, tensors, way);
    for (int i = 0; i < 20; ++i) steps.Run();
    const Statistics locked = rank.runtime().statistics();
    EXPECT_EQ(locked.schedules_begun, locked.schedules_left + 1);
    for (int round = 0; round < kRounds; ++round) {
      const std::optional<Calls> counted = CountRound(rank, steps, together);
      if (counted.has_value() && (round == 0 || counted->all < fewest.all)) fewest = *counted;
    }
  });
  return fewest;
}

TEST(DeviceCalls, AStepThatIsSubmittedTogetherCostsAsManyCallsWithAnyNumberOfTensors) {
  for (const size_t tensors : {2, 50}) {
    const Calls calls = CallsOfLockedSteps(tensors, Submit::kTogether);
    EXPECT_EQ(calls.buckets, kRanks * kSteps);
    EXPECT_EQ(calls.pointers, 0u);
    EXPECT_EQ(calls.threads, 0);
    EXPECT_EQ(calls.streams, kRanks * kSteps * 2 * kLook) << "by the submission, and by the stream's wait";
    EXPECT_EQ(calls.all, kRanks * kSteps * (kCallsOfSubmission + kLook + kCallsOfBucket));
  }
}

TEST(DeviceCalls, ATensorThatIsSubmittedAloneCostsALookAtItsStreamAndAPoint) {
  constexpr size_t kTensors = 10;
  const Calls calls = CallsOfLockedSteps(kTensors, Submit::kOneByOne);
  EXPECT_EQ(calls.pointers, 0u);
  EXPECT_EQ(calls.streams, kRanks * kSteps * kTensors * 2 * kLook);
  EXPECT_EQ(calls.all, kRanks * kSteps * kTensors * (kCallsOfSubmission + kLook) + calls.buckets * kCallsOfBucket);
}

// Device 0, the device of rank 0, is the current device of all ranks' threads.
TEST(DeviceCalls, TheCurrentDeviceIsChangedOnceForABucketAndOnlyIfItIsAnother) {
  RunDeviceRanks({.size = kRanks}, [](DeviceRank& rank) {
    Steps steps(rank, /*tensors=*/50, Submit::kTogether);
    for (int i = 0; i < 20; ++i) steps.Run();
    const size_t before = steps.device_changes();
    for (size_t i = 0; i < kSteps; ++i) steps.Run();
    const size_t changes = steps.device_changes() - before;
    if (rank.rank() == 0) {
      EXPECT_EQ(changes, 0u);
    } else {
      EXPECT_GE(changes, kSteps * 2);
      EXPECT_LE(changes, kSteps * kMostChanges);
    }
  });
}

TEST(DeviceCalls, ABufferThatIsNewIsLookedFor) {
  RunDeviceRanks({.size = 1}, [](DeviceRank& rank) {
    const DeviceTensor first(rank, std::vector<float>(kCount, 1));
    const DeviceTensor second(rank, std::vector<float>(kCount, 1));
    SucceedOn(rank, DeviceSum("x", rank, first, kCount));
    const size_t looks = rank.fake().looks_at_pointers();
    SucceedOn(rank, DeviceSum("x", rank, first, kCount));
    EXPECT_EQ(rank.fake().looks_at_pointers(), looks);
    SucceedOn(rank, DeviceSum("x", rank, second, kCount));
    EXPECT_EQ(rank.fake().looks_at_pointers(), looks + 1);
    Submission elsewhere = DeviceSum("x", rank, first, kCount);
    std::vector<float> host(kCount);
    elsewhere.output = host.data();
    const auto refused = rank.runtime().Submit(elsewhere);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << "its input is known, its output is not";
  });
}

}  // namespace
}  // namespace ronda::testing
