// SPDX-License-Identifier: Apache-2.0

// Tests buckets in memory that all ranks have registered together (RONDA_GRADIENT_MEMORY_MB). NCCL reduces a bucket
// there if it has the same offset on all ranks. Otherwise the bucket is packed. The fake NCCL hangs if offsets differ
// in a call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/engine/device/lane_memory.h"
#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kWarmSteps = 20;  // after which the schedule is locked
constexpr size_t kMiB = 1 << 20;
constexpr size_t kCounts[] = {5, 1, 0, 3, 8};
constexpr size_t kTensors = std::size(kCounts);
constexpr size_t kTotal = 17;

// Adjacent tensors of float32 in a block of the job's memory, or in other memory of the device.
class Gradients {
 public:
  // Opens the device's lane, as the first tensor on a device does. `memory` may be nullptr afterwards.
  explicit Gradients(DeviceRank& rank) : rank_(rank), other_(rank, std::vector<float>(kTotal)) {
    SucceedOn(rank, DeviceSum("first", rank, other_, kTotal));
    memory_ = rank.runtime().gradient_memory();
    begin_ = memory_ == nullptr ? Other() : Allocate(kTotal * sizeof(float));
  }
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;
  ~Gradients() {
    for (float* const block : blocks_) EXPECT_EQ(memory_->Free(block, rank_.stream()), absl::OkStatus());
  }

  float* Allocate(size_t bytes) {
    const absl::StatusOr<void*> block = memory_->Allocate(bytes, rank_.stream());
    EXPECT_EQ(block.status(), absl::OkStatus());
    return blocks_.emplace_back(static_cast<float*>(block.value_or(nullptr)));
  }
  float* Other() const { return static_cast<float*>(other_.data()); }
  float* begin() const { return begin_; }
  void MoveTo(float* begin) { begin_ = begin; }
  LaneMemory& memory() { return *memory_; }

  std::vector<Submission> Submissions(size_t tensors = kTensors) const {
    std::vector<Submission> submissions;
    float* at = begin_;
    for (size_t i = 0; i < tensors; ++i) {
      Submission& submission = submissions.emplace_back();
      submission.request = {
          .name = absl::StrCat("t", i), .memory = Memory::kCuda, .shape = {static_cast<int64_t>(kCounts[i])}};
      submission.input = submission.output = at;
      submission.stream = rank_.stream();
      at += kCounts[i];
    }
    return submissions;
  }

  // Adds up the first tensors, whose elements are this rank's number plus 1.
  void Step(size_t tensors = kTensors) {
    const int ranks = rank_.runtime().topology().size;
    const DeviceTensor values(rank_, std::vector<float>(kTotal, static_cast<float>(rank_.rank() + 1)));
    EXPECT_EQ(rank_.device().Call("a test's copy",
                                  [&](const ronda_cuda_plugin& cuda) {
                                    return cuda.copy(begin_, values.data(), kTotal * sizeof(float), rank_.stream());
                                  }),
              absl::OkStatus());
    const auto handles = SubmitAll(rank_.runtime(), Submissions(tensors));
    ASSERT_TRUE(handles.ok()) << handles.status();
    size_t total = 0;
    for (size_t i = 0; i < tensors; ++i) {
      EXPECT_EQ((*handles)[i]->OrderBefore(rank_.stream()), absl::OkStatus());
      total += kCounts[i];
    }
    EXPECT_THAT(DeviceTensor::ReadAs<float>(rank_, begin_, total), Each(static_cast<float>(ranks * (ranks + 1)) / 2));
    for (const auto& handle : *handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
  }

 private:
  DeviceRank& rank_;
  DeviceTensor other_;
  std::shared_ptr<LaneMemory> memory_;
  std::vector<float*> blocks_;
  float* begin_ = nullptr;
};

// How all ranks have reduced the bucket of a step.
enum class Way : uint8_t { kInWindow, kInRegisteredMemory, kPacked };

// Ranks that make steps together.
class GradientMemoryTest : public ::testing::Test {
 protected:
  void TearDown() override {
    SetFakeNcclFaults(kNoFaults);
    EXPECT_EQ(PopFakeNcclReport(), "");
  }

