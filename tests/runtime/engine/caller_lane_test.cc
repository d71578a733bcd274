// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/caller_lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"
#include "tests/runtime/engine/lane_calls.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRanks = 2;
constexpr size_t kCount = 6;

Submission Sum(DeviceRank& rank, const DeviceTensor& tensor) { return DeviceSum("", rank, tensor, kCount); }

// Only rank `root` gets the result; elsewhere the output is nullptr.
Submission Reduce(DeviceRank& rank, const DeviceTensor& tensor, RankId root) {
  Submission submission = Sum(rank, tensor);
  submission.request.op = OpType::kReduce;
  submission.request.root = root;
  if (rank.rank() != root) submission.output = nullptr;
  return submission;
}

Submission Broadcast(DeviceRank& rank, const DeviceTensor& tensor, RankId root) {
  Submission submission = Sum(rank, tensor);
  submission.request.op = OpType::kBroadcast;
  submission.request.root = root;
  submission.input = nullptr;
  return submission;
}

// Returns a call on kCount elements per rank.
Submission Allgather(DeviceRank& rank, const DeviceTensor& input, const DeviceTensor& output) {
  Submission submission = Sum(rank, input);
  submission.request.op = OpType::kAllgather;
  submission.output = output.data();
  submission.output_bytes = kRanks * kCount * sizeof(float);
  return submission;
}

// Returns a call whose result has kCount elements per rank.
Submission Reducescatter(DeviceRank& rank, const DeviceTensor& input, const DeviceTensor& output) {
  Submission submission = Sum(rank, input);
  submission.request.op = OpType::kReduceScatter;
  submission.request.shape = {kRanks, kCount};
  submission.output = output.data();
  submission.output_bytes = kCount * sizeof(float);
  return submission;
}

// Makes all kinds of operations in each step. Each operation needs the result of the one before.
void RunSteps(DeviceRank& rank, Calls& calls, int steps) {
  DeviceTensor tensor(rank, kCount * sizeof(float)), all(rank, kRanks * kCount * sizeof(float));
  for (int step = 0; step < steps; ++step) {
    tensor.Set(std::vector<float>(kCount, static_cast<float>(step + rank.rank())));
    calls.MakeAndOrder(Sum(rank, tensor));                 // 2 step + 1
    calls.MakeAndOrder(Allgather(rank, tensor, all));      // the same, twice as many
    calls.MakeAndOrder(Reducescatter(rank, all, tensor));  // 4 step + 2
    calls.MakeAndOrder(Sum(rank, tensor));                 // 8 step + 4
    const float sum = static_cast<float>(8 * step + 4);
    ASSERT_THAT(tensor.Get<float>(), Each(sum)) << "step " << step;
    tensor.Set(std::vector<float>(kCount, static_cast<float>(10 * step + rank.rank())));
    calls.MakeAndOrder(Broadcast(rank, tensor, step % kRanks));
    ASSERT_THAT(tensor.Get<float>(), Each(static_cast<float>(10 * step + step % kRanks))) << "step " << step;
  }
}

TEST(CallerLane, CallsKeepTheirOrderAndTheStreams) {
  RunDeviceRanks({.size = kRanks, .cuda = {.delay_seed = 7}}, [](DeviceRank& rank) {
    Calls calls(rank);
    RunSteps(rank, calls, 30);
  });
}

TEST(CallerLane, OneQueueOfTheDeviceAndMemoryCallsThatWaitAreEnough) {
  RunDeviceRanks({.size = kRanks,
                  .cuda = {.delay_seed = 8,
                           .frees = FakeCuda::Frees::kWaitForTheDevice,
                           .allocations = FakeCuda::Options::Allocations::kWaitForTheDevice,
                           .queues = 1}},
                 [](DeviceRank& rank) {
                   Calls calls(rank);
                   RunSteps(rank, calls, 10);
                 });
}

TEST(CallerLane, ManyCallsNeedNoWaitBetweenThem) {
  RunDeviceRanks({.size = kRanks, .cuda = {.delay_seed = 9}}, [](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor tensor(rank, std::vector<float>(kCount, 1));
    for (int i = 0; i < 10; ++i) ASSERT_EQ(calls.Make(Sum(rank, tensor)).status(), absl::OkStatus());
    EXPECT_EQ(calls.lane().OrderBefore(rank.stream()), absl::OkStatus());
    EXPECT_THAT(tensor.Get<float>(), Each(1 << 10));
  });
}

