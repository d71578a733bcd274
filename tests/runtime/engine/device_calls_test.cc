// What a locked step asks of the driver: calls for buckets and streams, and none for a tensor that was there before.
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
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

constexpr int kRanks = 2;
constexpr size_t kCount = 5;
constexpr size_t kSteps = 7;  // that are counted
constexpr int kRounds = 10;

// A wait for the point of the submissions, both kernels, the event behind the bucket; and of the stream that waits for
// it, for the event and for the gate. The vote is none: both kernels see to it.
constexpr size_t kCallsOfBucket = 6;
// Whether it is being captured, and its number.
constexpr size_t kLook = 2;
// And its point.
constexpr size_t kCallsOfSubmission = kLook + 1;
// Of the current device, by a trainer whose own choice is another one: to Ronda's and back, for the submission, for the
// bucket if this thread launches it, and for the stream's wait, when its number is looked up and when it is given.
constexpr size_t kMostChanges = 4 * 2;

enum class Submit { kTogether, kOneByOne };

// Steps of sums, whose results the rank's stream waits for.
class Steps {
 public:
  Steps(DeviceRank& rank, size_t tensors, Submit way) : rank_(rank), way_(way) {
    for (size_t i = 0; i < tensors; ++i) {
      tensors_.emplace_back(rank, std::vector<float>(kCount, 1));
      submissions_.push_back(DeviceSum(absl::StrCat("t", i), rank, tensors_.back(), kCount));
    }
  }

  void Run() {
    StreamHold hold(rank_.stream());  // the vote is open until the stream has been told to wait
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

  // In all steps, up to where the stream has been told to wait.
  size_t device_changes() const { return device_changes_; }

 private:
  std::vector<std::shared_ptr<Handle>> SubmitAll() {
    if (way_ == Submit::kTogether) return *rank_.runtime().SubmitAll(submissions_);
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
  // But queries of events: the watch asks as often as it likes; and what makes events and memory, of which there are
  // more until there are enough for the most that are in use at once.
  size_t all = 0;
  size_t pointers = 0;
  size_t streams = 0;
  int threads = 0;  // that NCCL has started
  size_t buckets = 0;
};

Calls CallsSoFar(FakeCuda& cuda) {
  return {.all = cuda.calls() - cuda.queried_events() - cuda.created_events() - cuda.allocations(),
          .pointers = cuda.looks_at_pointers(),
          .streams = cuda.looks_at_streams(),
          .threads = FakeNcclThreads()};
}

// Of kSteps steps of all ranks, as rank 0 counts them; nullopt on the others.
std::optional<Calls> CountRound(DeviceRank& rank, Steps& steps, std::barrier<>& together) {
  together.arrive_and_wait();
  const Calls before = CallsSoFar(rank.fake());
  if (rank.rank() == 0) rank.fake().TakeRanges();  // one a bucket
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

// Of kSteps locked steps of all ranks: the fewest of some rounds, as objects are made when more buckets are under way
// at once than ever before.
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

// Of the ranks' threads all have device 0, which is rank 0's.
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