  void RunRanks(int ranks, const std::function<void(DeviceRank& rank, Gradients& gradients)>& body) {
    together_ = std::make_unique<std::barrier<>>(ranks);
    RunDeviceRanks({.size = ranks, .gradient_memory_mb = 1}, [&](DeviceRank& rank) {
      Gradients gradients(rank);
      body(rank, gradients);
      together_->arrive_and_wait();  // a rank that ends would unlock the schedule
    });
  }

  void WarmUp(Gradients& gradients, size_t tensors = kTensors) {
    for (int i = 0; i < kWarmSteps; ++i) gradients.Step(tensors);
  }

  Way WayOfStep(DeviceRank& rank, Gradients& gradients, size_t tensors = kTensors) {
    together_->arrive_and_wait();
    const size_t kernels = rank.fake().finished_kernels();
    const int symmetric = FakeNcclCalls("symmetric");
    together_->arrive_and_wait();
    gradients.Step(tensors);
    together_->arrive_and_wait();
    const bool has_kernels = rank.fake().finished_kernels() != kernels;
    const bool is_symmetric = FakeNcclCalls("symmetric") != symmetric;
    together_->arrive_and_wait();
    EXPECT_FALSE(has_kernels && is_symmetric);
    return is_symmetric ? Way::kInWindow : has_kernels ? Way::kPacked : Way::kInRegisteredMemory;
  }