TEST(CallerLane, TwoLanesAreUsedOneAfterTheOther) {
  RunDeviceRanks({.size = kRanks, .cuda = {.delay_seed = 10}}, [](DeviceRank& rank) {
    Calls all(rank), other(rank, AddSet(rank.runtime(), {0, 1}));
    const DeviceTensor tensor(rank, std::vector<float>(kCount, 1));
    for (int i = 0; i < 5; ++i) {
      all.MakeAndOrder(Sum(rank, tensor));
      other.MakeAndOrder(Sum(rank, tensor));
    }
    EXPECT_THAT(tensor.Get<float>(), Each(1 << 10));
  });
}

TEST(CallerLane, NcclScalesAndDivides) {
  RunDeviceRanks({.size = kRanks}, [](DeviceRank& rank) {
    Calls calls(rank);
    const float own = rank.rank() == 0 ? 1 : 4;
    DeviceTensor tensor(rank, std::vector<float>(kCount, own));
    Submission average = Sum(rank, tensor);
    average.request.reduction = Reduction::kAverage;
    calls.MakeAndOrder(average);
    EXPECT_THAT(tensor.Get<float>(), Each(2.5f));
    tensor.Set(std::vector<float>(kCount, own));
    Submission scaled = Sum(rank, tensor);
    scaled.request.prescale = 0.5;
    calls.MakeAndOrder(scaled);
    EXPECT_THAT(tensor.Get<float>(), Each(2.5f));
    tensor.Set(std::vector<uint16_t>(2 * kCount, rank.rank() == 0 ? 0x3c00 : 0x4400));  // float16: 1 and 4
    average.request.dtype = scaled.request.dtype = DType::kFloat16;
    calls.MakeAndOrder(average);
    EXPECT_EQ(tensor.Get<uint16_t>()[0], 0x4100);  // 2.5
    EXPECT_EQ(tensor.Get<uint16_t>()[kCount], rank.rank() == 0 ? 0x3c00 : 0x4400) << "it has half the bytes";
  });
}

TEST(CallerLane, OnlyTheRootGetsAReducedTensor) {
  RunDeviceRanks({.size = 3, .cuda = {.delay_seed = 11}}, [](DeviceRank& rank) {
    Calls calls(rank);
    for (const RankId root : {0, 2, 1}) {
      const auto own = static_cast<float>(rank.rank() + 1);
      const DeviceTensor tensor(rank, std::vector<float>(kCount, own));
      Submission average = Reduce(rank, tensor, root);
      average.request.reduction = Reduction::kAverage;
      calls.MakeAndOrder(average);
      EXPECT_THAT(tensor.Get<float>(), Each(rank.rank() == root ? 2.0f : own)) << "root " << root;
    }
    EXPECT_EQ(FakeNcclCalls("Reduce") % 3, 0);
  });
}

TEST(CallerLane, RanksThatDifferInTheRootGetBothCalls) {
  RunDeviceRanks({.size = kRanks, .expects_failure = true}, [](DeviceRank& rank) {
    Calls calls(rank);
    DeviceTensor& tensor = rank.Keep(std::vector<float>(kCount, 1));
    EXPECT_THAT(std::string(calls.StatusOf(Reduce(rank, tensor, /*root=*/rank.rank())).message()),
                AllOf(HasSubstr("rank 0 has called reduce (6 x float32 to rank 0, sum)"),
                      HasSubstr("rank 1 has called reduce (6 x float32 to rank 1, sum)")));
  });
  while (!PopFakeNcclReport().empty()) {
  }
}

