// SPDX-License-Identifier: Apache-2.0

// Tests which driver calls a locked step makes. It makes calls per bucket and per stream, but no calls for a tensor
// that was in an earlier step.
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

// The driver calls for a bucket. The first four are for Ronda's stream: it waits for the submissions, runs two kernels,
// and records an event. The fifth makes the trainer's stream wait for this event.
constexpr size_t kCallsOfBucket = 5;
// The two queries of a stream: whether it is being captured, and its number.
constexpr size_t kLook = 2;
// A submission makes these two queries, and records the stream's point.
constexpr size_t kCallsOfSubmission = kLook + 1;
// How often Ronda changes the current device if the trainer's thread uses another one. Ronda changes to its own device
// and back up to four times: for the submission, for the bucket if this thread launches it, to look up the number of
// the waiting stream, and to make this stream wait.
constexpr size_t kMostChanges = 4 * 2;

enum class Submit { kTogether, kOneByOne };

// Whether the tensors are adjacent in memory, and so are reduced in place.
enum class Place { kApart, kAdjacent };

// Training steps with sums. The rank's stream waits for the results.
class Steps {
 public:
  Steps(DeviceRank& rank, size_t tensors, Submit way, Place place = Place::kApart) : rank_(rank), way_(way) {
    if (place == Place::kAdjacent) tensors_.emplace_back(rank, std::vector<float>(tensors * kCount, 1));
    for (size_t i = 0; i < tensors; ++i) {
      if (place == Place::kApart) tensors_.emplace_back(rank, std::vector<float>(kCount, 1));
      Submission& sum = submissions_.emplace_back(DeviceSum(absl::StrCat("t", i), rank, tensors_.back(), kCount));
      if (place == Place::kAdjacent) sum.input = sum.output = static_cast<float*>(sum.output) + i * kCount;
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

  // Returns how often the current device was changed in all steps, up to the last wait of the stream in each step.
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
  // The number of driver calls. Queries of events are not counted, because their number depends on timing. Calls that
  // create events or allocate memory are not counted either, because they stop once there is enough of both.
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

// Returns the calls that all ranks made in kSteps steps, as counted by rank 0; nullopt on the other ranks.
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

// Returns the calls that all ranks make in kSteps locked steps. It is the lowest count of several rounds, because a
// round creates objects if more buckets are in flight at once than ever before.
Calls CallsOfLockedSteps(size_t tensors, Submit way, Place place = Place::kApart) {
  Calls fewest;
  std::barrier<> together(kRanks);
  RunDeviceRanks({.size = kRanks, .reduces_in_place = place == Place::kAdjacent}, [&](DeviceRank& rank) {
    Steps steps(rank, tensors, way, place);
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

// ResNet-50 has 161 gradients.
TEST(DeviceCalls, AStepOfAdjacentTensorsHasNoKernels) {
  const Calls calls = CallsOfLockedSteps(161, Submit::kTogether, Place::kAdjacent);
  EXPECT_EQ(calls.buckets, kRanks * kSteps);
  EXPECT_EQ(calls.all, kRanks * kSteps * (kCallsOfSubmission + kLook + kCallsOfBucket - 2))
      << "no packing, no unpacking";
}

TEST(DeviceCalls, AdjacentTensorsThatAreSubmittedAloneHaveNoKernels) {
  constexpr size_t kTensors = 10;
  const Calls calls = CallsOfLockedSteps(kTensors, Submit::kOneByOne, Place::kAdjacent);
  EXPECT_LT(calls.buckets, kRanks * kSteps * kTensors) << "they share buckets";
  EXPECT_EQ(calls.all,
            kRanks * kSteps * kTensors * (kCallsOfSubmission + kLook) + calls.buckets * (kCallsOfBucket - 2));
}

TEST(DeviceCalls, ATensorThatIsSubmittedAloneCostsALookAtItsStreamAndAPoint) {
  constexpr size_t kTensors = 10;
  const Calls calls = CallsOfLockedSteps(kTensors, Submit::kOneByOne);
  EXPECT_EQ(calls.pointers, 0u);
  EXPECT_EQ(calls.streams, kRanks * kSteps * kTensors * 2 * kLook);
  EXPECT_EQ(calls.all, kRanks * kSteps * kTensors * (kCallsOfSubmission + kLook) + calls.buckets * kCallsOfBucket);
}

// Device 0, which belongs to rank 0, is the current device of all ranks' threads.
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