  std::unique_ptr<std::barrier<>> together_;
};

TEST_F(GradientMemoryTest, TensorsAtTheSameOffsetAreReducedInTheWindow) {
  for (const int ranks : {2, 3}) {
    RunRanks(ranks, [&](DeviceRank& rank, Gradients& gradients) {
      WarmUp(gradients);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(WayOfStep(rank, gradients), Way::kInWindow);
    });
  }
}

TEST_F(GradientMemoryTest, ASingleTensorIsReducedInTheWindow) {
  RunRanks(2, [&](DeviceRank& rank, Gradients& gradients) {
    WarmUp(gradients, 1);
    EXPECT_EQ(WayOfStep(rank, gradients, 1), Way::kInWindow);
  });
}

TEST_F(GradientMemoryTest, TensorsAtDifferentOffsetsArePackedUntilTheOffsetsAreEqual) {
  ::testing::internal::CaptureStderr();
  RunRanks(3, [&](DeviceRank& rank, Gradients& gradients) {
    float* const first = gradients.begin();
    float* const second = gradients.Allocate(kTotal * sizeof(float));
    if (rank.rank() == 1) gradients.MoveTo(second);
    WarmUp(gradients);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(WayOfStep(rank, gradients), Way::kPacked);
    gradients.MoveTo(second);
    EXPECT_EQ(WayOfStep(rank, gradients), Way::kInWindow);
    gradients.MoveTo(first);
    EXPECT_EQ(WayOfStep(rank, gradients), Way::kInWindow);
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("at different offsets"));
}

TEST_F(GradientMemoryTest, TensorsOutsideOnOneRankArePackedOnAll) {
  RunRanks(3, [&](DeviceRank& rank, Gradients& gradients) {
    float* const inside = gradients.begin();
    if (rank.rank() == 2) gradients.MoveTo(gradients.Other());
    WarmUp(gradients);
    EXPECT_EQ(WayOfStep(rank, gradients), Way::kPacked);
    gradients.MoveTo(inside);
    EXPECT_EQ(WayOfStep(rank, gradients), Way::kInWindow);
  });
}

TEST_F(GradientMemoryTest, TensorsMayMoveInAnyStep) {
  RunRanks(3, [&](DeviceRank& rank, Gradients& gradients) {
    float* const first = gradients.begin();
    float* const second = gradients.Allocate(kTotal * sizeof(float));
    WarmUp(gradients);
    for (float* const elsewhere : {second, gradients.Other()}) {
      EXPECT_EQ(WayOfStep(rank, gradients), Way::kInWindow);
      if (rank.rank() == 1) gradients.MoveTo(elsewhere);
      EXPECT_EQ(WayOfStep(rank, gradients), Way::kPacked);
      gradients.MoveTo(first);
      EXPECT_EQ(WayOfStep(rank, gradients), Way::kInWindow);
    }
    const Statistics statistics = rank.runtime().statistics();
    EXPECT_EQ(statistics.schedules_begun, statistics.schedules_left + 1) << "the schedule stays locked";
  });
}

// NCCL must take the memory for other memory in all other calls, because they have no vote on it.
TEST_F(GradientMemoryTest, OtherOperationsMayHaveTensorsInTheMemoryOnSomeRanks) {
  RunRanks(3, [&](DeviceRank& rank, Gradients& gradients) {
    float* const where = rank.rank() == 1 ? gradients.Other() : gradients.begin();
    Submission submission = DeviceSum("sum", rank, DeviceTensor(rank, 4), 1);
    submission.input = submission.output = where;
    for (const OpType op : {OpType::kAllreduce, OpType::kBroadcast}) {
      submission.request.op = op;
      submission.request.name = absl::StrCat(Name(op));
      SucceedOn(rank, submission);
    }
  });
}

TEST_F(GradientMemoryTest, NcclWithoutWindowsUsesTheMemoryAllTheSame) {
  for (const int version : {22902, 22809, 21900}) {
    fake_nccl_faults faults = kNoFaults;
    faults.version = version;
    faults.no_windows = 1;
    SetFakeNcclFaults(faults);
    RunRanks(2, [&](DeviceRank& rank, Gradients& gradients) {
      WarmUp(gradients);
      EXPECT_EQ(WayOfStep(rank, gradients), Way::kInRegisteredMemory) << version;
    });
  }
}

TEST_F(GradientMemoryTest, OtherBackendsHaveNoMemoryAndRankZeroLogsThis) {
  ::testing::internal::CaptureStderr();
  RunDeviceRanks({.size = 2, .backend = "staged", .gradient_memory_mb = 1}, [](DeviceRank& rank) {
    Gradients gradients(rank);
    for (int i = 0; i < kWarmSteps; ++i) gradients.Step();
    EXPECT_EQ(rank.runtime().gradient_memory(), nullptr);
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("no memory for gradients"));
}

TEST_F(GradientMemoryTest, ReproducibleSumsHaveNoMemoryAndRankZeroLogsThis) {
  ::testing::internal::CaptureStderr();
  RunDeviceRanks({.size = 2, .gradient_memory_mb = 1, .reproducible = true}, [](DeviceRank& rank) {
    Gradients gradients(rank);
    for (int i = 0; i < kWarmSteps; ++i) gradients.Step();
    EXPECT_EQ(rank.runtime().gradient_memory(), nullptr);
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("with RONDA_REPRODUCIBLE=1 they are packed"));
}

TEST_F(GradientMemoryTest, FullMemoryIsAnErrorThatNamesTheSetting) {
  RunRanks(2, [&](DeviceRank& rank, Gradients& gradients) {
    const absl::Status full = gradients.memory().Allocate(kMiB, rank.stream()).status();
    EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(
        std::string(full.message()),
        AllOf(HasSubstr("in the memory of the job, which has 1048576 bytes (RONDA_GRADIENT_MEMORY_MB on rank 0)"),
              HasSubstr("512 are in use")));
  });
}

TEST_F(GradientMemoryTest, ThereIsNoMemoryUnlessRequestedNorForOneRank) {
  for (const int ranks : {1, 2}) {
    RunDeviceRanks({.size = ranks, .gradient_memory_mb = 2 - ranks}, [](DeviceRank& rank) {
      Gradients gradients(rank);
      gradients.Step();
      EXPECT_EQ(rank.runtime().gradient_memory(), nullptr);
    });
  }
}

TEST_F(GradientMemoryTest, IfARankHasNoRoomTheJobGoesOnWithoutTheMemory) {
  ::testing::internal::CaptureStderr();
  const FakeCuda::Options cuda = {.memory_bytes = size_t{8} << 20};
  const int symmetric = FakeNcclCalls("symmetric");
  RunDeviceRanks({.size = 3, .cuda = cuda, .gradient_memory_mb = 7}, [](DeviceRank& rank) {
    const DeviceTensor filled(rank, std::vector<float>(rank.rank() == 1 ? kMiB / 2 : 1));
    Gradients gradients(rank);
    // The fusion buffers need the memory that the other ranks have freed.
    for (int i = 0; i < kWarmSteps; ++i) gradients.Step();
    EXPECT_EQ(rank.runtime().gradient_memory(), nullptr);
  });
  EXPECT_EQ(FakeNcclCalls("symmetric"), symmetric);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      log, AllOf(HasSubstr("gradients are packed on all ranks: rank 1 has no memory for gradients: fake GPU, cuda:1: "
                           "NCCL has no 7340032 bytes for tensors (RONDA_GRADIENT_MEMORY_MB on rank 0)"),
                 Not(HasSubstr("rank 2 has no memory"))));
  EXPECT_EQ(log.find("gradients are packed"), log.rfind("gradients are packed")) << "only rank 0 logs it";
}

TEST_F(GradientMemoryTest, RankThatCannotRegisterFailsTheJobOnAllRanks) {
  fake_nccl_faults faults = kNoFaults;
  faults.rank = 1;
  faults.fail_register = 1;
  SetFakeNcclFaults(faults);
  RunDeviceRanks({.size = 2, .gradient_memory_mb = 2, .expects_failure = true}, [](DeviceRank& rank) {
    const DeviceTensor& tensor = rank.Keep(std::vector<float>(1));
    const auto handle = rank.runtime().Submit(DeviceSum("first", rank, tensor, 1));
    ASSERT_TRUE(handle.ok()) << handle.status();
    EXPECT_THAT(std::string((*handle)->Wait().message()),
                HasSubstr("registering memory as a window (RONDA_GRADIENT_MEMORY_MB=0 on rank 0 does without)"));
  });
}

// Reads the gradients when the job has ended.
struct Reader {
  DeviceRank& rank;
  Gradients gradients{rank};

  ~Reader() {
    EXPECT_THAT(DeviceTensor::ReadAs<float>(rank, gradients.begin(), kTotal), Each(3));
    EXPECT_THAT(std::string(gradients.memory().Allocate(1, rank.stream()).status().message()),
                HasSubstr("the job has ended"));
  }
};

TEST_F(GradientMemoryTest, BlocksOutliveTheJob) {
  RunDeviceRanks({.size = 2, .gradient_memory_mb = 1}, [&](DeviceRank& rank) {
    const auto reader = std::make_shared<Reader>(rank);
    rank.KeepAlive(reader);
    WarmUp(reader->gradients);
  });
}

TEST_F(GradientMemoryTest, RankThatIsLostEndsTheJob) {
  std::barrier<> together(3);
  RunDeviceRanks({.size = 3, .gradient_memory_mb = 1, .expects_failure = true}, [&](DeviceRank& rank) {
    auto gradients = std::make_shared<Gradients>(rank);
    rank.KeepAlive(gradients);
    WarmUp(*gradients);
    together.arrive_and_wait();
    if (rank.rank() == 2) {
      rank.runtime().Abandon(absl::AbortedError("given up"));
      return;
    }
    absl::Status status;
    for (int i = 0; i < 100 && status.ok(); ++i) {
      const auto handles = SubmitAll(rank.runtime(), gradients->Submissions());
      status = handles.status();
      for (size_t k = 0; handles.ok() && k < kTensors && status.ok(); ++k) status = (*handles)[k]->Wait();
    }
    EXPECT_THAT(std::string(status.message()), HasSubstr("given up"));
  });
}

}  // namespace
}  // namespace ronda::testing