TEST(CallerLane, TheEngineCarriesOutOperationsThatNcclLacks) {
  RunDeviceRanks({.size = kRanks}, [](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor tensor(rank, kRanks * kCount * sizeof(double));
    const auto carries = [&](Submission submission) { return *calls.lane().Carries(submission); };
    Submission maximum = Sum(rank, tensor);
    maximum.request.reduction = Reduction::kMax;
    EXPECT_FALSE(carries(maximum)) << "NCCL drops NaN";
    maximum.request.op = OpType::kReduce;
    EXPECT_FALSE(carries(maximum)) << "NCCL drops NaN";
    maximum.request.dtype = DType::kInt32;
    EXPECT_TRUE(carries(maximum));
    Submission shorts = Sum(rank, tensor);
    shorts.request.dtype = DType::kInt16;
    EXPECT_FALSE(carries(shorts));
    shorts.request.op = OpType::kBroadcast;
    EXPECT_TRUE(carries(shorts)) << "moved as bytes";
    Submission average = Sum(rank, tensor);
    average.request.dtype = DType::kInt32;
    average.request.reduction = Reduction::kAverage;
    EXPECT_FALSE(carries(average)) << "NCCL rounds it in its own way";
    Submission gathered = Allgather(rank, tensor, tensor);
    gathered.input = static_cast<const float*>(tensor.data()) + kRanks * kCount;
    EXPECT_TRUE(carries(gathered));
    gathered.output = nullptr;
    gathered.output_bytes = 0;
    EXPECT_FALSE(carries(gathered)) << "the ranks may have different numbers of rows";
  });
}

TEST(CallerLane, NcclMultipliesShortFloatsOnlyByFactorsThatTheyRepresent) {
  for (const int ranks : {2, 3}) {
    RunDeviceRanks({.size = ranks}, [ranks](DeviceRank& rank) {
      Calls calls(rank);
      const DeviceTensor tensor(rank, kCount * sizeof(float));
      const auto carries = [&](DType dtype, Reduction reduction, double factor) {
        Submission submission = Sum(rank, tensor);
        submission.request.dtype = dtype;
        submission.request.reduction = reduction;
        submission.request.prescale = factor;
        return *calls.lane().Carries(submission);
      };
      for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
        EXPECT_TRUE(carries(dtype, Reduction::kSum, 1));
        EXPECT_TRUE(carries(dtype, Reduction::kSum, 0.25));
        EXPECT_FALSE(carries(dtype, Reduction::kSum, 0.1));
        EXPECT_FALSE(carries(dtype, Reduction::kSum, 1e-8)) << "0 in float16";
        EXPECT_EQ(carries(dtype, Reduction::kAverage, 1), ranks == 2);
      }
      EXPECT_TRUE(carries(DType::kFloat32, Reduction::kAverage, 1));
      EXPECT_TRUE(carries(DType::kFloat32, Reduction::kSum, 0.1));
    });
  }
}

TEST(CallerLane, ErrorsOfArgumentsDoNotNameTheCall) {
  RunDeviceRanks({.size = kRanks}, [](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor tensor(rank, std::vector<float>(kCount, 1));
    Submission wrong = Broadcast(rank, tensor, /*root=*/7);
    const absl::Status status = calls.lane().Carries(wrong).status();
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("broadcast: root 7 is not in process set 0"));
  });
}

TEST(CallerLane, OperationsOfTheEngineThatAreDoneAreNotKept) {
  RunDeviceRanks({.size = kRanks}, [](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor tensor(rank, std::vector<float>(kCount, 1));
    std::weak_ptr<Handle> first;
    for (int i = 0; i < 2; ++i) {
      std::shared_ptr<Handle> handle = SucceedOn(rank, DeviceSum("a", rank, tensor, kCount));
      ASSERT_NE(handle, nullptr);
      ASSERT_TRUE(handle->done());
      if (i == 0) first = handle;
      calls.lane().Follow(std::move(handle));
    }
    EXPECT_TRUE(first.expired());
  });
}

// Returns counters of the engine's work so far.
std::vector<uint64_t> EngineCounts(Runtime& runtime) {
  const Statistics counts = runtime.statistics();
  return {counts.reports_sent, counts.lists_received, counts.buckets_agreed, counts.buckets_scheduled, counts.tensors};
}

// Returns the number of driver calls. Queries of events are not counted, because their number depends on timing.
size_t DriverCalls(FakeCuda& cuda) {
  return cuda.calls() - cuda.queried_events() - cuda.created_events() - cuda.allocations();
}

