// SPDX-License-Identifier: Apache-2.0

// Tests which operations on device tensors are refused, and how they fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// --- Refusals ---

absl::Status StatusOf(DeviceRank& rank, const Submission& submission) { return CarryOut(rank.runtime(), submission); }

TEST(DeviceRefusals, RanksThatDisagreeOnTheMemoryAreNamed) {
  RunDeviceRanks({.size = 2}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(3, 1));
    std::vector<float> host(3, 1);
    const Submission submission = rank.rank() == 0 ? Sum("x", &host) : DeviceSum("x", rank, tensor, 3);
    EXPECT_THAT(std::string(StatusOf(rank, submission).message()),
                AllOf(HasSubstr("rank 0"), HasSubstr("says memory of the host, rank 1"), HasSubstr("memory of a GPU")));
    ASSERT_NE(SucceedOn(rank, DeviceSum("x", rank, tensor, 3)), nullptr);
  });
}

TEST(DeviceRefusals, BuffersAreWhereTheyAreSaidToBe) {
  RunDeviceRanks({.size = 2}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(3, 1));
    std::vector<float> host(3, 1);
    Submission submission = DeviceSum("x", rank, tensor, 3);
    ASSERT_NE(SucceedOn(rank, submission), nullptr);
    submission.input = host.data();
    EXPECT_EQ(StatusOf(rank, submission).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(StatusOf(rank, submission).message()), HasSubstr("tensor 'x': it is said to be in the"));
    DeviceRank elsewhere(rank.runtime(), rank.fake(), 5);
    const DeviceTensor other(elsewhere, std::vector<float>(3, 1));
    EXPECT_THAT(std::string(StatusOf(rank, DeviceSum("x", elsewhere, other, 3)).message()),
                HasSubstr(absl::StrCat("on cuda:5, but this rank's tensors are on cuda:", rank.rank())));
    Submission barrier = Barrier("b");
    barrier.request.memory = Memory::kCuda;
    EXPECT_EQ(StatusOf(rank, barrier).code(), absl::StatusCode::kInvalidArgument);
  });
}

TEST(DeviceRefusals, AStreamThatIsBeingCapturedIsLeftAlone) {
  RunDeviceRanks({.size = 2}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(3, 1));
    rank.fake().SetCapturing(rank.stream(), 1);
    const absl::Status refused = StatusOf(rank, DeviceSum("x", rank, tensor, 3));
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("captured into a CUDA graph"));
    rank.fake().SetCapturing(rank.stream(), 0);
    ASSERT_NE(SucceedOn(rank, DeviceSum("x", rank, tensor, 3)), nullptr);
  });
}

TEST(DeviceRefusals, AStreamThatIsBeingCapturedDoesNotWait) {
  RunDeviceRanks({.size = 2}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(3, 1));
    const auto other = *DeviceStream::Create(&rank.device());
    const auto handle = *rank.runtime().Submit(DeviceSum("x", rank, tensor, 3));
    rank.fake().SetCapturing(other->handle(), 1);
    const absl::Status refused = handle->OrderBefore(other->handle());
    rank.fake().SetCapturing(other->handle(), 0);
    EXPECT_EQ(handle->Wait(), absl::OkStatus());
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("tensor 'x'"), HasSubstr("wait for the operation before or after the capture")));
  });
}

TEST(DeviceRefusals, ARankWithoutDeviceIsNamedOnAllAndTheJobGoesOn) {
  RunDeviceRanks({.size = 3, .without_devices = {1}}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(3, 1));
    const ProcessSetId set = AddSet(rank.runtime(), {0, 2});
    Submission submission = DeviceSum("x", rank, tensor, 3);
    submission.request.process_set = set;
    if (rank.rank() == 1) {
      EXPECT_EQ(StatusOf(rank, DeviceSum("y", rank, tensor, 3)).code(), absl::StatusCode::kFailedPrecondition);
    } else {
      const absl::Status refused = StatusOf(rank, submission);
      EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(refused.message()),
                  AllOf(HasSubstr("tensor 'x': rank 1 cannot take part"), HasSubstr("no libronda_cuda.so")));
    }
    std::vector<float> host(3, 1);
    ASSERT_NE(SucceedOn(rank, Sum("host", &host)), nullptr);
  });
}

TEST(DeviceRefusals, RanksThatShareADeviceAreStagedOrRefused) {
  for (const char* backend : {"", "nccl"}) {
    RunDeviceRanks({.size = 2, .devices = 1, .backend = backend}, [&](DeviceRank& rank) {
      const DeviceTensor tensor(rank, std::vector<float>(3, static_cast<float>(rank.rank() + 1)));
      const absl::Status status = StatusOf(rank, DeviceSum("x", rank, tensor, 3));
      if (*backend == 0) {
        EXPECT_EQ(status, absl::OkStatus());
        EXPECT_THAT(tensor.Get<float>(), Each(3.0f));
      } else {
        EXPECT_THAT(std::string(status.message()), HasSubstr("ranks 0 and 1 share a GPU"));
      }
    });
  }
}

// --- Failures ---

TEST(DeviceFailures, AnErrorOfTheDeviceFailsTheJobAndReachesWhoWaits) {
  std::barrier<> under_way(2);
  RunDeviceRanks({.size = 2, .expects_failure = true}, [&](DeviceRank& rank) {
    const DeviceTensor& tensor = rank.Keep(std::vector<float>(3, 1));
    ASSERT_NE(SucceedOn(rank, DeviceSum("x", rank, tensor, 3)), nullptr);
    ASSERT_NE(SucceedOn(rank, Barrier("b")), nullptr);
    StreamHold hold(rank.stream());
    const auto handle = rank.runtime().Submit(DeviceSum("x", rank, tensor, 3));
    ASSERT_TRUE(handle.ok()) << handle.status();
    EXPECT_EQ((*handle)->OrderBefore(rank.stream()), absl::OkStatus());
    under_way.arrive_and_wait();
    if (rank.rank() == 1) rank.fake().FailDevice(1, kCudaIllegalAddress);
    const absl::Status status = (*handle)->Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("tensor 'x': "), HasSubstr("cuda:1")));
    EXPECT_FALSE((*handle)->OrderBefore(rank.stream()).ok());
  });
}