// The operation makes five driver calls. Two of them query whether the caller's stream is being captured, and its
// number, and one records an event on it. One makes the lane's stream wait for this event, and one records an event on
// the lane's stream. The wait for the result makes three calls: the same two queries for the waiting stream, and one
// that makes it wait.
constexpr size_t kDriverCallsOfSum = 5 + 3;

TEST(CallerLane, ACallNeedsNeitherTheEngineNorANewThread) {
  std::barrier<> together(kRanks);
  RunDeviceRanks({.size = kRanks}, [&](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor tensor(rank, std::vector<float>(kCount, 1));
    calls.MakeAndOrder(Sum(rank, tensor));
    EXPECT_THAT(tensor.Get<float>(), Each(2));
    together.arrive_and_wait();
    const std::vector<uint64_t> before = EngineCounts(rank.runtime());
    const size_t driver_calls = DriverCalls(rank.fake());
    const int threads = FakeNcclThreads();
    const int sums = FakeNcclCalls("AllReduce");
    together.arrive_and_wait();
    constexpr int kSums = 10;
    for (int i = 0; i < kSums; ++i) {
      StreamHold hold(rank.stream());  // the call is not done before the stream waits for it
      calls.MakeAndOrder(Sum(rank, tensor));
    }
    together.arrive_and_wait();
    EXPECT_EQ(EngineCounts(rank.runtime()), before);
    EXPECT_EQ(FakeNcclThreads(), threads);
    EXPECT_EQ(FakeNcclCalls("AllReduce"), sums + kRanks * kSums);
    EXPECT_EQ(DriverCalls(rank.fake()) - driver_calls, kRanks * kSums * kDriverCallsOfSum);
    together.arrive_and_wait();
    EXPECT_THAT(tensor.Get<float>(), Each(1 << (kSums + 1)));
  });
}

TEST(CallerLane, ADifferenceIsReportedWithBothCalls) {
  RunDeviceRanks({.size = kRanks, .expects_failure = true}, [](DeviceRank& rank) {
    Calls calls(rank);
    DeviceTensor& tensor = rank.Keep(std::vector<float>(kCount, 1));
    EXPECT_EQ(calls.StatusOf(Sum(rank, tensor)), absl::OkStatus());
    const absl::Status status =
        calls.StatusOf(rank.rank() == 0 ? Sum(rank, tensor) : Broadcast(rank, tensor, /*root=*/0));
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("call 2 of lane 0"), HasSubstr("rank 0 has called allreduce (6 x float32, sum)"),
                      HasSubstr("rank 1 has called broadcast (6 x float32 from rank 0)")));
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << "the job does not go on";
    EXPECT_EQ(calls.StatusOf(Sum(rank, tensor)).code(), absl::StatusCode::kAborted) << "later calls, too";
  });
  while (!PopFakeNcclReport().empty()) {
  }
}

TEST(CallerLane, ARefusalReachesTheRanksThatMakeTheCall) {
  RunDeviceRanks({.size = kRanks, .expects_failure = true}, [](DeviceRank& rank) {
    Calls calls(rank);
    DeviceTensor& tensor = rank.Keep(std::vector<float>(kCount, 1));
    if (rank.rank() == 1) return calls.lane().Refuse("ValueError: no such thing");
    EXPECT_THAT(std::string(calls.StatusOf(Sum(rank, tensor)).message()),
                AllOf(HasSubstr("call 1 of lane 0"), HasSubstr("rank 1 has refused: ValueError: no such thing")));
  });
}

TEST(CallerLane, RanksThatRefuseTheSameCallGoOn) {
  RunDeviceRanks({.size = kRanks}, [](DeviceRank& rank) {
    Calls calls(rank);
    const DeviceTensor tensor(rank, std::vector<float>(kCount, 1));
    calls.lane().Refuse("on both");
    calls.MakeAndOrder(Sum(rank, tensor));
    EXPECT_THAT(tensor.Get<float>(), Each(2));
  });
}

TEST(CallerLane, TheEndOfARankEndsTheCallsOfTheOthers) {
  std::barrier<> together(kRanks);
  RunDeviceRanks({.size = kRanks, .expects_failure = true}, [&](DeviceRank& rank) {
    Calls calls(rank);
    DeviceTensor& tensor = rank.Keep(std::vector<float>(kCount, 1));
    EXPECT_EQ(calls.StatusOf(Sum(rank, tensor)), absl::OkStatus());
    together.arrive_and_wait();
    if (rank.rank() == 1) return rank.runtime().Abandon(absl::UnavailableError("rank 1 has gone"));
    EXPECT_THAT(std::string(calls.StatusOf(Sum(rank, tensor)).message()), HasSubstr("rank 1 has gone"));
    EXPECT_THAT(std::string(calls.StatusOf(Sum(rank, tensor)).message()), HasSubstr("rank 1 has gone"));
  });
  EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
}

TEST(CallerLane, OtherBackendsHaveNone) {
  RunDeviceRanks({.size = kRanks, .backend = "staged"}, [](DeviceRank& rank) {
    const absl::StatusOr<bool> is_open = rank.runtime().OpenLane(kGlobalProcessSet, nullptr, WaitLimits());
    ASSERT_EQ(is_open.status(), absl::OkStatus());
    EXPECT_FALSE(*is_open);
    EXPECT_EQ(rank.runtime().lanes().Find(kGlobalProcessSet), nullptr);
  });
}

TEST(CallerLane, ARankWithoutADeviceKeepsItShutOnAll) {
  ::testing::internal::CaptureStderr();
  RunDeviceRanks({.size = kRanks, .without_devices = {1}}, [](DeviceRank& rank) {
    EXPECT_FALSE(*rank.runtime().OpenLane(kGlobalProcessSet, nullptr, WaitLimits()));
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  constexpr char kLine[] =
      "ronda[0] W process set 0 has no lane, and its operations on GPUs go the usual way: rank 1: ";
  EXPECT_THAT(log, HasSubstr(kLine));
  EXPECT_EQ(log.find(kLine), log.rfind("has no lane") - std::string("ronda[0] W process set 0 ").size()) << "once";
}

TEST(CallerLane, ALaneThatIsOpenedAgainGoesOnWithTheNumbers) {
  RunDeviceRanks({.size = kRanks}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(kCount, 1));
    {
      Calls calls(rank);
      calls.MakeAndOrder(Sum(rank, tensor));
      rank.runtime().lanes().Remove(kGlobalProcessSet)->Drain();
    }
    Calls calls(rank);
    EXPECT_EQ(calls.lane().calls(), 1u);
    const auto call = calls.Make(Broadcast(rank, tensor, /*root=*/0));  // the first lane's call 1 was a sum
    ASSERT_EQ(call.status(), absl::OkStatus());
    EXPECT_EQ((*call)->Wait(), absl::OkStatus());
    EXPECT_EQ(calls.lane().calls(), 2u);
  });
}

TEST(CallerLane, ALaneIsRetiredWithoutAWait) {
  RunDeviceRanks({.size = kRanks}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(kCount, 1));
    std::shared_ptr<Handle> call;
    for (int i = 0; i < 2; ++i) {
      StreamHold hold(rank.stream());  // the device cannot carry out the call yet
      Calls calls(rank);
      const auto made = calls.Make(Sum(rank, tensor));
      ASSERT_EQ(made.status(), absl::OkStatus());
      call = *made;
      rank.runtime().lanes().Retire(kGlobalProcessSet);
      EXPECT_EQ(rank.runtime().lanes().Find(kGlobalProcessSet), nullptr);
      EXPECT_FALSE(call->done());
      EXPECT_EQ(call->OrderBefore(rank.stream()), absl::OkStatus());
    }
    EXPECT_THAT(tensor.Get<float>(), Each(4)) << "its calls are carried out all the same";
  });
  EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
}

TEST(CallerLane, ALaneThatIsClosedCanBeOpenedAgain) {
  RunDeviceRanks({.size = kRanks}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(kCount, 1));
    for (int i = 0; i < 2; ++i) {
      Calls calls(rank);
      ASSERT_EQ(calls.Make(Sum(rank, tensor)).status(), absl::OkStatus());
      const std::shared_ptr<CallerLane> closed = rank.runtime().lanes().Remove(kGlobalProcessSet);
      closed->Drain();
    }
    EXPECT_THAT(tensor.Get<float>(), Each(4));
  });
  EXPECT_EQ(LiveFakeNcclCommunicators(), 0);
}

}  // namespace
}  // namespace ronda::testing