TEST(DeviceFailures, OfADeviceWithAnErrorTheProcessMakesNoMoreUse) {
  RunDeviceRanks({.size = 2, .expects_failure = true}, [](DeviceRank& rank) {
    const DeviceTensor& tensor = rank.Keep(std::vector<float>(3, 1));
    ASSERT_NE(SucceedOn(rank, DeviceSum("x", rank, tensor, 3)), nullptr);
    ASSERT_NE(SucceedOn(rank, Barrier("b")), nullptr);
    if (rank.rank() == 1) {
      rank.fake().FailDevice(1, kCudaIllegalAddress);
      rank.runtime().Abandon(absl::AbortedError("given up"));
    }
    EXPECT_FALSE(rank.runtime().Shutdown().ok());
    const absl::Status usable = rank.runtime().device()->CheckUsable();
    if (rank.rank() == 0) {
      EXPECT_EQ(usable, absl::OkStatus());
    } else {
      EXPECT_EQ(usable.code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(usable.message()),
                  AllOf(HasSubstr("fake GPU, cuda:1 cannot be used"), HasSubstr("an illegal memory access")));
    }
  });
}

TEST(DeviceFailures, AHungDeviceEndsTheJobByItsDeadline) {
  SetFakeNcclFaults([] {
    fake_nccl_faults faults = kNoFaults;
    faults.rank = 1;
    faults.hang_at = 1;
    return faults;
  }());
  Runtime::Options options;
  options.tunables.stall_warning = absl::Milliseconds(50);
  options.tunables.stall_deadline = absl::Seconds(1);
  RunDeviceRanks({.size = 2, .runtime = options, .expects_failure = true}, [](DeviceRank& rank) {
    const DeviceTensor& tensor = rank.Keep(std::vector<float>(3, 1));
    ASSERT_NE(SucceedOn(rank, DeviceSum("x", rank, tensor, 3)), nullptr);
    const absl::Status status = StatusOf(rank, DeviceSum("y", rank, tensor, 3));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("tensor 'y': "), HasSubstr("cuda:"),
                                                     HasSubstr("to carry out allreduce 'y'"), HasSubstr("; rank 1 ")));
  });
  SetFakeNcclFaults(kNoFaults);
}

// Freeing memory of a stuck device would block forever.
TEST(DeviceFailures, AStuckDeviceDoesNotHoldUpTheEndOfAFailedJob) {
  Runtime::Options options;
  options.tunables.stall_warning = absl::Milliseconds(50);
  options.tunables.stall_deadline = absl::Seconds(1);
  for (const char* backend : {"nccl", "staged", "peer"}) {
    RunDeviceRanks({.size = 2,
                    .backend = backend,
                    .runtime = options,
                    .cuda = {.frees = FakeCuda::Frees::kWaitForTheDevice},
                    .expects_failure = true},
                   [](DeviceRank& rank) {
                     const DeviceTensor& tensor = rank.Keep(std::vector<float>(3, 1));
                     ASSERT_NE(SucceedOn(rank, DeviceSum("x", rank, tensor, 3)), nullptr);
                     ASSERT_NE(SucceedOn(rank, Barrier("b")), nullptr);
                     rank.HoldStream();
                     const absl::Status status = StatusOf(rank, DeviceSum("x", rank, tensor, 3));
                     EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
                     EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("tensor 'x': "), HasSubstr("cuda:")));
                   });
  }
}

TEST(DeviceFailures, ErrorOfNcclFailsTheJob) {
  SetFakeNcclFaults([] {
    fake_nccl_faults faults = kNoFaults;
    faults.rank = 0;
    faults.error_at = 1;
    faults.hang_at = 1;
    return faults;
  }());
  RunDeviceRanks({.size = 2, .expects_failure = true}, [](DeviceRank& rank) {
    const DeviceTensor& tensor = rank.Keep(std::vector<float>(3, 1));
    absl::Status status;
    for (int step = 0; step < 5 && status.ok(); ++step) status = StatusOf(rank, DeviceSum("x", rank, tensor, 3));
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  });
  SetFakeNcclFaults(kNoFaults);
}

TEST(DeviceFailures, ARankThatIsGoneLeavesNoThreadWaitingForTheDevice) {
  std::barrier<> under_way(2);
  RunDeviceRanks({.size = 2, .expects_failure = true}, [&](DeviceRank& rank) {
    const DeviceTensor& tensor = rank.Keep(std::vector<float>(3, 1));
    ASSERT_NE(SucceedOn(rank, DeviceSum("x", rank, tensor, 3)), nullptr);
    ASSERT_NE(SucceedOn(rank, Barrier("b")), nullptr);
    StreamHold hold(rank.stream());
    const auto handle = rank.runtime().Submit(DeviceSum("x", rank, tensor, 3));
    ASSERT_TRUE(handle.ok()) << handle.status();
    EXPECT_EQ((*handle)->OrderBefore(rank.stream()), absl::OkStatus());
    under_way.arrive_and_wait();
    if (rank.rank() == 1) rank.runtime().Abandon(absl::AbortedError("given up"));
    EXPECT_THAT(std::string((*handle)->Wait().message()), HasSubstr("given up"));
  });
}

}  // namespace
}  // namespace ronda::testing
